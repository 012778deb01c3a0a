"""How a chord's join handles its parts, with a result backend that counts parts, is down, or has lost its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import celery
import pytest
from celery import chain, chord, group, states
from celery.exceptions import ChordError, Reject
from celery.result import GroupResult

from relier import codec, use_client
from relier.celery import install
from relier.celery.adoption import adoption_of
from relier.celery.canvas.join import run_join
from relier.celery.canvas.large_values import STORED_VALUES, fetch_stored_values
from relier.celery.canvas.nesting import NESTED
from relier.celery.canvas.parts import FAILED
from relier.celery.sending.collect import Collector, collecting
from relier.celery.sending.control import chord_of, message_in
from relier.celery.working.report import TracerReport
from relier.settings import Settings
from tests.support.servers import Server

Make = Callable[[str], Any]
AWAY = "redis://127.0.0.1:1"


def pack(*parts: Any) -> None:
    """Nobody runs it."""


@pytest.fixture
def make(settings: Settings) -> Iterator[Make]:
    """Return an adopted app with this result backend."""
    apps = []

    def app_of(backend: str) -> Any:
        app = celery.Celery("shop", broker=AWAY, backend=backend, set_as_current=False)
        app.task(name="shop.pack")(pack)
        apps.append(install(app, adopt=True, settings=settings))
        return app

    yield app_of
    use_client(None)
    for app in apps:
        adoption_of(app).client.close()
        app.close()


def frozen(app: Any, *, nested: bool) -> tuple[Any, Any]:
    """Return the header's result and the body of a chord that was sent."""
    one = app.tasks["shop.pack"].s
    members = [one(1), chain(one(2), group(one(3), one(4)))] if nested else [one(1), one(2)]
    sent = chord(members, one(), app=app).apply_async()
    return sent.parent, body_of(app, sent.parent)


def body_of(app: Any, header: Any) -> dict[str, Any]:
    """Return the body as it is in a member's message."""
    client = adoption_of(app).client
    message = message_in(client.run(client.ledger.get(header.results[0].id)), client.keyring)
    body: dict[str, Any] = chord_of(message, ["json"])
    return body


def joined(app: Any, group_id: str, body: Any, parts: dict[str, bytes]) -> tuple[TracerReport, Collector]:
    collector = Collector(f"{group_id}.chord", "celery", parts, settling=True)
    with collecting(collector):
        return run_join(app, collector, {"id": f"{group_id}.chord"}, body), collector


@pytest.mark.parametrize("nested", [True, False])
def test_a_backend_that_counts_parts_leaves_counting_to_the_ledger(make: Make, nested: bool) -> None:
    app = make("cache+memory://")
    _, body = frozen(app, nested=nested)
    assert (body["chord_size"], body.get(NESTED, False)) == ((3, True) if nested else (2, False))


def parts_of(header: Any) -> dict[str, bytes]:
    first, last = header.results
    found = {f"000000000.{first.id}": b"1"}
    return found | {f"{n:09d}.{leaf.id}": b"%d" % (n + 3) for n, leaf in enumerate(last.results)}


def test_every_value_is_at_the_position_of_its_member(make: Make) -> None:
    app = make("cache+memory://")
    header, body = frozen(app, nested=True)
    report, collector = joined(app, header.id, body, parts_of(header))
    assert report.state == states.SUCCESS
    (started,) = collector.follow_ups
    assert b"[1, [3, 4]]" in started.payload


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="there is no such setting")
def test_the_result_tree_is_kept_as_long_as_in_plain_celery(make: Make, broker: Server) -> None:
    app = make(f"{broker.tcp_url}/0")
    app.conf.update(result_expires=60, result_chord_expires=600)
    header, _ = frozen(app, nested=True)
    assert 60 < app.backend.client.ttl(app.backend.get_key_for_group(header.id)) <= 600
    assert GroupResult.restore(header.id, app=app) == header


def test_a_chord_fails_if_its_result_tree_is_lost(make: Make) -> None:
    app = make("cache+memory://")
    header, body = frozen(app, nested=True)
    header.delete()
    report, collector = joined(app, header.id, body, parts_of(header))
    assert (report.state, collector.follow_ups) == (states.FAILURE, [])
    assert report.failure is not None
    assert "the result backend has lost their structure" in report.failure.message
    assert app.AsyncResult(body["options"]["task_id"]).state == states.FAILURE


def test_a_backend_that_is_away_makes_the_chord_wait(make: Make) -> None:
    header, body = frozen(make("cache+memory://"), nested=True)
    report, collector = joined(make(AWAY), header.id, body, parts_of(header))
    assert (report.state, report.requeue, collector.follow_ups) == (states.RETRY, True, [])


def test_values_too_large_for_a_payload_are_read_from_the_backend(make: Make) -> None:
    app = make("cache+memory://")
    header, body = frozen(app, nested=False)
    texts = ["a" * 700_000, "b" * 700_000]
    parts = {f"{n:09d}.{each.id}": codec.encode(texts[n]) for n, each in enumerate(header.results)}
    report, collector = joined(app, header.id, body, parts)
    (started,) = collector.follow_ups
    assert (report.state, len(started.payload) < 10_000) == (states.SUCCESS, True)
    place = {STORED_VALUES: f"{header.id}.parts"}
    assert fetch_stored_values(app, Collector("body", "celery"), {"id": "body", "args": [place, 7]}) == [texts, 7]
    app.backend.forget(place[STORED_VALUES])
    with pytest.raises(ChordError, match="has lost them"):
        fetch_stored_values(app, Collector("body", "celery"), {"id": "body", "args": [place, 7]})
    assert app.AsyncResult("body").state == states.FAILURE


def test_a_body_waits_while_the_backend_with_its_values_is_away(make: Make) -> None:
    with pytest.raises(Reject) as caught:
        fetch_stored_values(
            make(AWAY), Collector("body", "celery"), {"id": "body", "args": [{STORED_VALUES: "g.parts"}]}
        )
    assert caught.value.requeue


def test_a_failure_that_an_earlier_release_has_written_is_read(make: Make) -> None:
    app = make("cache+memory://")
    header, body = frozen(app, nested=False)
    parts = {"000000000.a": FAILED + codec.encode(["a", "ValueError('old')"]), "000000001.b": b"1"}
    report, _ = joined(app, header.id, body, parts)
    assert report.failure is not None
    assert report.failure.message == "Dependency a raised ValueError('old')"
