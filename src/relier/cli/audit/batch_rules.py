"""The rules of the audit for batches."""

from __future__ import annotations

from relier.cli.audit.findings import Finding, ObservedKey, command


def judge_batch(seen: ObservedKey) -> Finding | None:
    """Return a finding if the counts of a batch are wrong, or if no sweep will find it."""
    state, left, live, listed = (seen.fact(n) for n in range(4))
    cancel = f"Cancel it, which also counts members whose records are gone: `rl batches cancel {seen.of}`"
    if left != live:
        return seen.finding(
            "batch_counts",
            f"Batch {seen.of} waits for {left} members by its counts, but {live} have not ended.",
            cancel,
        )
    if state == "sealed" and left == "0":
        return seen.finding("batch_stuck", f"All members of batch {seen.of} have ended, but the batch has not.", cancel)
    if not listed:
        return seen.finding(
            "batch_in_no_index",
            f"Batch {seen.of} is in no index: it will never be removed.",
            f"Add it: {command('ZADD', seen.spell('batches'), '+inf', seen.of)}",
        )
    return None


def judge_beside_batch(seen: ObservedKey) -> Finding | None:
    """Return a finding for a key whose batch no longer exists."""
    if seen.fact(0):
        return None
    return seen.finding(
        "side_without_batch",
        f"The {seen.kind} of batch {seen.of} are left over: there is no such batch.",
        f"Delete them: {command('UNLINK', seen.key)}",
    )


def member_without_batch(seen: ObservedKey) -> Finding:
    return seen.finding(
        "member_without_batch",
        f"Task {seen.of} belongs to a batch that is gone: the task will run, but no next task or callback.",
        "Push the workflow again; cancel this task if it must not run twice.",
    )
