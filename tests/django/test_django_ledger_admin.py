"""Tasks and dead letters in the admin: read from the ledger, and replayed or discarded after a confirmation."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.test import Client as Browser

from relier import Client, rl_task, use_client
from relier.errors import TaskNotFoundError
from relier.states import State
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop, LogEntry, Permission, User
from tests.support.worker_thread import WorkerThread

TASKS, DEAD = "/admin/relier/ledgertask/", "/admin/relier/deadletter/"


@rl_task(name="admin.refund")
def refund(order: int) -> int:
    raise ValueError(f"no money for {order}")


@rl_task(name="admin.receipt")
def receipt(order: int) -> int:
    return order


@pytest.fixture
def shop(sqlite: Database, client: Client) -> Iterator[DjangoShop]:
    with DjangoShop(client, default=sqlite.url) as made:
        call_command("migrate", database="default", verbosity=0)
        use_client(client)
        yield made


def somebody(name: str, *permissions: str, **more: bool) -> Browser:
    user = User.objects.create_user(name, is_staff=True, **more)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Browser()
    browser.force_login(user)
    return browser


@pytest.fixture
def boss(shop: DjangoShop) -> Browser:
    return somebody("boss", is_superuser=True)


def dead(shop: DjangoShop, *orders: int) -> list[str]:
    with WorkerThread(shop.client.settings):
        pushed = [refund.push(order) for order in orders]
        for one in pushed:
            with pytest.raises(ValueError, match="no money"):
                one.result(timeout=20)
    return [one.id for one in pushed]


def text(browser: Browser, url: str) -> str:
    answer = browser.get(url)
    assert answer.status_code == 200
    return str(answer.content.decode())


def act(browser: Browser, action: str, *ids: str, **more: str) -> str:
    answer = browser.post(DEAD, {"action": action, "_selected_action": ids} | more, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_tasks_are_listed_by_state_with_a_page_for_each(shop: DjangoShop, boss: Browser) -> None:
    (died,) = dead(shop, 1)
    waits = receipt.push(2).id
    later = receipt.with_options(delay=600).push(3).id
    page = text(boss, TASKS)
    found = re.findall(r'href="/admin/relier/ledgertask/(\w+)/"', page)
    assert found == [waits, later, died]
    assert "queued (1)" in page
    assert "dead (1)" in page
    assert re.findall(r"ledgertask/(\w+)/", text(boss, f"{TASKS}?state=queued")) == [waits]
    assert re.findall(r"ledgertask/(\w+)/", text(boss, f"{TASKS}?name=admin.refund")) == [died]
    assert not re.findall(r"ledgertask/(\w+)/", text(boss, f"{TASKS}?queue=nothing"))
    details = text(boss, f"{TASKS}{died}/")
    assert all(word in details for word in ("admin.refund", "dead: ValueError", "no money for 1", "Traceback"))
    assert boss.get(f"{TASKS}nothing/").status_code == 404


def test_dead_letters_are_listed_by_reason_and_replayed_after_a_confirmation(shop: DjangoShop, boss: Browser) -> None:
    first, second = dead(shop, 1, 2)
    page = text(boss, DEAD)
    assert "ValueError (2)" in page
    assert not re.findall(r"deadletter/(\w{32})/", text(boss, f"{DEAD}?reason=KeyError"))
    asked = act(boss, "replay", first)
    assert "will run again, with their checkpoints" in asked
    assert shop.state(first) is State.DEAD
    assert "1 of the tasks will run again." in act(boss, "replay", first, confirmed="yes")
    assert (shop.state(first), shop.state(second)) == (State.QUEUED, State.DEAD)
    assert "nothing was changed" in act(boss, "replay", first, confirmed="yes")
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.get_change_message()) == (first, "Replayed.")


def test_dead_letters_are_discarded_after_a_confirmation(shop: DjangoShop, boss: Browser) -> None:
    first, second = dead(shop, 1, 2)
    assert "They cannot be replayed after that." in act(boss, "discard", first)
    assert "1 of the tasks were discarded." in act(boss, "discard", first, confirmed="yes")
    with pytest.raises(TaskNotFoundError):
        shop.state(first)
    assert shop.state(second) is State.DEAD
    assert LogEntry.objects.get().is_deletion()


@pytest.mark.parametrize(
    ("permissions", "lists", "offered"),
    [
        ((), (403, 403), []),
        (("view_ledgertask",), (200, 403), []),
        (("view_deadletter",), (403, 200), []),
        (("change_deadletter",), (403, 200), ["replay"]),
        (("delete_deadletter",), (403, 200), ["discard"]),
    ],
)
def test_permissions_are_those_of_the_admin(
    shop: DjangoShop, permissions: tuple[str, ...], lists: tuple[int, int], offered: list[str]
) -> None:
    (died,) = dead(shop, 1)
    browser = somebody("ann", *permissions)
    assert tuple(browser.get(url).status_code for url in (TASKS, DEAD)) == lists
    assert browser.get(f"{DEAD}{died}/").status_code == lists[1]
    if lists[1] == 200:
        assert re.findall(r'<option value="(\w+)">', text(browser, DEAD)) == offered
    for action in {"replay", "discard"} - set(offered):
        refused = browser.post(DEAD, {"action": action, "_selected_action": [died], "confirmed": "yes"})
        assert refused.status_code == 403
    assert shop.state(died) is State.DEAD
    index = text(browser, "/admin/") if permissions else ""
    assert ("Dead letters" in index, "Tasks" in index) == (lists[1] == 200, lists[0] == 200)


def test_an_unreachable_ledger_is_reported_on_the_page(shop: DjangoShop, boss: Browser) -> None:
    away = shop.client.settings.replace(redis_url="redis://127.0.0.1:1", redis_deadline=0.2)
    use_client(Client(away))
    assert "The ledger cannot be read" in text(boss, TASKS)


def test_models_without_a_table_do_not_disturb_other_commands(shop: DjangoShop) -> None:
    out = io.StringIO()
    call_command("makemigrations", "relier", check=True, dry_run=True, stdout=out)
    call_command("dumpdata", "relier", stdout=out)
    call_command("check", databases=["default"], stdout=out)
    assert "no issues" in out.getvalue()
