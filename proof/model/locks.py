"""The model's locks of user code: lock, renew, conclude, unlock."""

from __future__ import annotations

from typing import Any

from proof.model.shared import Pieces
from proof.model.state import Hold


class Locks(Pieces):
    """A key is free, held by one token, or has its result. `holds` also keeps marks that have expired."""

    def _lock(self, args: list[bytes]) -> Any:
        key, token = args[0].decode(), args[1].decode()
        owner, task_id, fence = (arg.decode() for arg in args[3:6])
        if task_id != "-" and self.is_lost(owner):
            return [b"gone"]
        hold = self.holds.get(key)
        if hold is not None and hold.until > self.now:
            if hold.done:
                return [b"completed", hold.result]
            if hold.token == token:
                return [b"claimed"]
            if not self.makes_room(hold, task_id, fence):
                return [b"in_flight", hold.until - self.now, hold.owner.encode(), hold.task_id.encode()]
        if task_id == "-":
            self.need_memory()
        self.holds[key] = Hold(self.now + int(args[2]), token, owner, task_id, fence)
        return [b"claimed"]

    def is_lost(self, boot: str) -> bool:
        return boot not in self.boots or self.boots[boot].lease_end == 0

    def makes_room(self, hold: Hold, task_id: str, fence: str) -> bool:
        """Return whether an unexpired mark blocks nobody: its worker is lost, or a later attempt of its task asks."""
        if hold.task_id == "-":
            return False
        return self.is_lost(hold.owner) or (hold.task_id == task_id and int(hold.fence) < int(fence))

    def own(self, args: list[bytes]) -> tuple[bytes, Hold | None]:
        """Return the mark of a key if the caller holds it."""
        hold = self.holds.get(args[0].decode())
        if hold is None:
            return b"missing", None
        return (b"ok", hold) if hold.token == args[1].decode() else (b"stale", None)

    def _renew(self, args: list[bytes]) -> Any:
        said, hold = self.own(args)
        if hold is None:
            return said
        if hold.done:
            return b"stale"
        hold.until = self.now + int(args[2])
        return b"ok"

    def _conclude(self, args: list[bytes]) -> Any:
        said, hold = self.own(args)
        if hold is None:
            return said
        if hold.done:
            return b"repeat"
        hold.until, hold.done, hold.result = self.now + int(args[2]), True, args[3]
        return b"ok"

    def _unlock(self, args: list[bytes]) -> Any:
        said, hold = self.own(args)
        if hold is None:
            return said
        if hold.done:
            return b"stale"
        del self.holds[args[0].decode()]
        return b"ok"
