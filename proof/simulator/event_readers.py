"""Readers of events: they follow topics, and pause for a while now and then."""

from __future__ import annotations

from proof.simulator.world import MS, SECOND, Steps, World, ask
from relier.ledger.events.records import TOPICS, EventPage


def event_reader(world: World) -> Steps:
    """Keep a position per topic. If a reply is lost, ask from the same position again."""
    rng, ledger = world.rng, world.ledger
    positions = {topic: rng.choice(("now", "start")) for topic in TOPICS}
    while not world.healed:
        yield rng.randint(1, 3 * SECOND if rng.random() < 0.2 else 200 * MS)
        topic = rng.choice(TOPICS)
        again = rng.random() < 0.2
        call = ledger.events(topic, positions[topic], most=rng.choice((1, 2, 50)), again=again)
        page = yield from ask(call, rng.randint(1, 3))
        if isinstance(page, EventPage):
            positions[topic] = page.entries[-1].id if page.entries else page.position
        if rng.random() < 0.1:
            yield from ask(ledger.watch(), 1)
