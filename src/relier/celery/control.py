"""`revoke` reaches the ledger: what waits there is cancelled at once, whichever worker would have got it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kombu.utils.functional import maybe_list

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption


def control_class(base: type[Any], adoption: Adoption) -> type[Any]:
    """The app's own Control class, whose revokes are the ledger's, too."""

    class LedgerControl(base):
        def revoke(self, task_id: Any, *args: Any, terminate: bool = False, **kwargs: Any) -> Any:
            for each in maybe_list(task_id):
                if adoption.cancel(each, running=terminate):
                    self.app.backend.mark_as_revoked(each, "revoked")
            return super().revoke(task_id, *args, terminate=terminate, **kwargs)

    return LedgerControl
