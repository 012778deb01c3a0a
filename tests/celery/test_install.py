"""What `install` changes in an app, depending on how the app was configured before."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import celery
import pytest
from kombu.exceptions import OperationalError

from relier import AdmissionRejectedError, Admit, Client, ConfigurationError, rl_task, use_client
from relier.celery import install
from relier.celery.adoption import adoption_of
from relier.celery.sending.control import message_in
from relier.errors import StoreError
from relier.ledger.records import Record
from relier.settings import Settings
from relier.states import State
from relier.submit.client import place_of
from tests.support.servers import Server

Make = Callable[..., Any]
BROKER = "redis://127.0.0.1:1"  # never contacted


@pytest.fixture
def make(settings: Settings) -> Iterator[Make]:
    """Return an adopted app. `before`: called with the app before `install`."""
    apps = []

    def app_of(broker: Any = BROKER, before: Callable[[Any], Any] = id, **options: Any) -> Any:
        app = celery.Celery("shop", broker=broker, set_as_current=False, **options)
        apps.append(app)
        before(app)
        return install(app, adopt=True, settings=settings)

    yield app_of
    use_client(None)
    for app in apps:
        adoption_of(app).client.close()
        app.close()


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set an environment that names no store, and forget any client made before."""
    monkeypatch.delenv("RELIER_REDIS_URL", raising=False)
    use_client(None)
    return monkeypatch


@pytest.mark.parametrize("make", [lambda: None, Settings], ids=["environment", "settings"])
def test_the_embedded_store_is_refused_unless_it_is_written_out(
    no_store: pytest.MonkeyPatch, make: Callable[[], Settings | None]
) -> None:
    """Otherwise a producer without the variable would start its own store, in which no worker finds its tasks."""
    app, settings = celery.Celery("shop", broker=BROKER, set_as_current=False), make()
    with pytest.raises(ConfigurationError) as refused:
        install(app, adopt=True, settings=settings)
    assert str(refused.value) == (
        "install was refused: RELIER_REDIS_URL is not set, so this process would start its own embedded store, "
        "in which no worker finds its tasks; set RELIER_REDIS_URL to one store for producers and workers, or pass "
        "settings=Settings(redis_url=…); for a store in the project's folder, write RELIER_REDIS_URL=embedded://"
    )
    with pytest.raises(ConfigurationError, match="Relier is not installed"):
        adoption_of(app)
    no_store.setenv("RELIER_REDIS_URL", "embedded://")
    assert install(app, adopt=True, settings=settings and Settings(redis_url="embedded://")) is app
    use_client(None)


def test_a_client_that_was_set_before_decides_for_an_app(no_store: pytest.MonkeyPatch, settings: Settings) -> None:
    """`rl celery drain --url …` sets one before it imports the app."""
    use_client(Client(settings))
    app = celery.Celery("shop", broker=BROKER, set_as_current=False)
    assert adoption_of(install(app, adopt=True)).client.settings.redis_url == settings.redis_url
    use_client(None)


def test_the_first_task_sent_logs_its_store(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    app = make()
    client = adoption_of(app).client
    with caplog.at_level("INFO", "relier.submit"):
        app.send_task("shop.sell")
        app.send_task("shop.sell")
    told = [each.getMessage() for each in caplog.records if each.name == "relier.submit"]
    assert told == [f"first push of this process: its tasks go to {place_of(client.settings)}"]


def record(app: Any, task_id: str) -> Record:
    client = adoption_of(app).client
    return client.run(client.ledger.get(task_id)).record


@pytest.mark.parametrize("broker", [BROKER, [BROKER, "redis://127.0.0.1:2"], f"{BROKER};redis://127.0.0.1:2"])
def test_a_list_of_brokers_has_the_transport_of_the_first(make: Make, broker: Any) -> None:
    app = make(broker)
    first, last = (record(app, app.send_task("shop.sell", priority=priority).id) for priority in (0, 9))
    assert (first.spec.priority, last.spec.priority) == (0, -9)  # on Redis Celery's 0 comes first
    assert app.conf.broker_transport_options["socket_timeout"] == 5.0


@pytest.mark.parametrize("broker", [BROKER, "amqp://127.0.0.1:1", "memory://"])
def test_every_message_has_the_priority_that_kombu_would_set(make: Make, broker: str) -> None:
    app = make(broker)
    client = adoption_of(app).client
    sent = [app.send_task("shop.sell", **named) for named in ({}, {"priority": None}, {"priority": 3})]
    tasks = [client.run(client.ledger.get(each.id)) for each in sent]
    assert [message_in(task, client.keyring).properties["priority"] for task in tasks] == [0, 0, 3]


def test_a_ledger_that_is_away_is_an_operational_error(settings: Settings) -> None:
    away = settings.replace(redis_url="redis://127.0.0.1:1", redis_deadline=0.5)
    app = install(celery.Celery("shop", broker=BROKER, set_as_current=False), adopt=True, settings=away)
    try:
        for call in (lambda: app.send_task("shop.sell"), lambda: app.control.revoke("some")):
            with pytest.raises(OperationalError) as caught:
                call()
            assert isinstance(caught.value, StoreError)
            again = pickle.loads(pickle.dumps(caught.value))
            assert (type(again), str(again)) == (type(caught.value), str(caught.value))
        assert caught.type.__name__ == "RedisConnectionError"
    finally:
        use_client(None)
        adoption_of(app).client.close()
        app.close()


@pytest.mark.parametrize("backend", ["cache+memory://", "redis://127.0.0.1:1"])
def test_a_backend_created_before_install_is_replaced(make: Make, backend: str) -> None:
    early = []
    app = make(before=lambda app: early.append(app.backend), backend=backend)
    assert issubclass(type(app.backend), type(early[0]))
    assert type(app.backend).__name__ == "LedgerBackend"


def test_results_can_be_pickled(make: Make, server: Server) -> None:
    app = make(backend=server.tcp_url)
    result = app.send_task("shop.sell")
    before = celery.current_app._get_current_object()
    app.set_current()
    try:
        one, group = pickle.loads(pickle.dumps((result, app.GroupResult("all", [result]))))
        assert (one.id, group.id, group.results) == (result.id, "all", [result])
        assert (one.state, one.backend.url) == ("PENDING", app.backend.url)
    finally:
        before.set_current()


@pytest.mark.parametrize("args", [(), (None,), (None, True), (None, True, "SIGKILL")])
def test_revoke_accepts_positional_arguments(make: Make, server: Server, args: tuple[Any, ...]) -> None:
    app = make(server.tcp_url)
    sent = app.send_task("shop.sell")
    app.control.revoke(sent.id, *args)
    assert record(app, sent.id).state is State.CANCELLED


@rl_task(name="shop.render", admission=Admit("tenant:{tenant}", limit=2, window=60))
def render(tenant: str) -> None: ...


def test_admission_limits_apply_to_an_rl_task_sent_by_name(make: Make) -> None:
    app = make()
    for _ in range(2):
        app.send_task("shop.render", ("one",))
    with pytest.raises(AdmissionRejectedError):
        app.send_task("shop.render", ("one",))
    with pytest.raises(AdmissionRejectedError):
        render.push("one")
    app.send_task("shop.render", ("two",))
