"""A namespace in a layout that a release does not know: its workers and producers refuse it, and write nothing."""

from __future__ import annotations

import pytest

from relier.ledger import keys
from tests.support.fleet import Fleet
from tests.upgrade.previous import environment

PRODUCE = "from tests.upgrade.shop import plain; plain.push(1)"


def refusals(fleet: Fleet, layout: str, **env: str) -> list[str]:
    """Start a worker and a producer on a namespace in this layout. Return what they said when they gave up."""
    meta = keys.spell(fleet.ledger.prefix, "meta")
    fleet.store.command("HSET", meta, "layout", layout)
    before = fleet.store.command("HGETALL", meta)
    members = [fleet.start("worker", "tests.upgrade.shop", **env), fleet.python("-c", PRODUCE, **env)]
    assert all(member.wait() != 0 for member in members)
    assert fleet.store.command("HGETALL", meta) == before
    assert fleet.stats().counts == {}
    fleet.store.command("HSET", meta, "layout", keys.LAYOUT)
    return [member.said() for member in members]


@pytest.mark.parametrize(
    ("layout", "advice"),
    [
        ("99", "a newer release wrote it: upgrade Relier here"),
        ("0", "run the release that wrote it until its tasks have ended"),
    ],
)
def test_this_release_refuses_a_newer_layout_and_says_how_to_upgrade(fleet: Fleet, layout: str, advice: str) -> None:
    for said in refusals(fleet, layout):
        assert f"has layout {layout}, but this release uses layout {keys.LAYOUT}; nothing was written; {advice}" in said
        assert "docs/how-to/upgrade.md" in said


@pytest.mark.slow
def test_the_previous_release_refuses_a_newer_layout(fleet: Fleet) -> None:
    for said in refusals(fleet, "99", **environment()):
        assert "has layout 99, but this release uses layout 1; nothing was written" in said
