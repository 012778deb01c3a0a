"""Seeded bugs in roles (workers and helpers), in the helpers' clock, and in orders."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import Sweep
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("helpers' leases run on the workers' clock: an outage that workers hardly feel ends them", "outage_of_helpers")
class HelpersOnTheWorkersClock(Model):
    def remove_helpers(self, interval: int, sweep: Sweep) -> None:
        _, till = self.tick(interval, sweeps=True)
        for name, boot in list(self.boots.items()):
            if boot.role != "worker" and boot.lease_end <= till:
                self.remove_boot(name)
                sweep.removed += 1


@_bug("a gap counts in full for helpers", "outages")
class HelperClockJumps(Model):
    def read_helper_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        before, last, clamp, grace = self.helper_clock or (1, self.now, 0, 0)
        return before + max(0, self.now - last), grace, clamp


@_bug("after an outage no helper gets a grace", "members", "outages")
class NoGraceForHelpers(Model):
    def tick_helpers(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        t, _ = super().tick_helpers(interval, sweeps=sweeps)
        return t, t


@_bug("every long gap begins a grace for helpers, so rare sweeps never find a dead one", "dead_helper_and_rare_sweeps")
class RareSweepsSpareHelpers(Model):
    def read_helper_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        return super().read_helper_clock(0 if sweeps else interval, sweeps=sweeps)


@_bug("a slow sweep moves the helpers' clock by its whole pause", "slow_sweep_after_an_outage")
class SlowSweepHurriesHelpers(Model):
    def read_helper_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        t, grace, clamp = super().read_helper_clock(interval, sweeps=sweeps)
        before, last, _, _ = self.helper_clock or (1, self.now, 0, 0)
        gap = self.now - last
        return (before + gap, grace, clamp) if sweeps and clamp < gap <= 2 * (interval or 0) else (t, grace, clamp)


@_bug("sweeps do not move the helpers' clock, so the last helper that died is never removed", "dead_helper")
class HelperClockStandsStill(Model):
    def remove_helpers(self, interval: int, sweep: Sweep) -> None:
        return


@_bug("a helper's lease counts for the workers' clamp", "helper_beside_a_worker")
class HelpersShortenTheClamp(Model):
    def reclamp(self) -> None:
        t, grace, clamp = self.read_clock()
        shortest = min((boot.lease for boot in self.boots.values()), default=None)
        self.clock = (t, self.now, clamp if shortest is None else (shortest + 1) // 2, grace)

    def reclamp_helpers(self) -> None:
        super().reclamp_helpers()
        self.reclamp()


@_bug("a helper's heartbeat moves the workers' clock", "helper_beside_a_worker")
class HelpersTickForWorkers(Model):
    def _beat(self, args: list[bytes]) -> Any:
        self.tick(int(args[1]) // 4)
        return super()._beat(args)


@_bug("a worker's lease counts for the clamp of helpers", "members", "dead_helper")
class WorkersStretchTheHelperClamp(Model):
    def reclamp_helpers(self) -> None:
        super().reclamp_helpers()
        if self.helper_clock is not None:
            longest = max(boot.lease for boot in self.boots.values())
            t, last, _, grace = self.helper_clock
            self.helper_clock = (t, last, (longest + 1) // 2, grace)


@_bug("the helpers' clock outlives the last helper", "helpers_alone")
class HelperClockStays(Model):
    def reclamp_helpers(self) -> None:
        kept = self.helper_clock
        super().reclamp_helpers()
        self.helper_clock = self.helper_clock or kept


@_bug("a helper may claim", "role_is_kept")
class HelperClaims(Model):
    def _claim(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is None:
            return super()._claim(args)
        role, boot.role = boot.role, "worker"
        answer = super()._claim(args)
        boot.role = role
        return answer


@_bug("a node may change its role", "role_is_kept")
class RoleChanges(Model):
    def _register(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is not None and boot.lease_end != 0:
            boot.role = args[3].decode()
        return super()._register(args)


@_bug("a beat does not tell the orders", "ordered_by_two")
class OrdersForgotten(Model):
    def _beat(self, args: list[bytes]) -> Any:
        return super()._beat(args)[:3]


@_bug("an operator overwrites orders unseen", "ordered_by_two")
class OrdersOverwritten(Model):
    def _order(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        seen = boot.order.partition(" ")[0] if boot is not None else ""
        return super()._order([args[0], (seen or "0").encode(), *args[2:]])


@_bug("a second operator with the same wish makes a new version", "ordered_by_two")
class RepeatedOrderCounts(Model):
    def _order(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        answer = super()._order(args)
        if boot is not None and answer[0] == b"repeat":
            version, _, state = boot.order.partition(" ")
            boot.order = f"{int(version) + 1} {state}"
        return answer


@_bug("a reborn node forgets its orders", "ordered_by_two")
class CarriedOrdersForgotten(Model):
    def _register(self, args: list[bytes]) -> Any:
        return super()._register([*args[:4], b""])


@_bug("a repeated register overwrites newer orders with the carried ones", "ordered_by_two")
class CarriedOrdersOverwrite(Model):
    def _register(self, args: list[bytes]) -> Any:
        answer = super()._register(args)
        if answer == b"ok" and args[4]:
            self.boots[args[0].decode()].order = f"1 {args[4].decode()}"
        return answer


@_bug("a lost node takes orders", "ordered_by_two", "members")
class LostNodeTakesOrders(Model):
    def _order(self, args: list[bytes]) -> Any:
        answer = super()._order(args)
        return [b"ok", b" ".join([b"1", *args[2:]])] if answer[0] == b"gone" else answer
