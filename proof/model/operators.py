"""The model's moves of operators, and its reads."""

from __future__ import annotations

import json
from typing import Any

from proof.model.batches import Batching
from proof.model.state import Rec


class Operate(Batching):
    """replay, cancel, discard, pause, resume; get, owned."""

    # --- 5 operate -----------------------------------------------------------------------------------------------

    def _replay(self, args: list[bytes]) -> Any:
        task_id, version, nonce = args[0].decode(), int(args[1]), args[2].decode()
        edited, fresh = args[3] == b"1", args[5] == b"1"
        rec = self.tasks.get(task_id)
        said = self.may_replay(task_id, rec, version, nonce)
        if said != "ok" or rec is None:
            return _operated(said, rec)
        self.need_memory()
        if edited:
            rec.body = args[4]
            rec.more["revision"] = str(int(rec.more.get("revision", 0)) + 1)
        rec.owner, rec.attempt, rec.expiry = "-", 0, False
        rec.flags = "".join(flag for flag in rec.flags if flag not in ("acks" if fresh else "ac"))
        if fresh:
            rec.checkpoint, rec.steps = None, {}
            rec.more.pop("checkpoint", None)
        self.moved(task_id, rec, "queued")
        for name in ("reason", "retries", "deaths", "scares", "since", "locked_since", "settled"):
            rec.more.pop(name, None)
        rec.more["replayed"] = nonce
        self.drop(self.ended, "dead", task_id)
        if "key" in rec.more:
            self.idem[rec.more["key"]] = (task_id, None)
        if "b" in rec.flags:
            self.rejoin(task_id, rec)
        self.count_limited(rec, 1)
        self.place(task_id, rec, self.time_us)
        self.count("replayed")
        if rec.held is not None:
            self.count("bytes", rec.held)
        return [b"ok", b"queued", rec.version]

    def may_replay(self, task_id: str, rec: Rec | None, version: int, nonce: str) -> str:
        if rec is None:
            return "missing"
        if rec.more.get("replayed") == nonce:
            return "repeat"
        if rec.version != version:
            return "conflict"
        if rec.state != "dead":
            return "illegal"
        other = self.holder(rec.more["key"]) if "key" in rec.more else None
        return "key_taken" if other and other != task_id else "ok"

    def _cancel(self, args: list[bytes]) -> Any:
        task_id, version = args[0].decode(), int(args[1])
        rec = self.tasks.get(task_id)
        if rec is None:
            return [b"missing", b"", b"0"]
        if rec.state == "cancelled" or (rec.state == "running" and "c" in rec.flags):
            return _operated("repeat", rec)
        if rec.version != version:
            return _operated("conflict", rec)
        if rec.state in {"done", "dead"}:
            return _operated("illegal", rec)
        return _operated(self.stop_task(task_id, rec), rec)

    def _discard(self, args: list[bytes]) -> Any:
        task_id, version = args[0].decode(), int(args[1])
        rec = self.tasks.get(task_id)
        if rec is None:
            return [b"missing", b"", b"0"]
        if rec.version != version:
            return _operated("conflict", rec)
        if rec.state not in {"done", "dead", "cancelled"}:
            return _operated("illegal", rec)
        self.remove(task_id, rec)
        self.count("discarded")
        return _operated("ok", rec)

    def _pause(self, args: list[bytes], *, pause: bool = True) -> Any:
        queue, version = args[0].decode(), int(args[1])
        paused, seen = self.pauses.get(queue, (False, 0))
        if paused is pause:
            return [b"repeat", str(int(paused)).encode(), str(seen).encode()]
        if seen != version:
            return [b"conflict", str(int(paused)).encode(), str(seen).encode()]
        self.pauses[queue] = (pause, seen + 1)
        self.news("cluster", "paused" if pause else "resumed", queue, "", "", "", seen + 1, "")
        if pause:
            self.queues.add(queue)
        else:
            self.ring(queue)
        return [b"ok", str(int(pause)).encode(), str(seen + 1).encode()]

    def _resume(self, args: list[bytes]) -> Any:
        return self._pause(args, pause=False)

    # --- reads ---------------------------------------------------------------------------------------------------

    def _get(self, args: list[bytes]) -> Any:
        task_id = args[0].decode()
        rec = self.tasks.get(task_id)
        if rec is None:
            until, state = self.tombs.get(task_id, (0, ""))
            missing: list[Any] = [b"", [], None, [], [], None, self.born.encode()]
            return [f"ended {until} {state}".encode(), [], None, [], [], None] if state else missing
        more = [part.encode() for pair in rec.more.items() for part in pair]
        steps = [part for name, value in rec.steps.items() for part in (name.encode(), value)]
        history = [json.dumps(entry).encode() for entry in rec.history]
        return [rec.text(), more, rec.checkpoint, steps, history, None]

    def _steps(self, args: list[bytes]) -> Any:
        """Return all steps at once: the model needs no pages."""
        rec = self.tasks.get(args[0].decode())
        return [[part for name, value in (rec.steps if rec else {}).items() for part in (name.encode(), value)], None]

    def _owned(self, args: list[bytes]) -> Any:
        owned = self.owned.get(args[0].decode(), {})
        first = int(args[1])
        held = sorted(owned, key=lambda i: (owned[i], i))[first : first + 1000]
        fences = {i: self.tasks[i].fence if i in self.tasks else 0 for i in held}
        return [part for i in held for part in (i.encode(), str(fences[i]).encode())]


def _operated(said: str, rec: Rec | None) -> list[Any]:
    return [said.encode(), rec.state.encode() if rec else b"", rec.version if rec else b"0"]
