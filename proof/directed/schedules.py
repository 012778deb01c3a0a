"""Schedules written by hand: corners that random schedules seldom reach. The checker watches them like any other."""

from __future__ import annotations

from collections.abc import Callable

from proof.checker.ghost import Violation
from proof.directed import admission, follow_ups, leases, locks
from proof.directed.stage import Stage
from proof.simulator.world import World


def _watched(act: Callable[[Stage], None]) -> Callable[[World], Violation | None]:
    def watch(world: World) -> Violation | None:
        try:
            act(Stage(world))
        except Violation as violation:
            return violation
        except (KeyError, ValueError) as error:
            return Violation("no-script-stumbles", repr(error))
        return None

    return watch


SCHEDULES: dict[str, Callable[[World], Violation | None]] = {
    act.__name__: _watched(act)
    for act in (
        leases.same_fence_twice,
        leases.own_zombie,
        leases.lost_acts,
        leases.outage,
        leases.rare_sweeps,
        leases.hosts_die,
        leases.suspect_convicts_itself,
        admission.tombstone,
        admission.burst,
        follow_ups.follow_up_twice,
        follow_ups.follow_up_after_reap,
        follow_ups.bury_repeated,
        follow_ups.goes_on_as_another,
        follow_ups.joined_by_three,
        follow_ups.joined_too_late,
        follow_ups.joined_again,
        locks.lock_of_the_lost,
        locks.lock_of_an_earlier_attempt,
        locks.lock_repeated,
        leases.emptied,
    )
}
