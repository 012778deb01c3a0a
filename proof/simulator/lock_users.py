"""User code under locks, inside tasks and outside: it takes a lock, works, renews and releases it. It may be late, or
be interrupted.
"""

from __future__ import annotations

from proof.simulator.world import MS, Steps, World, ask
from relier.ledger.records import Lease, Locked, LockState

KEYS = "gh"


def under_lock(world: World, holder: Lease | str) -> Steps:
    """Run one block of code under one of a few keys, with its own token."""
    rng, ledger = world.rng, world.ledger
    key, token, hold_ms = rng.choice(KEYS), f"{world.steps}.{rng.randrange(10**9)}", rng.choice((600, 2500))
    answer = yield from ask(ledger.lock(key, token, hold_ms, holder), rng.randint(1, 4))
    claimed = isinstance(answer, Locked) and answer.state is LockState.CLAIMED
    if not claimed and rng.random() < 0.6:
        return
    for _ in range(rng.choice((0, 1, 3)) if claimed else 0):
        yield int(rng.expovariate(1 / (500 * MS))) + 1
        if rng.random() < 0.7:
            yield from ask(ledger.renew(key, token, hold_ms), 2)
    ends = (
        lambda: ledger.conclude(key, token, rng.choice((400, 4000)), b"r%d" % rng.randrange(99)),
        lambda: ledger.unlock(key, token),
        lambda: ledger.renew(key, token, hold_ms),
    )
    yield from ask(rng.choices(ends, (6, 3, 1))[0](), rng.randint(1, 4))
    if rng.random() < 0.3:
        yield rng.randint(1, 1500) * MS
        yield from ask(rng.choice(ends)(), 1)


def locker(world: World, name: str) -> Steps:
    """A process that is not a worker: a web server, a script."""
    while not world.healed:
        yield int(world.rng.expovariate(1 / (600 * MS))) + 1
        yield from under_lock(world, name)
