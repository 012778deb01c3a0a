"""Seeded bugs in the ledger clock, and in which nodes are registered."""

# ruff: noqa: ARG002 - a bug is often an unused argument

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.model.state import Sweep
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("a gap counts in full, whatever its length", "clock")
class ClockJumps(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        before, last, clamp, grace = self.clock or (1, self.now, 0, 0)
        return before + max(0, self.now - last), grace, clamp


@_bug("an outage counts as one clamp, which a jump of TIME takes from every lease", "clock", "slow")
class JumpCostsAClamp(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        t, grace, clamp = super().read_clock(interval, sweeps=sweeps)
        begun = grace != (self.clock or (1, 0, 0, 0))[3]
        return (t + clamp, grace + clamp, clamp) if begun else (t, grace, clamp)


@_bug("a slow sweeper moves the clock by its own pause, however short the leases are", "slow")
class SlowSweeperHurries(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        t, grace, clamp = super().read_clock(interval, sweeps=sweeps)
        before, last, _, _ = self.clock or (1, self.now, 0, 0)
        gap = self.now - last
        return (before + gap, grace, clamp) if sweeps and clamp < gap <= 2 * (interval or 0) else (t, grace, clamp)


@_bug("a slow sweeper's own pauses begin a grace, so that nobody is ever lost", "slow")
class SlowSweeperWaits(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        return super().read_clock(0 if sweeps else interval, sweeps=sweeps)


@_bug("the beats of a long lease begin a grace each, so that nobody with a short one is ever lost", "rare_sweeps")
class LongLeaseRenewsTheGrace(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        return super().read_clock(interval if sweeps or interval is None else 0, sweeps=sweeps)


@_bug(
    "a worker that only came begins a grace, so that one which dies at each start keeps the dead alive", "rare_sweeps"
)
class NewcomerBeginsAGrace(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        return super().read_clock(0 if interval is None else interval, sweeps=sweeps)


@_bug("a TIME that goes back takes the ledger clock with it", "clock")
class ClockGoesBack(Model):
    def read_clock(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int, int]:
        t, grace, clamp = super().read_clock(interval, sweeps=sweeps)
        gap = self.now - (self.clock or (1, self.now, 0, 0))[1]
        return t + min(0, gap), grace, clamp


@_bug("the clock moves only when workers come, so after the last one died it stands still", "crash")
class ClockStandsStill(Model):
    def tick(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        return ((self.clock or (1, 0, 0, 0))[0], 0) if sweeps else super().tick(interval)


@_bug("after an outage nobody gets a grace", "clock", "network")
class NoGrace(Model):
    def tick(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        t, _ = super().tick(interval, sweeps=sweeps)
        return t, t


@_bug("a sweep takes every boot for lost", "calm")
class NoLeaseCheck(Model):
    def tick(self, interval: int | None = None, *, sweeps: bool = False) -> tuple[int, int]:
        t, _ = super().tick(interval, sweeps=sweeps)
        return t, 2**60


@_bug("a boot is removed with its tasks still in its owned set", "storm")
class BootRemovedEarly(Model):
    def sweep_boot(self, name: str, sweep: Sweep) -> None:
        super().sweep_boot(name, sweep)
        if name in self.boots:
            self.remove_boot(name)


@_bug("a boot declared lost beats its way back", "lost_acts")
class LostBootBeats(Model):
    def _beat(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is not None and boot.lease_end == 0:
            boot.lease_end = 1
        return super()._beat(args)


@_bug("a boot declared lost may register again", "lost_acts")
class LostBootRegisters(Model):
    def _register(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is not None and boot.lease_end == 0:
            boot.lease_end = 1
        return super()._register(args)


@_bug("a boot declared lost may claim", "lost_acts")
class LostBootClaims(Model):
    def _claim(self, args: list[bytes]) -> Any:
        boot = self.boots.get(args[0].decode())
        if boot is None or boot.lease_end != 0:
            return super()._claim(args)
        boot.lease_end = 1
        answer = super()._claim(args)
        boot.lease_end = 0
        return answer


@_bug("a boot retires with tasks in its hands", "network", "crash")
class RetiresWithTasks(Model):
    def _retire(self, args: list[bytes]) -> Any:
        if args[0].decode() not in self.boots:
            return [b"gone"]
        self.remove_boot(args[0].decode())
        return [b"ok"]


@_bug("the beat does not tell who is asked to cancel", "operators")
class AskedForgotten(Model):
    def _beat(self, args: list[bytes]) -> Any:
        answer = super()._beat(args)
        return [*answer[:2], []] if len(answer) == 3 else answer
