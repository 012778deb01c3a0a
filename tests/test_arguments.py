"""The arguments and the result of a call, encoded by the function's signature and annotations."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, NewType, Optional, TypedDict, TypeVar
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.dataclasses import dataclass as pydantic_dataclass

from relier.arguments import Arguments, classes_in
from relier.errors import PayloadEncodingError

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]

# The class is known by its name and module: arguments.py stands below the package that holds it.
TaskContext = type("TaskContext", (), {"__module__": "relier.run.context"})
OtherContext = type("TaskContext", (), {"__module__": "shop.context"})
# A busy machine must not fail these tests.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Shade(StrEnum):
    DARK = "dark"


class Level(IntEnum):
    LOW = 1


class Size(Enum):
    SMALL = auto()
    LARGE = auto()


class Odd(Enum):
    PAIR = (1, 2)


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Item:
    sku: str
    price: float = 0.0
    colour: Colour | None = None
    extra: Any = None


@dataclasses.dataclass
class Shirt:
    size: Size
    others: dict[Size, set[Size]] = dataclasses.field(default_factory=dict)
    extra: Any = None


class Door(msgspec.Struct):
    right: Right
    size: Size | None = None


@dataclasses.dataclass
class Special(Item):
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Counted:
    kind: ClassVar[str] = "counted"
    a: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = self.a * 2


@dataclasses.dataclass
class Picky:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise LookupError("a is negative")


@dataclasses.dataclass
class Rights:
    right: Right
    odd: Odd | None = None


@dataclasses.dataclass
class Place:
    path: Path


class Order(msgspec.Struct):
    id: UUID
    items: list[Item]
    at: datetime | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag=True, rename="camel"):
    full_name: str


class Dog(msgspec.Struct, tag=True, rename="camel"):
    full_name: str


class Row(msgspec.Struct, array_like=True, tag="row"):
    a: int
    b: set[int]


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    inside: T


class User(pydantic.BaseModel):
    name: str
    born: datetime | None = None
    homepage: pydantic.HttpUrl | None = None
    tags: set[str] = set()
    nick: str | None = None


class Renamed(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")
    when: Decimal = pydantic.Field(default=Decimal(1), validation_alias="at")


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, strict=True, extra="allow")
    user: User | None = None
    uid: UUID = pydantic.Field(default_factory=uuid4, alias="u")


class Names(pydantic.RootModel[list[str]]):
    pass


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr


class Wallet(msgspec.Struct):
    owner: User


@pydantic_dataclass
class Checked:
    a: int


@dataclasses.dataclass
class Team:
    lead: User
    colour: Colour = Colour.RED


class Shelf(TypedDict):
    items: list[Item]


ItemId = NewType("ItemId", int)
NewItem = NewType("NewItem", Item)


def through(fn: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the worker gets: encoded by one process's version of the function, decoded by another's."""
    return Arguments.of(fn).decode(Arguments.of(fn).encode(args, kwargs))


def taking(hint: Any) -> Any:
    def task(order: Any) -> Any: ...

    task.__annotations__ = {"order": hint, "return": hint}
    return task


# --- the body ----------------------------------------------------------------------------------------------------


def test_the_body_is_plain_json() -> None:
    def charge(customer: str, cents: int, *, note: str = "") -> None: ...

    assert Arguments.of(charge).encode(("cus_1", 5000), {}) == b'[["cus_1",5000],{}]'
    assert Arguments.of(charge).encode(("cus_1",), {"cents": 1, "note": "x"}) == b'[["cus_1"],{"cents":1,"note":"x"}]'
    assert Arguments.of(charge).decode(b'[["cus_1"],{"cents":1}]') == (("cus_1",), {"cents": 1})


def test_a_models_body_is_a_plain_object() -> None:
    body = Arguments.of(taking(Item)).encode((Item("a", 1.5, Colour.RED),), {})
    colour = {"~": "enum", "t": "tests.test_arguments:Colour", "v": "RED"}
    assert json.loads(body) == [[{"sku": "a", "price": 1.5, "colour": colour, "extra": None}], {}]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.datetimes() | st.uuids() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


@unhurried
@given(st.lists(VALUES).map(tuple), st.dictionaries(st.text() | st.just("~"), VALUES))
def test_any_call_survives_a_round_trip(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def anything(*args: Any, **kwargs: Any) -> None: ...

    def typed(*args: Any, item: Item | None = None, **kwargs: Any) -> None: ...

    assert repr(through(anything, *args, **kwargs)) == repr((args, kwargs))
    if "item" not in kwargs:
        assert repr(through(typed, *args, **kwargs)) == repr((args, kwargs))


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"[[],{},1]", b"[[],[]]", b'["ab",{}]', b"5", b'[[],{"~":"dict","v":[[1,2]]}]']
)
def test_a_body_that_is_no_call_is_refused(body: bytes) -> None:
    with pytest.raises(PayloadEncodingError, match=r"the payload is not a call,"):
        Arguments.of(taking(Any)).decode(body)


def test_a_body_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(PayloadEncodingError, match=r"^the payload cannot be read: "):
        Arguments.of(taking(Any)).decode(b"[[")


# --- the signature -----------------------------------------------------------------------------------------------


def several(a: int, /, b: int, c: int = 0, *, d: int, e: int = 0) -> None: ...
def optional(a: int = 1, b: int = 2) -> None: ...
def one(a: int) -> None: ...
def none() -> None: ...
def many(a: int, *rest: int, **more: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (several, (1, 2), {"d": 1}),
        (several, (1,), {"b": 2, "c": 3, "d": 1, "e": 5}),
        (optional, (), {}),
        (optional, (1, 2), {}),
        (optional, (), {"b": 1}),
        (none, (), {}),
        (many, (1, 2, 3), {}),
        (many, (1,), {"x": 1, "rest": 2, "more": 3}),
    ],
)
def test_a_call_that_fits_passes(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    fn(*args, **kwargs)
    Arguments.of(fn).check(args, kwargs)
    assert through(fn, *args, **kwargs) == (args, kwargs)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "message"),
    [
        (one, (), {}, "one() missing a required argument: 'a'"),
        (one, (1, 2), {}, "one() takes 1 positional argument but 2 were given"),
        (none, (1,), {}, "none() takes 0 positional arguments but 1 was given"),
        (optional, (1, 2, 3), {}, "optional() takes from 0 to 2 positional arguments but 3 were given"),
        (one, (1,), {"b": 2}, "one() got an unexpected keyword argument 'b'"),
        (one, (1,), {"a": 2}, "one() got multiple values for argument 'a'"),
        (several, (1, 2), {}, "several() missing a required"),
        (several, (1, 2, 3), {"e": 1}, "several() missing a required"),
        (several, (), {"a": 1, "b": 2, "d": 3}, "several() "),
        (many, (), {}, "many() missing a required argument: 'a'"),
    ],
)
def test_a_call_that_does_not_fit_raises_the_error_python_would(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError):
        fn(*args, **kwargs)
    with pytest.raises(TypeError) as refused:
        Arguments.of(fn).encode(args, kwargs)
    assert str(refused.value).startswith(message)
    assert not isinstance(refused.value, PayloadEncodingError)


CALLS = st.tuples(
    st.integers(0, 5).map(lambda n: (1,) * n), st.dictionaries(st.sampled_from("abcdexyz"), st.integers(), max_size=5)
)


@unhurried
@given(st.sampled_from([several, optional, one, none, many]), CALLS)
def test_check_agrees_with_python(fn: Any, call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    def outcome(do: Any) -> bool:
        try:
            do()
        except TypeError:
            return False
        return True

    args, kwargs = call
    assert outcome(lambda: Arguments.of(fn).check(args, kwargs)) == outcome(lambda: fn(*args, **kwargs))


# --- the context -------------------------------------------------------------------------------------------------


def first(ctx: TaskContext, a: int, b: int = 2) -> Any:  # type: ignore[valid-type]
    return ctx, a, b


def middle(a: int, ctx: TaskContext | None, b: int = 2) -> Any:  # type: ignore[valid-type]
    return ctx, a, b


def last(a: int, b: int = 2, ctx: Optional[TaskContext] = None) -> Any:  # type: ignore[valid-type]  # noqa: UP045
    return ctx, a, b


def keyword(a: int, b: int = 2, *, ctx: Annotated[TaskContext, "ours"]) -> Any:  # type: ignore[valid-type]
    return ctx, a, b


def positional(a: int = 1, b: int = 2, ctx: TaskContext = None, /) -> Any:  # type: ignore[valid-type]
    return ctx, a, b


async def unresolved(a: int, ctx: hidden.TaskContext | None, b: int = 2) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return ctx, a, b


@pytest.mark.parametrize("fn", [first, middle, last, keyword, positional])
def test_the_context_is_put_where_the_signature_wants_it(fn: Any) -> None:
    arguments = Arguments.of(fn)
    assert arguments.context_parameter == "ctx"
    for args, kwargs in (((1,), {}), ((1, 3), {}), ((1,), {"b": 3}), ((), {"a": 1, "b": 3})):
        if fn is positional and kwargs:
            continue
        got = arguments.decode(arguments.encode(args, kwargs))
        assert got == (args, kwargs)
        placed, named = arguments.with_context(*got, "the context")
        assert fn(*placed, **named) == ("the context", 1, 3 if len(args) + len(kwargs) > 1 else 2)


def test_the_context_goes_before_variable_arguments() -> None:
    def fn(a: int, ctx: TaskContext, *rest: int, **more: int) -> Any:  # type: ignore[valid-type]
        return a, ctx, rest, more

    arguments = Arguments.of(fn)
    args, kwargs = arguments.with_context((1, 2, 3), {"x": 4}, "ctx")
    assert fn(*args, **kwargs) == (1, "ctx", (2, 3), {"x": 4})
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'ctx'"):
        arguments.check((1,), {"ctx": 5})


def test_callers_do_not_pass_the_context() -> None:
    for fn in (first, middle, last, keyword):
        with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'ctx'"):
            Arguments.of(fn).check((1,), {"ctx": None})
        with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
            Arguments.of(fn).check((1, 2, 3), {})


@pytest.mark.parametrize(
    "hint", ["TaskContext", "relier.TaskContext", "TaskContext | None", "None | TaskContext", "Optional[TaskContext]"]
)
def test_a_context_only_type_checkers_import_is_known_by_its_name(hint: str) -> None:
    def fn(ctx, a): ...

    fn = type(fn)(fn.__code__, {})  # a module that does not hold the name
    fn.__annotations__ = {"ctx": hint, "a": "int"}
    assert Arguments.of(fn).context_parameter == "ctx"
    assert Arguments.of(unresolved).context_parameter == "ctx"


@pytest.mark.parametrize(
    "hint",
    [OtherContext, "NoTaskContext", "list[TaskContext]", list[TaskContext], "OtherContext", int],  # type: ignore[valid-type]
)
def test_only_the_taskcontext_annotation_marks_the_context(hint: Any) -> None:
    assert Arguments.of(taking(hint)).context_parameter is None
    assert Arguments.of(one).with_context((1,), {}, "ctx") == ((1,), {})


def test_a_context_inside_a_wrapped_function_is_found() -> None:
    @functools.wraps(middle)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return middle(*args, **kwargs)

    assert Arguments.of(wrapper).context_parameter == "ctx"


# --- models ------------------------------------------------------------------------------------------------------

PARIS = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Item, Item("a", 1.5, Colour.BLUE, {"any": (1, PARIS, {2})})),
        (Item, Item("a", 5)),
        (Item, Item("a", float("nan"), extra=Decimal("sNaN"))),
        (Item | None, Item("a")),
        (Item | None, None),
        (list[Item], [Item("a"), Item("b")]),
        (list[Item], []),
        (tuple[Item, ...], (Item("a"),)),
        (tuple[int, Item], (1, Item("a"))),
        (dict[str, Item], {"a": Item("a")}),
        (dict[int, list[Item | None]], {1: [Item("a"), None]}),
        (dict[tuple[int, str], Item], {(1, "~"): Item("a")}),
        (set[Point], {Point(1, 2), Point(3, 4)}),
        (Annotated[Item, "with a note"], Item("a")),
        (NewItem, Item("a")),
        (Sequence[Item], [Item("a")]),
        (Shelf, {"items": [Item("a")]}),
        (Item | int, 5),
        (Item | Point, Point(1, 2)),
        (Item | Point, Item("a")),
        (Tree, Tree("a", [Tree("b"), Tree("c", [Tree("d")])])),
        (Counted, Counted(2)),
        (Rights, Rights(Right.READ | Right.WRITE, Odd.PAIR)),
        (Place, Place(Path("/tmp/x"))),
        (Order, Order(UUID(int=1), [Item("a", colour=Colour.RED)], PARIS)),
        (Order, Order(UUID(int=1), [], note="x")),
        (Cat | Dog, Dog("Rex")),
        (list[Cat | Dog], [Cat("Tom"), Dog("Rex")]),
        (Row, Row(1, {2})),
        (Box[Item], Box(Item("a"))),
        (User, User(name="a", born=PARIS, homepage="https://a.b/", tags={"x"})),
        (User, User.model_validate_json('{"name":"a","born":"2026-01-01T00:00:00+01:00"}')),
        (list[User] | None, [User(name="a")]),
        (Renamed, Renamed(userId=1, at=Decimal("1.50"))),
        (ByName, ByName(user=User(name="a"), other=(1, 2))),
        (Names, Names(["a", "b"])),
        (Checked, Checked(1)),
        (Team, Team(User(name="a"), Colour.BLUE)),
        (Wallet, Wallet(User(name="a"))),
        (User | Item, Item("a")),
        (Colour, Colour.RED),
        (list[Colour], [Colour.RED]),
        (str | Colour, Colour.RED),
        (str | Colour, "red"),
        (Shade | None, Shade.DARK),
        (Level, Level.LOW),
        (Odd, Odd.PAIR),
        (Size, Size.LARGE),
        (Size | None, Size.LARGE),
        (str | Size, Size.LARGE),
        (list[Size], [Size.LARGE, Size.SMALL]),
        (tuple[int, Size], (2, Size.LARGE)),
        (Shirt, Shirt(Size.SMALL, {Size.LARGE: {Size.SMALL}}, Colour.RED)),
        (Door, Door(Right.READ | Right.WRITE, Size.LARGE)),
        (Right, Right.READ | Right.WRITE),
        (Literal["a"] | Item, "a"),
    ],
)
def test_models_come_back_by_annotation(hint: Any, value: Any) -> None:
    def rest(*order: Any, **more: Any) -> None: ...

    rest.__annotations__ = {"order": hint, "more": hint}
    arguments = Arguments.of(taking(hint))
    raw = arguments.encode_result(value)
    for got in (
        through(taking(hint), value)[0][0],
        through(taking(hint), order=value)[1]["order"],
        through(rest, value, value)[0][1],
        through(rest, order=value)[1]["order"],
        arguments.decode_result(raw),
    ):
        assert type(got) is type(value)
        assert repr(got) == repr(value) or got == value


def test_unset_fields_of_pydantic_stay_unset() -> None:
    (got,), _ = through(taking(User), User(name="a", nick=None))
    assert got.model_dump(exclude_unset=True) == {"name": "a", "nick": None}
    uid = ByName().uid
    (got,), _ = through(taking(ByName), ByName(u=uid))
    assert got.uid == uid
    changed = User(name="a")
    changed.tags.add("later")
    (got,), _ = through(taking(User), changed)
    assert got.tags == {"later"}


def test_a_default_made_by_a_factory_travels() -> None:
    sent = ByName()
    (got,), _ = through(taking(ByName), sent)
    assert got.uid == sent.uid


def test_plain_data_may_stand_for_a_model_or_an_enum() -> None:
    assert through(taking(Item), {"sku": "a"}) == ((Item("a"),), {})
    assert through(taking(list[User]), [{"name": "a"}]) == (([User(name="a")],), {})
    assert through(taking(Shade), "dark")[0][0] is Shade.DARK
    assert through(taking(Colour), order="red")[1]["order"] is Colour.RED
    assert through(taking(Size), order=2)[1]["order"] is Size.LARGE


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (
            None,
            Item("a"),
            "argument 'order': tests.test_arguments.Item is a model, and models are rebuilt only by annotation: annot",
        ),
        (Any, {"a": [Item("a")]}, "argument 'order' → a[0]: tests.test_arguments.Item is a model"),
        (dict, User(name="a"), "argument 'order': tests.test_arguments.User is a model"),
        (object, Order(UUID(int=1), []), "argument 'order': tests.test_arguments.Order is a model"),
        ("Unknown", Item("a"), "argument 'order': tests.test_arguments.Item is a model"),
        (
            Item,
            Special("a"),
            "argument 'order': tests.test_arguments.Special would come back as tests.test_arguments.Item, by the annot",
        ),
        (
            list[Item],
            [Item("a"), Special("b")],
            "argument 'order' → [1]: tests.test_arguments.Special would come back as",
        ),
        (
            list[Item],
            (Item("a"),),
            "argument 'order': tuple would come back as list, by the annotation list[tests.test_arguments",
        ),
        (
            Item,
            Item("a", extra=Item("b")),
            "argument 'order' → extra: tests.test_arguments.Item would come back as dict",
        ),
        (
            Item,
            Item(5),
            "argument 'order' does not fit tests.test_arguments.Item: Expected `str`, got `int` - at `$.sku`",
        ),
        (
            Item,
            Item("a", extra=[1, print]),
            "argument 'order' → extra[1]: builtin_function_or_method cannot be encoded",
        ),
        (
            list[Item],
            [{"price": 1.0}],
            "does not fit list[tests.test_arguments.Item]: Object missing required field `sku`",
        ),
        (
            User,
            {"name": 5, "tags": 1},
            "does not fit tests.test_arguments.User: name: Input should be a valid string; tags: ",
        ),
        (User | int, "5", "argument 'order': str would come back as int, by the annotation"),
        (
            Secret,
            Secret(password="x"),
            "argument 'order' → password: SecretStr('**********') would come back as SecretStr",
        ),
        (Colour, "green", "argument 'order' does not fit tests.test_arguments.Colour: Invalid enum value 'green'"),
        (Picky, {"a": -1}, "argument 'order' does not fit tests.test_arguments.Picky: a is negative"),
        (Cat | dict, Cat("Tom"), "cannot rebuild models: Type unions may not contain more than one dict-like type"),
        (
            dict[str, Item],
            {"a": Item("a"), 1: Item("b")},
            "argument 'order' does not fit dict[str, tests.test_arguments.Item]",
        ),
        (Item, "\ud800", "argument 'order': text with a lone surrogate"),
    ],
)
def test_a_value_its_annotation_would_change_is_refused_at_the_push(hint: Any, value: Any, message: str) -> None:
    task = taking(hint)
    if hint is None:
        task.__annotations__ = {}
    with pytest.raises(PayloadEncodingError) as refused:
        Arguments.of(task).encode((value,), {})
    assert message in str(refused.value)
    with pytest.raises(PayloadEncodingError) as refused:
        Arguments.of(task).encode((), {"order": value})
    assert message in str(refused.value)
    with pytest.raises(PayloadEncodingError) as refused:
        Arguments.of(task).encode_result(value)
    assert message.replace("argument 'order'", "the result") in str(refused.value)


def test_each_argument_is_named_in_its_refusal() -> None:
    def plain(a: int, *rest: Any, **more: Any) -> None: ...

    def typed(a: int, *rest: Item, **more: Any) -> None: ...

    for fn in (plain, typed):
        arguments = Arguments.of(fn)
        with pytest.raises(PayloadEncodingError, match=r"^argument 'a': object cannot be encoded"):
            arguments.encode((object(),), {})
        with pytest.raises(PayloadEncodingError, match=r"^argument '\*rest' → \[1\]: object cannot be encoded"):
            arguments.encode((1, {"sku": ""}, object()), {})
        with pytest.raises(PayloadEncodingError, match=r"^argument 'z' → b: object cannot be encoded"):
            arguments.encode((1,), {"z": {"b": object()}})
        with pytest.raises(PayloadEncodingError, match=r"^the name of argument '\\udfff': text with a lone surrogate"):
            arguments.encode((1,), {"\udfff": 1})


def test_an_argument_that_does_not_fit_on_the_worker_is_named() -> None:
    """The worker's code may differ from the caller's."""
    body = b'[[{"price":1}],{}]'
    with pytest.raises(
        PayloadEncodingError, match=r"^argument 'order' does not fit tests.test_arguments.Item: Object missing"
    ):
        Arguments.of(taking(Item)).decode(body)
    with pytest.raises(
        PayloadEncodingError, match=r"^argument 'order' does not fit tests.test_arguments.User: name: Field req"
    ):
        Arguments.of(taking(User)).decode(body)
    with pytest.raises(
        PayloadEncodingError, match=r"^the result does not fit tests.test_arguments.Item: Expected `object`"
    ):
        Arguments.of(taking(Item)).decode_result(b"5")


# --- hints and results -------------------------------------------------------------------------------------------


def forward(later: Later, never: Unknown, item: list[Item]) -> Later:  # an annotation that fails does not affect others
    raise NotImplementedError


EARLY = Arguments.of(forward)


@dataclasses.dataclass
class Later:
    a: int


def test_hints_are_resolved_at_first_use_and_one_by_one() -> None:
    body = EARLY.encode((Later(1), 5, [Item("a")]), {})
    assert EARLY.decode(body) == ((Later(1), 5, [Item("a")]), {})
    assert EARLY.decode_result(EARLY.encode_result(Later(2))) == Later(2)


def test_callables_without_hints_work() -> None:
    assert through(functools.partial(one, 5)) == ((), {})
    assert through(lambda a, b=1: a, 5) == ((5,), {})

    class Callable:
        def __call__(self, a: int) -> None: ...

        def method(self, item: Item) -> None: ...

    assert through(Callable(), 5) == ((5,), {})
    assert through(Callable().method, Item("a")) == ((Item("a"),), {})


class Alias:
    """Like `type X = …` of Python 3.12: evaluated late, and it may refer to itself."""

    @property
    def __value__(self) -> Any:
        return Item | list[self]  # type: ignore[valid-type]


class Broken:
    @property
    def __value__(self) -> Any:
        raise NameError("name 'Unknown' is not defined")


def test_recursive_and_unresolvable_aliases_do_not_crash() -> None:
    assert Item in classes_in(list[Alias()], set())  # type: ignore[misc]
    assert Arguments.of(taking(Broken())).encode((5,), {}) == b"[[5],{}]"


def test_none_fits_every_annotation() -> None:
    assert through(taking(Item), None) == ((None,), {})
    assert through(taking(Colour), order=None) == ((), {"order": None})


def test_none_is_stored_as_no_result() -> None:
    arguments = Arguments.of(taking(Item | None))
    assert arguments.encode_result(None) is None
    assert arguments.decode_result(None) is None


def test_results_without_annotation_come_back_as_they_were() -> None:
    def task():
        raise NotImplementedError

    arguments = Arguments.of(task)
    value = {"at": datetime(2026, 1, 1, tzinfo=UTC), 1: (2, {3})}
    assert arguments.decode_result(arguments.encode_result(value)) == value
    with pytest.raises(PayloadEncodingError, match=r"^the result: .*Item is a model.*; the function has run, but"):
        arguments.encode_result(Item("a"))
    with pytest.raises(PayloadEncodingError, match=r"^the result cannot be read"):
        arguments.decode_result(b"{")
