"""Values as JSON: a decoded value equals the original, including its type. Other values are refused, and the error
names the place."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import math
import random
import struct
import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from relier.codec import MAX_DEPTH, decode, encode, pack
from relier.errors import PayloadEncodingError

# A busy machine must not fail these tests.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Colour(Enum):
    RED = (255, 0, 0)
    CRIMSON = RED
    ODD = object()


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"
    TILDE = "~"


class Right(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    ONE = 1
    TWO = 2


class Shop:
    class Size(Enum):
        S = "s"


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    __slots__ = ()


class Pydantic(BaseModel):
    a: int


class Struct(msgspec.Struct):
    a: int


@dataclasses.dataclass
class Data:
    a: Any


ZONES = ("Europe/Paris", "America/St_Johns", "UTC", "Asia/Kathmandu")
OFFSETS = st.integers(-86399, 86399).map(lambda seconds: timedelta(seconds=seconds))
FIXED = st.builds(timezone, OFFSETS) | st.builds(timezone, OFFSETS, st.text(st.characters(exclude_categories=["Cs"])))
TZ = st.none() | st.just(UTC) | FIXED | st.sampled_from(ZONES).map(ZoneInfo)
ENUMS: list[Any] = [*Colour, *Level, *Word, *Right, *Bits, *Shop.Size, Right(0), Right(3), Bits(0), Bits(3), Bits(12)]
KEYS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.just("~")
    | st.floats()
    | st.binary()
    | st.dates()
    | st.uuids()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=TZ, allow_imaginary=True)
    | st.times(timezones=TZ)
    | st.sampled_from(ENUMS)
)
LEAVES = KEYS | st.decimals() | st.just(Decimal("sNaN12"))
HASHABLE = st.recursive(KEYS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.frozensets(HASHABLE, max_size=4)
    ),
    max_leaves=12,
)


def spelled(value: Any) -> Any:
    """Return a form of the value that is equal only for the same types, digits, zones, folds and order."""
    kind = type(value).__qualname__
    match value:
        case Enum():
            return kind, value.name, repr(value.value)
        case float():
            return kind, "nan" if math.isnan(value) else value.hex()
        case datetime() | time():
            zone = value.tzinfo
            return kind, value.replace(tzinfo=None).isoformat(), value.fold, type(zone).__name__, zone_of(zone)
        case dict():
            return kind, [(spelled(key), spelled(item)) for key, item in value.items()]
        case list() | tuple():
            return kind, [spelled(item) for item in value]
        case set() | frozenset():
            return kind, sorted(map(repr, map(spelled, value)))
        case _:
            return kind, repr(value)


def zone_of(zone: tzinfo | None) -> Any:
    match zone:
        case None:
            return None
        case ZoneInfo():
            return zone.key
        case _:
            return zone.utcoffset(None), zone.tzname(None)


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def nested(depth: int, wrap: Any = lambda inner: [inner]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


# --- what comes back ---------------------------------------------------------------------------------------------


@unhurried
@given(VALUES)
@example({"~": "datetime", "v": "no"})
@example({"a": {"~": {"~": 1}}, "~": None})
@example([Decimal("-0"), Decimal("1.500"), Decimal("1E+400"), Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN7")])
@example([float("nan"), float("inf"), float("-inf"), -0.0, 0.1, 5e-324, 1e22])
@example([2**63, 2**64, -(2**63) - 1, 10**4299, -(10**4000), True, 1, 1.0])
@example({1: "int", "1": "text", (1, 2): "pair", date(2026, 1, 1): "day", None: "none", 2.5: "float"})
@example(datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1))
@example(
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, timezone(timedelta(seconds=-1))),
    ]
)
@example([time(2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")), time(1, 2, 3, 4, timezone(timedelta(hours=1), "CET"))])
@example({"~": frozenset({(1, frozenset({"~"}))})})
@example('\x00 \u2028 \U0001f600 \\ " ~ \x7f')
def test_any_value_survives_a_round_trip(value: Any) -> None:
    raw = encode(value)
    assert spelled(decode(raw)) == spelled(value)
    json.loads(raw)


@unhurried
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_plain_json_is_written_as_plain_json(value: Any) -> None:
    if "~" not in repr(value):
        assert json.loads(encode(value)) == value


@pytest.mark.parametrize("value", [["a", 1, None, True], {"a": 1, "b": None}, [0.5, 1.5], "text", 5, None, {}, []])
def test_values_without_tags_are_not_copied(value: Any) -> None:
    assert pack(value) is value


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (datetime(2026, 1, 2, tzinfo=UTC), '{"~":"datetime","v":"2026-01-02T00:00:00+00:00"}'),
        (
            datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Paris")),
            '{"~":"datetime","v":"2026-01-02T00:00:00","zone":"Europe/Paris"}',
        ),
        (date(2026, 1, 2), '{"~":"date","v":"2026-01-02"}'),
        (time(1, 2, fold=1), '{"~":"time","v":"01:02:00","fold":1}'),
        (timedelta(1, 2, 3), '{"~":"timedelta","v":[1,2,3]}'),
        (UUID(int=1), '{"~":"uuid","v":"00000000-0000-0000-0000-000000000001"}'),
        (Decimal("1.50"), '{"~":"decimal","v":"1.50"}'),
        (b"\x00\xff", '{"~":"bytes","v":"AP8="}'),
        (bytearray(b"\x00\xff"), '{"~":"bytes","v":"AP8=","mutable":true}'),
        ((1, "a"), '{"~":"tuple","v":[1,"a"]}'),
        ({3, 1, 2}, '{"~":"set","v":[1,2,3]}'),
        ({1: 2}, '{"~":"dict","v":[[1,2]]}'),
        ({"~": 2}, '{"~":"dict","v":[["~",2]]}'),
        (float("-inf"), '{"~":"float","v":"-inf"}'),
        (Level.HIGH, '{"~":"enum","t":"tests.test_codec:Level","v":"HIGH"}'),
        (Shop.Size.S, '{"~":"enum","t":"tests.test_codec:Shop.Size","v":"S"}'),
        (Right.READ | Right.WRITE, '{"~":"enum","t":"tests.test_codec:Right","v":3}'),
    ],
)
def test_the_encoded_format_is_stable(value: Any, raw: str) -> None:
    """Records outlive releases: every later version must read what is written today."""
    assert encode(value).decode() == raw
    assert spelled(decode(raw.encode())) == spelled(value)


def test_a_bytearray_comes_back_as_a_bytearray() -> None:
    back = decode(encode([bytearray(b"ab"), b"ab"]))
    assert (back, [*map(type, back)]) == ([b"ab", b"ab"], [bytearray, bytes])


def test_an_alias_comes_back_as_its_member() -> None:
    assert decode(encode(Colour.CRIMSON)) is Colour.RED


def test_equal_sets_are_equal_bytes_in_every_process() -> None:
    code = "from relier.codec import encode; print(encode({'a', 'b', 'c', 1, (2, 'd')}).decode())"
    command = [sys.executable, "-c", code]
    outs = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout for seed in "123"
    }
    assert len(outs) == 1


def test_a_datetime_that_pydantic_parsed_keeps_its_offset() -> None:
    for text in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+05:45"):
        parsed = TypeAdapter(datetime).validate_json(f'"{text}"')
        back = decode(encode(parsed))
        assert (back, back.utcoffset(), type(back.tzinfo)) == (parsed, parsed.utcoffset(), timezone)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: frozenset({v}), lambda v: {1: v}]
)
def test_depth_is_allowed_up_to_the_limit_and_refused_beyond(wrap: Any) -> None:
    deep = nested(MAX_DEPTH, wrap)
    assert encode(decode(encode(deep))) == encode(deep)
    with pytest.raises(PayloadEncodingError, match=f"^the value: nested more than {MAX_DEPTH} levels deep"):
        encode(nested(MAX_DEPTH + 1, wrap))


# --- what is refused ---------------------------------------------------------------------------------------------


class Pytz(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1)


def keyless_zone() -> ZoneInfo:
    """A zone read from a file: here the shortest file that says UTC."""
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    return ZoneInfo.from_file(io.BytesIO(b"TZif" + bytes(16) + counts + bytes(6) + b"UTC\0"))


def local_enum() -> Any:
    class Local(Enum):
        A = 1

    return Local.A


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "the value: object cannot be encoded: pass text, numbers, lists, dicts and the like, or an id"),
        ({"a": [1, {"b c": [2, 3, complex(1, 2)]}]}, "the value → a[1]['b c'][2]: complex cannot be encoded"),
        ({1: object()}, "the value → [1]: object cannot be encoded"),
        ((1, (2, print)), "the value → [1][1]: builtin_function_or_method cannot be encoded"),
        ({"k": {(1, 2j): 3}}, "the value → k key (1, 2j)[1]: complex cannot be encoded"),
        ({(1, 2j)}, "the value → item (1, 2j)[1]: complex cannot be encoded"),
        (
            [{"a": Point(1, 2)}],
            "the value → [0].a: tests.test_codec.Point is a namedtuple and would lose its names: pass tuple(…)",
        ),
        (namedtuple("Pair", "a")(1), "Pair is a namedtuple"),
        (
            OrderedDict(a=1),
            "collections.OrderedDict is a subclass of dict and would come back as that: pass dict(value)",
        ),
        (defaultdict(int), "collections.defaultdict is a subclass of dict"),
        (Text("a"), "tests.test_codec.Text is a subclass of str and would come back as that: pass str(value)"),
        (
            [Pydantic(a=1)],
            "the value → [0]: tests.test_codec.Pydantic is a model, and models are rebuilt only by annotation",
        ),
        (Struct(1), "tests.test_codec.Struct is a model"),
        (Data(1), "annotate the parameter or the return value with it, or pass a dict of its fields"),
        (Data, "type cannot be encoded"),
        (
            ["ok", "\ud800"],
            "the value → [1]: text with a lone surrogate is not valid Unicode: clean it, or pass it as bytes",
        ),
        ({"\udfff": 1}, r"the value → key '\udfff': text with a lone surrogate"),
        ({"a": {"\udfff"}}, r"the value → a item '\udfff': text with a lone surrogate"),
        ([10**5000], "the value → [0]: int cannot be encoded: Exceeds the limit"),
        ({10**5000: 1}, "the value → key <int>: int cannot be encoded: Exceeds the limit"),
        (
            datetime(2026, 1, 1, tzinfo=Pytz()),  # type: ignore[abstract]
            "its time zone is a tests.test_codec.Pytz: use zoneinfo.ZoneInfo or datetime.timezone",
        ),
        (time(1, tzinfo=timezone(timedelta(microseconds=-5))), "is not in whole seconds"),
        (datetime(2026, 1, 1, tzinfo=keyless_zone()), "its ZoneInfo was made from a file and has no key"),
        (cycle(), f"the value: nested more than {MAX_DEPTH} levels deep, or contains itself"),
        (local_enum(), "cannot be found by its name: define it at the top level of a module"),
        (Path("/tmp"), "cannot be encoded"),
        (memoryview(b""), "memoryview cannot be encoded"),
        (iter([]), "list_iterator cannot be encoded"),
    ],
)
def test_values_that_cannot_be_encoded_are_refused_with_place_and_advice(value: Any, message: str) -> None:
    with pytest.raises(PayloadEncodingError) as refused:
        encode(value)
    assert message in str(refused.value)
    assert str(refused.value).endswith("; nothing was written")


def of_library(name: str, base: type = object) -> type:
    """Return a class with the full name of a library's class, so that the library need not be installed."""
    module, _, short = name.rpartition(".")
    return type(short, (base,), {"__module__": module})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            type("int64", (of_library("numpy.generic"),), {"__module__": "numpy"}),
            "the value → [0]: numpy.int64 is a numpy scalar and would come back as a different type: pass value.item()",
        ),
        (
            type("float64", (of_library("numpy.generic"), float), {"__module__": "numpy"}),
            "numpy.float64 is a numpy scalar and would come back as a different type: pass value.item()",
        ),
        (of_library("numpy.ndarray"), "numpy.ndarray cannot be encoded: pass value.tolist()"),
        (of_library("pandas._libs.tslibs.timestamps.Timestamp", datetime), "pass plain values, such as value.to_pydat"),
        (
            of_library("shop.models.Order", of_library("django.db.models.base.Model")),
            "pass value.pk, and load",
        ),
        (of_library("django.db.models.query.QuerySet"), "pass list(value.values_list('pk', flat=True))"),
    ],
)
def test_a_value_of_another_library_is_refused_with_the_line_that_fixes_it(kind: type, message: str) -> None:
    value = kind(2026, 1, 1) if issubclass(kind, datetime) else kind()
    with pytest.raises(PayloadEncodingError, match=r"nothing was written$") as refused:
        encode([value])
    assert message in str(refused.value)


def test_a_sqlalchemy_object_is_refused_with_the_line_that_fixes_it() -> None:
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(PayloadEncodingError, match="Order belongs to a SQLAlchemy session: pass its primary key, and "):
        encode([Order(id=1)])


def test_a_refusal_names_the_value() -> None:
    with pytest.raises(PayloadEncodingError, match=r"^argument 'order' → items\[3\]: object cannot be encoded"):
        encode({"items": [0, 1, 2, object()]}, "argument 'order'")


def test_a_deep_stack_raises_no_recursion_error() -> None:
    def descend(depth: int) -> bytes:
        return descend(depth - 1) if depth else encode(nested(150, lambda inner: {1: inner}))

    limit = sys.getrecursionlimit()
    with pytest.raises((PayloadEncodingError, RecursionError)) as refused:
        descend(limit)
    assert isinstance(refused.value, RecursionError), "the caller's own"
    with pytest.raises(PayloadEncodingError, match="nested more than"):
        descend(limit - len(inspect.stack()) - 100)


# --- what is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            b"",
            "the value cannot be read: Input data was truncated; its bytes were changed, or another program wrote them",
        ),
        (b"{", "truncated"),
        (b"[1] 2", "trailing characters"),
        (b'"\xff"', "cannot be read"),
        (b"1e999", "out of range"),
        (b"[" * 100_000, "cannot be read: maximum recursion depth exceeded"),
        (b'{"~":"lambda","v":1}', "the tag 'lambda' is unknown; a newer Relier may have written it"),
        (b'{"~":["datetime"],"v":1}', "is unknown"),
        (b'{"~":"datetime"}', "cannot be decoded (KeyError: 'v')"),
        (b'[{"a":{"~":"datetime","v":"yesterday"}}]', "cannot be decoded (ValueError: Invalid isoformat string"),
        (b'{"~":"datetime","v":5}', "cannot be decoded (TypeError"),
        (b'{"~":"datetime","v":"2026-01-01","name":"CET"}', "cannot be decoded (TypeError"),
        (
            b'{"~":"datetime","v":"2026-01-01","zone":"Mars/Base"}',
            "the time zone 'Mars/Base' is unknown on this machine",
        ),
        (b'{"~":"datetime","v":"2026-01-01","zone":"Europe"}', "the time zone 'Europe' is unknown on this machine"),
        (b'{"~":"datetime","v":"2026-01-01","zone":"../../etc/passwd"}', "cannot be decoded (ValueError"),
        (b'{"~":"timedelta","v":[1e300,1,1]}', "cannot be decoded (OverflowError"),
        (b'{"~":"decimal","v":"one"}', "cannot be decoded (InvalidOperation"),
        (b'{"~":"uuid","v":5}', "cannot be decoded (AttributeError"),
        (b'{"~":"bytes","v":"*"}', "cannot be decoded (Error"),
        (b'{"~":"set","v":[[]]}', "cannot be decoded (TypeError: unhashable type"),
        (b'{"~":"tuple","v":"ab"}', "its items are not a list"),
        (b'{"~":"dict","v":[[1,2,3]]}', "cannot be decoded (ValueError"),
        (
            b'{"~":"enum","t":"tests.test_codec:Level","v":"MIDDLE"}',
            "the enum 'tests.test_codec:Level' has no member 'MIDDLE'",
        ),
        (b'{"~":"enum","t":"tests.test_codec:Level","v":1}', "has no member 1"),
        (b'{"~":"enum","t":"tests.test_codec:Right","v":64}', "cannot be decoded (ValueError"),
        (
            b'{"~":"enum","t":"nowhere.models:Level","v":"LOW"}',
            "the enum 'nowhere.models:Level' is not imported; import",
        ),
        (b'{"~":"enum","t":"tests.test_codec:Data","v":"a"}', "is not imported"),
        (b'{"~":"enum","t":"tests.test_codec:dataclasses.sys","v":"a"}', "is not imported"),
        (b'{"~":"enum","t":"os:system","v":"true"}', "is not imported"),
        (b'{"~":"enum","t":["os"],"v":"true"}', "is not imported"),
    ],
)
def test_unreadable_bytes_are_reported(raw: bytes, message: str) -> None:
    with pytest.raises(PayloadEncodingError) as refused:
        decode(raw)
    assert str(refused.value).startswith("the value cannot be read: ")
    assert message in str(refused.value)


def test_reading_imports_nothing() -> None:
    code = """
import sys
from relier.codec import decode
from relier.errors import PayloadEncodingError
import concurrent.futures  # its __getattr__ imports on demand
before = set(sys.modules)
for place in ("antigravity:Fly", "concurrent.futures:ThreadPoolExecutor", "concurrent.futures.thread:Nothing"):
    try:
        decode(b'{"~":"enum","t":"%s","v":"A"}' % place.encode())
    except PayloadEncodingError:
        continue
    raise SystemExit("it was read")
raise SystemExit(str(set(sys.modules) - before) if set(sys.modules) - before else 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@unhurried
@given(st.binary() | st.binary(max_size=20).map(lambda raw: b'{"~":' + raw))
def test_reading_random_bytes_raises_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(PayloadEncodingError):
        decode(raw)


@unhurried
@given(VALUES, st.randoms(use_true_random=False))
def test_reading_flipped_bits_raises_nothing_else(value: Any, dice: random.Random) -> None:
    raw = bytearray(encode([value, uuid4(), datetime(2026, 1, 1, tzinfo=UTC), Level.LOW]))
    for _ in range(dice.randint(1, 3)):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    with contextlib.suppress(PayloadEncodingError):
        decode(bytes(raw))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["~", "v", "t", "zone", "name"]), inner)
    ),
    max_leaves=8,
)
TAGS = ["datetime", "date", "time", "timedelta", "uuid", "decimal", "float", "bytes", "tuple", "set", "dict", "enum"]


@unhurried
@given(st.sampled_from(TAGS), JSON, JSON, JSON)
def test_reading_nonsense_in_tags_raises_nothing_else(tag: str, value: Any, kind: Any, zone: Any) -> None:
    with contextlib.suppress(PayloadEncodingError):
        decode(json.dumps({"~": tag, "v": value, "t": kind, "zone": zone}).encode())
