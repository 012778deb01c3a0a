"""All simulated runs written by hand, for cases that random runs rarely reach. The checker checks them, too."""

from __future__ import annotations

from collections.abc import Callable

from proof.checker.ghost import Violation
from proof.directed import admission, batches, follow_ups, leases, limits, locks, members, timetables
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
        limits.limits_oldest_first,
        limits.limits_pass_on,
        limits.limits_in_two_queues,
        limits.limits_set,
        timetables.edited_under_a_scheduler,
        timetables.edited_with_an_old_clock,
        timetables.time_goes_back,
        timetables.removed_before_time_goes_back,
        timetables.once,
        timetables.paused_while_due,
        timetables.declared_while_paused,
        timetables.declared_by_others,
        timetables.removed_by_two,
        timetables.two_groups,
        timetables.many_due,
        timetables.pushed_before_it_fires,
        timetables.fired_when_full,
        timetables.paused_when_full,
        batches.expired_member,
        batches.failed_twice,
        batches.cancelled_batch,
        batches.replayed_member,
        batches.replayed_inner_member,
        batches.replayed_late,
        batches.closed_batch,
        batches.abandoned_batch,
        batches.slow_producer,
        batches.waited_for,
        members.outage_of_helpers,
        members.slow_sweep_after_an_outage,
        members.dead_helper,
        members.dead_helper_and_rare_sweeps,
        members.helpers_alone,
        members.helper_beside_a_worker,
        members.role_is_kept,
        members.ordered_by_two,
        members.members_when_full,
    )
}
