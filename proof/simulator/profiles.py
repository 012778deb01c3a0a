"""The kinds of faults that a schedule sees. A seed chooses the profile by its remainder, so a range of seeds covers
all."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Profile:
    """Probabilities are per message, per task, or per tick of the faults (every half second)."""

    name: str
    tasks: Span = (2, 6)
    workers: Span = (1, 3)
    sweepers: Span = (1, 2)
    sweep: Span = (250, 400)  # ms between two sweeps
    leases: tuple[int, ...] = (1600, 2000, 3000)  # ms
    slots: Span = (1, 3)
    seconds: Span = (3, 7)
    # per message
    lost: float = 0.02
    unanswered: float = 0.03
    late: float = 0.03
    twice: float = 0.02
    refused: float = 0.0  # answered with "not now"; the call did not run
    # per tick
    kill: float = 0.06
    freeze: float = 0.04
    cut: float = 0.03
    outage: float = 0.015
    jump: float = 0.0
    stall: float = 0.0
    fill: float = 0.0
    wreck: float = 0.0
    wipe: float = 0.0
    crowd: float = 0.0
    damage: float = 0.0  # keys are damaged by hand, and repaired at once
    flap: float = 0.0  # the store goes down and up repeatedly; no healthy node may be lost
    downs: Span = (100, 600)  # how long a flapping store is down (ms)
    ups: Span = (480, 900)  # and then up: enough for a heartbeat that times out and the next one
    leaps: tuple[int, ...] = (50, 500, 2000, 20_000)  # jumps of the store's TIME (ms)
    # per task
    keyed: float = 0.25
    delayed: float = 0.2
    expiring: float = 0.08
    fragile: float = 0.15
    poison: float = 0.04
    follow: float = 0.15
    limited: float = 0.1
    strong: float = 0.3
    short: float = 0.1
    joined: float = 0.0  # delivers a part to a join
    held_back: float = 0.0  # has limits at run time
    replaced: float = 0.0  # continues as another task when it is retried
    flows: Span = (0, 0)  # workflows
    # locks of user code: the chance per step of an attempt, and the number of processes outside tasks
    locked: float = 0.0
    lockers: Span = (0, 0)
    # users' schedules: the number of schedulers, and the chance per tick that one is harmed
    keepers: Span = (0, 0)
    harm: float = 0.0
    # nodes with roles other than worker
    helpers: Span = (0, 0)
    helper_leases: tuple[int, ...] = (1600, 2000, 3000)  # ms
    readers: Span = (0, 0)  # readers of events
    # the rest
    operators: Span = (0, 1)
    brake: float = 0.15
    supervised: float = 0.4
    queues: Span = (1, 3)


PROFILES: tuple[Profile, ...] = (
    Profile("mixed", jump=0.02, stall=0.03, fill=0.02, wreck=0.002, joined=0.2, replaced=0.2, held_back=0.15),
    Profile("calm", lost=0, unanswered=0, late=0, twice=0, kill=0, freeze=0, cut=0, outage=0, poison=0, brake=0),
    Profile("crash", kill=0.2, supervised=0.5, tasks=(3, 8), poison=0),
    Profile("zombie", freeze=0.2, kill=0.02, workers=(2, 3), poison=0),
    Profile("network", lost=0.08, unanswered=0.12, late=0.12, twice=0.08, cut=0.1, outage=0.05),
    Profile("failover", stall=0.2, strong=0.5, jump=0.02, kill=0.04),
    Profile("clock", jump=0.2, outage=0.05, kill=0.08, fragile=0.05),
    Profile(
        "slow",
        sweep=(900, 1500),
        leases=(800, 3000, 6000),
        jump=0.15,
        leaps=(900, 1500, 2600, 20_000),
        outage=0.05,
        kill=0.1,
        freeze=0.1,
    ),
    Profile("poison", poison=0.4, kill=0.03, slots=(2, 4), tasks=(2, 4), fragile=0.05),
    Profile("keys", keyed=0.9, operators=(1, 2), short=0.3, fragile=0.3, tasks=(3, 8)),
    Profile("operators", operators=(2, 3), fragile=0.25, keyed=0.4, tasks=(3, 6)),
    Profile(
        "storm", sweepers=(2, 4), brake=1.0, kill=0.12, freeze=0.12, tasks=(4, 9), slots=(2, 5), queues=(2, 3), poison=0
    ),
    Profile("full", fill=0.15, limited=0.4, tasks=(3, 7)),
    Profile("locks", locked=0.5, lockers=(1, 3), kill=0.1, freeze=0.08, jump=0.03, stall=0.05, fill=0.05, poison=0),
    Profile(
        "joins",
        joined=0.8,
        replaced=0.6,
        follow=0.3,
        short=0.3,
        limited=0.3,
        unanswered=0.06,
        late=0.08,
        twice=0.05,
        stall=0.06,
        jump=0.02,
        fill=0.03,
        wreck=0.002,
        operators=(1, 2),
        tasks=(4, 9),
        poison=0.02,
    ),
    Profile(
        "limits",
        held_back=0.85,
        tasks=(5, 12),
        slots=(2, 5),
        queues=(1, 2),
        kill=0.12,
        freeze=0.08,
        jump=0.03,
        stall=0.05,
        fill=0.03,
        wreck=0.004,
        expiring=0.15,
        replaced=0.2,
        operators=(1, 2),
        poison=0.03,
    ),
    Profile(
        "timetables",
        keepers=(2, 4),
        harm=0.3,
        unanswered=0.06,
        late=0.08,
        twice=0.05,
        jump=0.05,
        stall=0.08,
        fill=0.04,
        tasks=(1, 3),
        poison=0.02,
        short=0.3,
    ),
    Profile(
        "wiped", wipe=0.12, keepers=(1, 2), kill=0.04, tasks=(4, 9), poison=0.02, locked=0.1, late=0.06, twice=0.05
    ),
    Profile("crowd", tasks=(10, 16), slots=(3, 6), queues=(1, 2), crowd=0.1, limited=0.3, poison=0.02),
    Profile(
        "workflows",
        flows=(1, 3),
        tasks=(0, 2),
        unanswered=0.05,
        late=0.05,
        twice=0.04,
        kill=0.08,
        stall=0.05,
        jump=0.02,
        fill=0.03,
        short=0.3,
        delayed=0.1,
        operators=(1, 2),
    ),
    Profile(
        "members",
        helpers=(1, 4),
        leases=(1600, 8000, 20_000),
        jump=0.05,
        stall=0.06,
        fill=0.04,
        kill=0.12,
        outage=0.08,
        sweep=(250, 1500),
        tasks=(1, 3),
        poison=0,
    ),
    # Outages that are longer than any helper's lease and far shorter than the workers': all nodes are alive, and none
    # may be lost.
    Profile(
        "outages",
        flap=0.5,
        downs=(200, 7000),
        ups=(2300, 3500),
        helpers=(2, 4),
        leases=(16_000, 30_000),
        kill=0,
        lost=0,
        unanswered=0,
        late=0,
        twice=0,
        freeze=0,
        cut=0,
        outage=0,
        poison=0,
        tasks=(0, 2),
        seconds=(8, 20),
    ),
    Profile(
        "readers",
        readers=(1, 3),
        tasks=(4, 9),
        keepers=(1, 2),
        stall=0.15,
        wipe=0.04,
        jump=0.03,
        fill=0.03,
        kill=0.08,
        wreck=0.004,
        held_back=0.15,
        joined=0.1,
        operators=(1, 2),
        poison=0.03,
    ),
    Profile(
        "damage",
        damage=0.9,
        flows=(0, 2),
        held_back=0.4,
        tasks=(4, 9),
        slots=(2, 4),
        queues=(1, 2),
        locked=0.1,
        kill=0.08,
        jump=0.02,
        fill=0.02,
        short=0.2,
        joined=0.1,
        operators=(0, 2),
        poison=0.02,
    ),
    Profile("flapping", flap=0.4, refused=0.04, kill=0.02, lost=0, late=0, freeze=0, cut=0, outage=0, poison=0),
)
BY_NAME = {profile.name: profile for profile in PROFILES}


def profile_of(seed: int, name: str | None = None) -> Profile:
    return BY_NAME[name] if name else PROFILES[seed % len(PROFILES)]
