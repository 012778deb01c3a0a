"""Join chords in the ledger.

The app's result backend stays in use: it still stores every state and result. Only its counting of a chord's parts is
replaced: a worker that dies between the increment and the commit would make the backend count a part twice.

Each member of the header delivers its result, with its commit, as a part of another record, `<group>.chord`. The commit
that delivers the last part lets that record run, and `relier.chord` starts the body. A member that fails for good
delivers its failure instead, and the error callbacks of the body run, as in Celery.

A member may add members to its chord. Its part then states how many, their parts state that they were added,
and the join waits for that many more parts.

A member that is not adopted has no commit. For such a member, a task `relier.part`, which does nothing else, delivers
the part. The same is done for a member whose id is too long for the name of a part, because the id of `relier.part` is
short.
"""

from __future__ import annotations

from typing import Any

from relier.celery.canvas.nesting import NESTED, is_nested, leaves
from relier.celery.canvas.parts import join_part, send_part
from relier.celery.compat import save_result_tree
from relier.celery.sending.collect import current_collector


def backend_class(base: type[Any]) -> type[Any]:
    """Return a subclass of the app's backend class whose chords join in the ledger."""

    class LedgerBackend(base):
        def apply_chord(self, header_result_args: Any, body: Any, **_: Any) -> Any:
            self.ensure_chords_allowed()  # no counter in the backend and no celery.chord_unlock task: the ledger counts
            header = self.app.GroupResult(*header_result_args)
            body["chord_size"] = sum(1 for _ in leaves(header))
            if is_nested(header):
                body[NESTED] = True
                save_result_tree(self, header)

        def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> Any:
            collector = current_collector()
            if not request.group or not (request.chord or {}).get("chord_size"):
                return super().on_chord_part_return(request, state, result, **kwargs)
            if collector is None:
                send_part(self.app, request, state, result)
            else:
                join_part(self.app, collector, request, state, result)
            return None

        def add_to_chord(self, group_id: str, result: Any) -> Any:
            collector = current_collector()
            if collector is None:
                return super().add_to_chord(group_id, result)
            collector.added += 1
            return None

        def __reduce__(self, *args: Any) -> Any:
            """Pickle the backend as an instance of the app's own backend class, which can be imported by name.

            A result that is sent to another process carries its backend. There the backend only answers queries.
            """
            rebuild, (_, *how) = super().__reduce__(*args)
            return rebuild, (base, *how)

    return LedgerBackend
