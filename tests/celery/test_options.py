"""Options of adopted tasks, and settings of the fleet that also apply to them."""

from __future__ import annotations

import pytest

from relier.celery.options import AdoptedOptions
from relier.errors import ConfigurationError
from relier.states import State
from tests.celery.conftest import Shop
from tests.celery.test_lost import die
from tests.support.fleet import wait_until

LINKED = "print({}.apply_async(('tea',), link_error=complain.s()).id)"


def test_a_task_has_its_own_number_of_resurrections(shop: Shop) -> None:
    (task_id,) = shop.run("print(carry_glass.delay('vase').id)").split()
    assert die(shop, 1) == ["queued"]
    assert die(shop, 1) == ["dead"]
    assert shop.fleet.get(task_id).record.reason == "max_resurrections_exceeded"


def test_a_setting_limits_resurrections_in_the_whole_fleet(shop: Shop) -> None:
    shop.env["RELIER_MAX_RESURRECTIONS"] = "2"
    shop.run("sell.delay('tea')")
    assert [die(shop, 1), die(shop, 1), die(shop, 1)] == [["queued"], ["queued"], ["dead"]]


@pytest.mark.parametrize(("task", "deaths", "fleet"), [("carry_glass", 2, "9"), ("weigh", 3, "2")])
def test_the_limit_holds_for_a_task_whose_end_must_be_reported(shop: Shop, task: str, deaths: int, fleet: str) -> None:
    shop.env["RELIER_MAX_RESURRECTIONS"] = fleet
    shop.env["SHOP_BACKEND"] = f"{shop.broker.tcp_url}/1"
    (task_id,) = shop.run(LINKED.format(task)).split()
    assert die(shop, deaths) == ["queued"]  # for a worker to report
    del shop.env["RELIER_MAX_RESURRECTIONS"]  # what counts is the limit at the push
    shop.worker("-P", "solo")
    wait_until(lambda: shop.printed() == [f"complained of {task_id}"], 30, "the error callback")
    (dead,) = shop.fleet.wait_ended([task_id])
    assert (dead.record.state, dead.record.reason) == (State.DEAD, "max_resurrections_exceeded")


RATIONS = """
from relier.errors import AdmissionRejectedError
def send(*args, **kwargs):
    try:
        ration.delay(*args, **kwargs)
    except AdmissionRejectedError as error:
        return error.limit
    return "accepted"
print(send("tea"), send(what="tea", amount=2), send("tea"), send("milk"))
"""


def test_delay_passes_the_limits_of_its_own_task(shop: Shop) -> None:
    assert shop.run(RATIONS).split() == ["accepted", "accepted", "key:ration:tea", "accepted"]


def test_delay_passes_the_limit_on_a_queue(shop: Shop) -> None:
    shop.env["RELIER_ADMISSION_MAX_DEPTH"] = "3"
    said = shop.run(RATIONS.replace("ration.delay", "sell.delay").replace("what=", "").replace(", amount=2", ""))
    assert said.split()[:3] == ["accepted"] * 3
    assert said.split()[3] != "accepted"


def test_the_rate_of_the_namespace_is_not_for_adopted_tasks(shop: Shop) -> None:
    shop.env |= {"RELIER_ADMISSION_LIMIT": "1", "RELIER_ADMISSION_WINDOW": "3600"}
    assert len(shop.run("print(*[sell.delay(number).id for number in range(5)])").split()) == 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_resurection": 2}, "no option max_resurection"),
        ({"max_resurrections": 100}, "from 0 to 99"),
        ({"admission": "tenant:{tenant}"}, "no such argument"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        AdoptedOptions("shop.sell", options, lambda what: None)
