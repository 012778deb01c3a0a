"""The model's nodes and clocks: register, beat, retire, order; workers and helpers."""

from __future__ import annotations

from typing import Any

from proof.model.events import Telling
from proof.model.state import Boot

Clock = tuple[int, int, int, int]
BEGINNING = 1


class Members(Telling):
    """The moves of nodes. One clock measures workers' leases, another those of helpers (all other roles)."""

    @property
    def now(self) -> int:
        return self.time_us // 1000

    # --- clocks --------------------------------------------------------------------------------------------------

    def moved_clock(
        self, clock: Clock | None, interval: int | None = None, *, sweeps: bool = False
    ) -> tuple[int, int, int]:
        t, last, clamp, grace = clock or (BEGINNING, self.now, 0, 0)
        gap = self.now - last
        if gap <= clamp:
            return t + max(0, gap), grace, clamp
        if interval is not None and gap > 2 * interval:
            return t, t + 2 * clamp, clamp
        return (t + clamp if sweeps else t), grace, clamp

    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        """Return the ledger clock: (time, end of grace, clamp)."""
        return self.moved_clock(self.clock, interval, sweeps=sweeps)

    def read_helper_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        return self.moved_clock(self.helper_clock, interval, sweeps=sweeps)

    def tick(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        """Advance the clock. Return it, and the time before which an ended lease is over for sure. In a grace, no lease
        is.
        """
        t, grace, clamp = self.read_clock(interval, sweeps=sweeps)
        self.clock = (t, self.now, clamp, grace)
        return t, 0 if t < grace else t

    def tick_helpers(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        t, grace, clamp = self.read_helper_clock(interval, sweeps=sweeps)
        self.helper_clock = (t, self.now, clamp, grace)
        return t, 0 if t < grace else t

    def reclamp(self) -> None:
        t, grace, clamp = self.read_clock()
        leases = [boot.lease for boot in self.boots.values() if boot.role == "worker" and not boot.bare]
        shortest = min(leases, default=None)
        self.clock = (t, self.now, clamp if shortest is None else (shortest + 1) // 2, grace)

    def reclamp_helpers(self) -> None:
        leases = [boot.lease for boot in self.boots.values() if boot.role != "worker"]
        t, grace, _ = self.read_helper_clock()
        self.helper_clock = (t, self.now, (min(leases) + 1) // 2, grace) if leases else None

    def remove_boot(self, boot: str) -> None:
        left = self.boots.pop(boot)
        if left.role == "worker":
            self.reclamp()
        else:
            self.reclamp_helpers()

    # --- moves ---------------------------------------------------------------------------------------------------

    def _register(self, args: list[bytes]) -> Any:
        name, lease, role, carried = args[0].decode(), int(args[1]), args[3].decode(), args[4].decode()
        known = self.boots.get(name)
        if role == "worker":
            ends = self.tick()[0] + lease
        if known and (known.lease_end == 0 or known.role != role):
            return b"gone"
        boot = self.boots.setdefault(name, Boot(0, lease, self.now, role))
        boot.lease, boot.registered = lease, self.now
        if role == "worker":
            boot.lease_end = ends
            self.reclamp()
        else:
            boot.helper_end = self.tick_helpers()[0] + lease
            boot.lease_end = self.read_clock()[0] + lease
            self.reclamp_helpers()
        if carried and not boot.order:
            boot.order = f"1 {carried}"
        if known is None:
            self.news("cluster", "registered", name, "", "", "", "", "")
        return b"ok"

    def _beat(self, args: list[bytes]) -> Any:
        name, lease = args[0].decode(), int(args[1])
        boot = self.boots.get(name)
        helps = boot is not None and boot.role != "worker"
        t, _ = (self.read_clock()[0], 0) if helps else self.tick(lease // 4)
        if boot is None or boot.lease_end == 0:
            return [b"gone"]
        if helps:
            boot.helper_end = self.tick_helpers(lease // 4)[0] + lease
        boot.lease_end = t + lease
        boot.report = args[3].decode() or boot.report
        asked = sorted(f"{task_id} {fence}".encode() for task_id, fence in boot.asked)
        answer = [b"ok", len(self.owned.get(name, {})), asked]
        return [*answer, boot.order.encode()] if boot.order else answer

    def _retire(self, args: list[bytes]) -> Any:
        name = args[0].decode()
        boot = self.boots.get(name)
        if boot is None or boot.lease_end == 0:
            return [b"gone"]
        if self.owned.get(name):
            return [b"busy", len(self.owned[name])]
        self.remove_boot(name)
        self.news("cluster", "retired", name, "", "", "", "", "")
        return [b"ok"]

    def _order(self, args: list[bytes]) -> Any:
        name, seen, *wanted = (arg.decode() for arg in args)
        boot = self.boots.get(name)
        if boot is None or boot.lease_end == 0:
            return [b"gone", b""]
        version, _, state = boot.order.partition(" ")
        if state == " ".join(wanted):
            return [b"repeat", boot.order.encode()]
        if (version or "0") != seen:
            return [b"conflict", boot.order.encode()]
        boot.order = " ".join([str(int(version or 0) + 1), *wanted])
        return [b"ok", boot.order.encode()]
