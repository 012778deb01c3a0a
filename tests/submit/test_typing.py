"""An editor knows what `apush` takes and what `result` gives: mypy says the same of a file that uses them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
from relier import SyncTaskReceipt, TaskContext, TaskReceipt, rl_task


@rl_task
async def charge(customer: str, cents: int = 0) -> dict[str, int]:
    return {customer: cents}


@rl_task(queue="big", hard_timeout=30, retries=3)
def resize(ctx: TaskContext, image: bytes, *, width: int) -> bytes:
    return image


@rl_task()
async def nothing() -> None: ...


async def use() -> None:
    reveal_type(charge.apush)  # 1
    reveal_type(resize.push)  # 2
    reveal_type(await charge.apush("a", cents=5))  # 3
    reveal_type(await (await charge.apush("a")).result(timeout=1))  # 4
    reveal_type(resize.push(b"", width=3).result())  # 5
    reveal_type((await charge.apush_many([("a", 1), {"customer": "b"}]))[0])  # 6
    reveal_type(charge.with_options(delay=5).push)  # 7
    reveal_type(charge.sync_receipt("id").result())  # 8
    reveal_type(await nothing.apush())  # 9
    await charge.apush(5)  # wrong 1
    await charge.apush("a", cent=5)  # wrong 2
    charge.push()  # wrong 3
    resize.push(b"")  # wrong 4
    charge.with_options(delay=5).push(b"a")  # wrong 5
    charge.with_options(dely=5)  # wrong 6
"""
RECEIPT = "relier.submit.receipt.TaskReceipt[dict[str, int]]"
REVEALED = {
    1: f"def (customer: str, cents: int =) -> typing.Coroutine[Any, Any, {RECEIPT}]",
    2: "def (image: bytes, *, width: int) -> relier.submit.receipt.SyncTaskReceipt[bytes]",
    3: RECEIPT,
    4: "dict[str, int]",
    5: "bytes",
    6: RECEIPT,
    7: "def (customer: str, cents: int =) -> relier.submit.receipt.SyncTaskReceipt[dict[str, int]]",
    8: "dict[str, int]",
    9: "relier.submit.receipt.TaskReceipt[None]",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What mypy --strict says, by the comment of the line."""
    file = tmp_path_factory.mktemp("typing") / "uses_tasks.py"
    file.write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    lines = CODE.splitlines()
    found = re.findall(r"uses_tasks\.py:(\d+): (?:note|error): (.*)", told.stdout)
    assert found, told.stdout + told.stderr
    return {lines[int(number) - 1].rpartition("# ")[2]: message for number, message in found}


def test_a_type_checker_knows_what_a_task_takes_and_gives(answers: dict[str, str]) -> None:
    revealed = {
        int(comment): message.partition('"')[2].rstrip('"').replace("builtins.", "")
        for comment, message in answers.items()
        if message.startswith("Revealed")
    }
    assert revealed == REVEALED


def test_a_type_checker_refuses_what_a_task_does_not_take(answers: dict[str, str]) -> None:
    wrong = {comment for comment, message in answers.items() if not message.startswith("Revealed")}
    assert wrong == {f"wrong {number}" for number in range(1, 7)}
