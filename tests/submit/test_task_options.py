"""Options that `@rl_task` and `with_options` accept, and the errors for others."""

from __future__ import annotations

import copy
import functools
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relier import ConfigurationError, Durability, RelierError, Retries, Settings, TaskContext, registry, rl_task
from relier.errors import InvalidSubmissionError
from relier.options import GivenTaskOptions, PushOptions, TaskOptions, task_options
from relier.submit.push import call_of, submission_of
from relier.task import RlTask, TaskDecorator

# --- the decorator ---------------------------------------------------------------------------------------------------


def test_the_decorator_works_with_and_without_options() -> None:
    @rl_task
    def bare(a: int) -> int:
        """Adds one."""
        return a + 1

    @rl_task(queue="big jobs", priority=-9)
    async def dressed(a: int) -> int:
        return a + 1

    assert isinstance(bare, RlTask)
    assert isinstance(dressed, RlTask)
    assert (bare.options.queue, bare.options.priority) == ("default", 0)
    assert (dressed.options.queue, dressed.options.priority) == ("big jobs", -9)
    assert (bare.is_async, dressed.is_async) == (False, True)
    assert (bare.__name__, bare.__doc__) == ("bare", "Adds one.")
    assert bare.name == f"{__name__}.{bare.__qualname__}"
    assert repr(bare) == f"<task {bare.name}>"
    assert bare(1) == 2


class Shop:
    def sell(self, what: str) -> str:
        return what


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Shop, "decorates a function"),
        (functools.partial(print, 1), "decorates a function"),
        (lambda: None, "a name for a lambda, which has none"),
        (Shop.sell, r"decorates .*\.Shop\.sell, a method, but a worker has no object to call it on"),
    ],
    ids=["class", "partial", "lambda", "method"],
)
def test_functions_that_a_worker_could_not_find_or_call_are_refused(made: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        rl_task(made)
    assert registry.find(f"{__name__}.Shop") is None


def test_a_lambda_with_a_name_is_a_task() -> None:
    named: Any = rl_task(name="tests.submit.double")(lambda number: 2 * number)
    assert registry.find("tests.submit.double") is named


@pytest.mark.parametrize("made", [5, None, "text"], ids=repr)
def test_a_decorator_on_something_else_is_refused(made: Any) -> None:
    decorator: Any = rl_task()
    with pytest.raises(ConfigurationError, match="decorates a function"):
        decorator(made)


def test_a_generator_is_refused() -> None:
    def numbers() -> Any:
        yield 1

    async def anumbers() -> Any:
        yield 1

    for function in (numbers, anumbers):
        with pytest.raises(ConfigurationError, match="decorates a function"):
            rl_task(function)


def test_defaults_are_those_that_are_promised() -> None:
    options = TaskOptions(name="t")
    assert options.retries is None
    assert options.on_lost == "retry"
    assert options.hard_timeout is options.soft_timeout is options.max_resurrections is None
    assert (options.isolate, options.schema_version, options.durability) == (False, 1, None)


def test_times_may_be_timedeltas() -> None:
    options = TaskOptions(name="t", soft_timeout=timedelta(seconds=1.5), hard_timeout=2, result_ttl=timedelta(days=1))  # type: ignore[arg-type]
    assert (options.soft_timeout, options.hard_timeout, options.result_ttl) == (1.5, 2.0, 86400.0)


@pytest.mark.parametrize(("given", "attempts"), [(1, 1), (3, 3), (Retries(attempts=3), 3), (Retries(7), 7)])
def test_retries_may_be_a_number(given: Any, attempts: int) -> None:
    options = TaskOptions(name="t", retries=given)
    assert isinstance(options.retries, Retries)
    assert options.retries.attempts == attempts


def test_no_retries_is_none_at_all() -> None:
    assert TaskOptions(name="t", retries=0).retries is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("hard_timout", "hard_timeout"),
        ("retry", "retries"),
        ("max_resurrection", "max_resurrections"),
        ("onlost", "on_lost"),
        ("isolated", "isolate"),
        ("que", "queue"),
    ],
)
def test_a_typo_in_an_option_gets_a_suggestion(typo: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no option '{typo}'; did you mean {meant}"):
        task_options("shop.charge", {typo: 1})


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("bind", "a task that takes ctx: TaskContext gets its context"),
        ("max_retries", "use retries=…"),
        ("autoretry_for", r"use retries=Retries\(retry_on=…\)"),
        ("time_limit", "use hard_timeout=…"),
        ("countdown", r"the delay belongs to a push: task\.with_options\(delay=…\)\.push\(…\)"),
    ],
)
def test_an_option_of_another_queue_is_answered_with_ours(option: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no option '{option}'; {advice}"):
        TaskDecorator({option: 1})(lambda: None)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("countdown", "use delay=…"),
        ("args", r"pass the arguments to push: task\.with_options\(…\)\.push\(…\)"),
        ("time_limit", r"it belongs to the task: @rl_task\(hard_timeout=…\)"),
        ("prioriti", r"did you mean priority\?"),
        ("zzz", "there are: task_id, delay, eta"),
    ],
)
def test_an_unknown_option_of_a_push_is_answered_with_ours(option: str, advice: str) -> None:
    with pytest.raises(TypeError, match=rf"with_options\(\) has no option '{option}': {advice}"):
        plain.with_options(**{option: 60})


def test_an_option_passed_to_push_is_answered_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"'countdown'; options of a push go into with_options\(delay=…\)\.push"):
        plain.push(1, countdown=60)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("delay", r"use push\(…\), or `await apush\(…\)` in async code"),
        ("apply_async", r"use with_options\(delay=…, queue=…\)\.push\(…\), with the arguments in push"),
        ("retry", r"use @rl_task\(retries=…\), and raise an exception to be retried"),
    ],
)
def test_a_method_of_another_queue_is_answered_with_ours(method: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"tests.submit.plain is an rl_task and has no '{method}': {advice}"):
        getattr(plain, method)


def test_any_other_attribute_is_just_missing() -> None:
    assert not hasattr(plain, "no_such_thing")
    with pytest.raises(AttributeError, match=r"has no 'no_such_thing'$"):
        plain.no_such_thing  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(plain).name == plain.name


def test_an_unknown_option_gets_a_list_of_all_options() -> None:
    with pytest.raises(ConfigurationError, match=r"there are: .*queue.*schema_version"):
        rl_task(zzz=1)(lambda: None)  # type: ignore[call-overload]


WRONG: list[dict[str, Any]] = [
    {"priority": 10},
    {"priority": -10},
    {"priority": "high"},
    {"on_lost": "drop"},
    {"soft_timeout": 5, "hard_timeout": 5},
    {"soft_timeout": 6, "hard_timeout": 5},
    {"soft_timeout": -1},
    {"hard_timeout": "30"},
    {"hard_timeout": float("nan")},
    {"result_ttl": -1},
    {"on_soft_timeout": "hook"},
    {"on_dead": "hook"},
    {"max_resurrections": -1},
    {"schema_version": 0},
    {"queue": ""},
    {"queue": "two\nlines"},
    {"name": ""},
    {"retries": -1},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_an_invalid_option_is_refused_at_definition(options: dict[str, Any]) -> None:
    with pytest.raises(RelierError):
        task_options("shop.charge", options)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": "3"},
        {"retries": 1.5},
        {"max_resurrections": "5"},
        {"schema_version": "2"},
        {"durability": "eternal"},
        {"hard_timeout": 0},
        {"isolate": "no"},
    ],
    ids=str,
)
def test_an_option_of_a_wrong_type_is_refused_at_definition(options: dict[str, Any]) -> None:
    with pytest.raises(RelierError):
        task_options("shop.charge", options)


# --- retries ---------------------------------------------------------------------------------------------------------


def test_a_backoff_grows_by_its_factor_up_to_its_limit() -> None:
    retries = Retries(attempts=9, backoff=0.5, factor=3, max_backoff=10, jitter=0)
    assert [retries.delay_ms(n, ValueError()) for n in range(1, 6)] == [500, 1500, 4500, 10_000, 10_000]


def test_jitter_shortens_a_wait_by_up_to_its_share() -> None:
    retries = Retries(attempts=1, backoff=1, jitter=0.5)
    delays = [retries.delay_ms(1, ValueError()) for _ in range(500)]
    assert all(delay is not None and 500 <= delay <= 1000 for delay in delays)
    assert len(set(delays)) > 50


def test_attempts_counts_retries_without_the_first_run() -> None:
    assert Retries(attempts=0).delay_ms(1, ValueError()) is None
    assert [Retries(attempts=2, jitter=0).delay_ms(n, ValueError()) for n in (1, 2, 3)] == [1000, 2000, None]


def test_a_number_of_retries_and_attempts_are_the_same_number() -> None:
    assert TaskOptions(name="t", retries=3).retries == Retries(attempts=3) == Retries()  # type: ignore[arg-type]


def test_retry_on_and_never_on_decide_by_class() -> None:
    retries = Retries(retry_on=(LookupError, OSError), never_on=KeyError, jitter=0)  # type: ignore[arg-type]
    assert retries.delay_ms(1, IndexError()) == 1000
    assert retries.delay_ms(1, FileNotFoundError()) == 1000
    assert retries.delay_ms(1, KeyError()) is None
    assert retries.delay_ms(1, ValueError()) is None


def test_a_base_exception_is_not_retried_unless_asked() -> None:
    assert Retries().delay_ms(1, SystemExit()) is None
    assert Retries(retry_on=BaseException, jitter=0).delay_ms(1, SystemExit()) == 1000  # type: ignore[arg-type]


def test_a_backoff_of_zero_retries_at_once() -> None:
    assert Retries(backoff=0).delay_ms(1, ValueError()) == 0


def test_thousands_of_failures_do_not_overflow() -> None:
    assert Retries(attempts=9_999, jitter=0).delay_ms(9_999, ValueError()) == 300_000


def test_thousands_of_failures_with_a_large_factor_do_not_overflow() -> None:
    assert Retries(attempts=9_999, factor=1e6, jitter=0).delay_ms(9_999, ValueError()) == 300_000


@pytest.mark.parametrize(
    "wrong", [{"attempts": -1}, {"backoff": -1}, {"factor": 0.5}, {"jitter": 1.1}, {"jitter": -0.1}], ids=str
)
def test_retries_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="is invalid"):
        Retries(**wrong)


def test_the_field_of_retries_that_cannot_work_is_named() -> None:
    said = (
        r"Retries\(backoff=datetime.timedelta\(seconds=60\)\) is invalid: backoff must be a number ≥ 0; .* in seconds"
    )
    with pytest.raises(ConfigurationError, match=said):
        Retries(backoff=timedelta(minutes=1))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="attempts must be a whole number"):
        Retries(attempts=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"max_backoff": -1}, {"backoff": float("nan")}, {"max_backoff": float("inf"), "backoff": 1e300}], ids=str
)
def test_retries_whose_delay_is_not_a_number_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Retries(**wrong)


# --- one push --------------------------------------------------------------------------------------------------------


@rl_task(name="tests.submit.plain", durability="fsync")
def plain(a: int, ctx: TaskContext, b: int = 0) -> int:
    return a + b


def test_with_options_leaves_the_task_as_it_is() -> None:
    changed = plain.with_options(task_id="one", queue="other", delay=5)
    assert changed is not plain
    assert plain.options.queue == "default"
    assert plain(1, None, 2) == 3  # type: ignore[arg-type]


def test_an_unknown_push_option_is_refused_as_python_does() -> None:
    push: Any = plain
    with pytest.raises(TypeError, match="prio"):
        push.with_options(prio=1)


def test_times_become_fields_of_a_submission() -> None:
    eta = datetime(2030, 1, 1, tzinfo=UTC)
    assert PushOptions().times() == {}
    assert PushOptions(delay=1.5).times() == {"delay_ms": 1500}
    assert PushOptions(delay=timedelta(minutes=1)).times() == {"delay_ms": 60_000}
    assert PushOptions(eta=eta).times() == {"eta_ms": 1_893_456_000_000}
    assert PushOptions(expires=eta).times() == {"expires_at_ms": 1_893_456_000_000}
    assert PushOptions(expires=60).times() == {"expires_in_ms": 60_000}
    assert PushOptions(expires=0).times() == {"expires_in_ms": 1}


def test_eta_of_another_zone_is_the_same_moment() -> None:
    from zoneinfo import ZoneInfo

    there = datetime(2030, 1, 1, 1, tzinfo=ZoneInfo("Europe/Vienna"))
    assert PushOptions(eta=there).times() == {"eta_ms": 1_893_456_000_000}


def test_delay_and_eta_together_are_refused() -> None:
    with pytest.raises(InvalidSubmissionError, match="not both"):
        plain.with_options(delay=1, eta=datetime.now(UTC))


def test_durability_is_that_of_the_push_else_the_task_else_the_setting() -> None:
    from relier import Client
    from relier.submit.push import level_of

    @rl_task(name="tests.submit.silent")
    def silent() -> None: ...

    client = Client(Settings(redis_url="redis://nowhere", durability="replicated"))
    assert level_of(plain, PushOptions(durability=Durability.MEMORY), client) is Durability.MEMORY
    assert level_of(plain, PushOptions(), client) is Durability.FSYNC
    assert level_of(silent, PushOptions(), client) is Durability.REPLICATED


def test_an_item_of_push_many_is_a_tuple_or_a_dict() -> None:
    assert call_of((1, 2)) == ((1, 2), {})
    assert call_of({"a": 1}) == ((), {"a": 1})
    assert call_of(()) == ((), {})
    for wrong in ([1], "ab", 5, None):
        with pytest.raises(InvalidSubmissionError, match="tuples of positional or dicts"):
            call_of(wrong)


@pytest.mark.parametrize(
    ("own", "fleet", "stored"),
    [(None, 5, None), (None, 2, 2), (7, 2, 7), (0, 2, 0), (5, 2, None)],
)
def test_the_number_of_resurrections_is_the_tasks_own_or_that_of_the_fleet(
    own: int | None, fleet: int, stored: int | None
) -> None:
    task: Any = rl_task(name="resurrects", max_resurrections=own)(lambda: None)
    settings = Settings(max_resurrections=fleet)
    pushed = submission_of(task, (), {}, PushOptions(), Durability.MEMORY, settings)
    assert pushed.max_resurrections == stored  # None: what the scripts allow, 5


def test_type_checkers_know_every_option_of_a_task() -> None:
    assert set(GivenTaskOptions.__annotations__) == {field.name for field in fields(TaskOptions)}
