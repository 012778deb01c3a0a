"""Values that pass through a real worker come back equal and of the same type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from relier import Client, PayloadEncodingError, PayloadIntegrityError, PayloadTooLargeError, use_client
from relier.envelope import seal
from relier.task import RlTask
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.conformance.tasks import Colour, Customer, Line, Order, Point

VALUES: dict[str, Any] = {
    "none": None,
    "bool": [True, False],
    "int": [0, -1, 2**63, -(2**70)],
    "float": [0.1, -0.0, 1e300, float("inf")],
    "text": ["", "grüße", "\N{SNOWMAN}", "\x00\n"],
    "bytes": [b"", b"\x00\xff"],
    "aware datetime": datetime(2026, 11, 15, 6, 30, 0, 123456, UTC),
    "datetime of a zone": datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1),
    "datetime with an offset": datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "naive datetime": datetime(2026, 11, 15, 6, 30),  # noqa: DTZ001
    "date": date(2026, 11, 15),
    "time": [time(6, 30, 1, 5), time(6, 30, tzinfo=UTC)],
    "timedelta": [timedelta(days=-1, microseconds=5), timedelta()],
    "uuid": UUID("0af76519-16cd-43dd-8448-eb211c80319c"),
    "decimal": [Decimal("1.10"), Decimal("-0"), Decimal("1E+400")],
    "set": [set(), {1, 2}, {("a", 1), frozenset({2})}],
    "frozenset": frozenset({"a", b"b"}),
    "tuple": ((), (1, (2, "three")), ([1], {"a": (1,)})),
    "enum": [Colour.RED, Colour.BLUE],
    "dict": {"a": {"b": [1, {"c": None}]}, "": 0},
    "dict with int keys": {2: "two", 10: "ten", -1: {3: 4}},
    "dict with all kinds of keys": {(1, 2): "tuple", date(2026, 1, 1): "date", None: "none", True: "bool"},
    "dict that looks like a tag": {"$": "set", "v": [1]},
}


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, and of the same types at every level."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one], [*other]) and same([*one.values()], [*other.values()])
    if isinstance(one, datetime | time):
        return repr(one) == repr(other)
    return bool(one == other) and repr(one) == repr(other) if isinstance(one, float | Decimal) else bool(one == other)


@pytest.mark.core
@pytest.mark.parametrize("task", [tasks.echo, tasks.echo_alone], ids=["shared process", "isolated"])
def test_every_type_survives_a_round_trip(shared: Stage, task: RlTask[[Any], Any]) -> None:
    receipts = task.push_many([(value,) for value in VALUES.values()])
    results = [receipt.result(PATIENCE_S) for receipt in receipts]
    changed = {
        name: (sent, got) for (name, sent), got in zip(VALUES.items(), results, strict=True) if not same(sent, got)
    }
    assert changed == {}


def test_types_also_travel_as_keyword_arguments(shared: Stage) -> None:
    receipts = tasks.echo.push_many([{"value": value} for value in VALUES.values()])
    assert all(same(sent, one.result(PATIENCE_S)) for sent, one in zip(VALUES.values(), receipts, strict=True))


def test_dataclasses_travel_by_annotation(shared: Stage) -> None:
    lines = [Line("tea", Decimal("4.50"), {"hot"}), Line("cup", Decimal("9"))]
    order = Order(UUID(int=7), date(2026, 11, 15), lines[:1], Colour.BLUE)
    result = tasks.order_of.push(order, more=lines[1]).result(PATIENCE_S)
    assert result == Order(UUID(int=7), date(2026, 11, 15), lines, Colour.BLUE)


def test_structs_travel_by_annotation(shared: Stage) -> None:
    at = datetime(2026, 11, 15, tzinfo=UTC)
    assert tasks.point_of.push(Point(0.5, at)).result(PATIENCE_S) == Point(1.5, at)


def test_pydantic_models_travel_by_annotation(shared: Stage) -> None:
    customer = Customer(name="ada", since=datetime(2026, 11, 15, tzinfo=UTC), points={10: Decimal("1.5")})
    result = tasks.customer_of.push(customer, Colour.BLUE).result(PATIENCE_S)
    assert result == customer.model_copy(update={"name": "ADA"})


def test_plain_data_is_welcome_in_the_place_of_a_model(shared: Stage) -> None:
    push: Any = tasks.point_of
    at = datetime(2026, 11, 15, tzinfo=UTC)
    assert push.push({"x": 1.0, "at": at}).result(PATIENCE_S) == Point(2.0, at)


def test_a_receipt_made_from_an_id_alone_gives_a_models_fields(shared: Stage) -> None:
    from relier import SyncTaskReceipt

    at = datetime(2026, 11, 15, tzinfo=UTC)
    receipt = tasks.point_of.push(Point(0.5, at))
    receipt.result(PATIENCE_S)
    assert tasks.point_of.sync_receipt(receipt.id).result() == Point(1.5, at)
    assert SyncTaskReceipt[Any](receipt.id).result() == {"x": 1.5, "at": at}


@pytest.mark.parametrize("task", [tasks.unencodable, tasks.unencodable_alone], ids=["shared process", "isolated"])
def test_a_result_that_cannot_be_encoded_becomes_a_dead_letter(shared: Stage, task: RlTask[[], Any]) -> None:
    receipt = task.push()
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "PayloadEncodingError"
    with pytest.raises(PayloadEncodingError, match="the result"):
        receipt.result()


def test_a_result_over_the_limit_becomes_a_dead_letter(shared: Stage) -> None:
    receipt = tasks.large.push(shared.settings.max_payload_bytes)
    assert shared.wait_for_death(receipt).record.reason == "PayloadTooLargeError"
    with pytest.raises(PayloadTooLargeError, match="the result"):
        receipt.result()


def test_an_argument_over_the_limit_is_refused_and_nothing_is_written(stage: Stage) -> None:
    with pytest.raises(PayloadTooLargeError):
        tasks.echo.push("x" * stage.settings.max_payload_bytes)
    assert stage.count("submitted") == 0


# --- what was changed on the way -----------------------------------------------------------------------------------


def rewrite(stage: Stage, task_id: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a stored payload directly in the store. Return the new one."""
    key = stage.key("task", task_id)
    record = stage.command("GET", key)
    *lines, payload = record.split(b"\n", 4)
    stage.command("SET", key, b"\n".join([*lines, change(payload)]))
    return change(payload)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a changed argument": lambda raw: raw.replace(b"honest", b"forged"),
    "an argument cut off": lambda raw: raw[:-8],
    "no envelope at all": lambda raw: b"\x80\x04pickle",
    "an empty payload": lambda raw: b"",
    "another checksum": lambda raw: raw.replace(b"sha256:", b"sha256:0"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_payload_that_was_tampered_with_never_runs_and_its_bytes_are_kept(shared: Stage, what: str) -> None:
    shared.hold("held")
    receipt = tasks.needs.with_options(queue="held").push(shared.place, "honest")
    found = rewrite(shared, receipt.id, CHANGES[what])
    shared.let_go("held")
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "PayloadIntegrityError"
    assert dead.payload == found
    assert shared.notes("runs") == []
    with pytest.raises(PayloadIntegrityError):
        receipt.result()


def test_arguments_the_task_does_not_take_are_a_dead_letter(shared: Stage) -> None:
    """The envelope is valid, but other code wrote it."""
    shared.hold("held")
    receipt = tasks.point_of.with_options(queue="held").push(Point(1, datetime.now(UTC)))
    rewrite(shared, receipt.id, lambda _: seal(b'[["no point"],{}]', schema_version=1, pushed_ms=1))
    shared.let_go("held")
    assert shared.wait_for_death(receipt).record.reason == "PayloadEncodingError"


def test_settings_of_a_client_hold_for_its_pushes(stage: Stage) -> None:
    small = Client(stage.settings.replace(max_payload_bytes=300))
    use_client(small)
    with pytest.raises(PayloadTooLargeError, match="RELIER_MAX_PAYLOAD_BYTES"):
        tasks.echo.push("x" * 300)
    small.close()
