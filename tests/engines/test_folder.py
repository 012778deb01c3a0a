"""A task changes the folder and environment of its process: processes and files that are opened later still use those
of the worker's start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relier import Client, Settings, use_client
from relier.store.connect.embedded import project_folder
from relier.submit.client import absolute
from tests.support import ROOT
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import harm


@pytest.fixture
def files(patient: Fleet) -> tuple[str, ...]:
    """Modules that are named as files in the folder in which a worker is started."""
    for folder in ("tests", "tests/support", "tests/support/jobs"):
        (patient.folder / folder).mkdir()
        shutil.copy(ROOT / folder / "__init__.py", patient.folder / folder)
    modules = ("tests/support/jobs/common.py", "tests/support/jobs/harm.py")
    for name in modules:
        shutil.copy(ROOT / name, patient.folder / name)
    return modules


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    (tmp_path / "elsewhere").mkdir()
    return str(tmp_path / "elsewhere")


def test_isolated_processes_start_where_the_worker_did(patient: Fleet, files: tuple[str, ...], elsewhere: str) -> None:
    patient.worker(modules=files)
    assert harm.change_folder.push(elsewhere).result(10) == elsewhere
    folder = str(patient.folder)
    assert harm.where_alone.push().result(30) == [folder, patient.settings.namespace, folder]


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["one process", "a supervisor"])
def test_a_recycled_worker_starts_in_the_original_folder(
    patient: Fleet, files: tuple[str, ...], elsewhere: str, processes: tuple[str, ...]
) -> None:
    member = patient.worker("--max-tasks", "2", "--concurrency", "1", *processes, modules=files)
    assert [harm.change_folder.push(elsewhere).result(10) for _ in range(2)] == [elsewhere] * 2
    member.wait_said(" started: queues=", 2)
    assert harm.where.push().result(20) == str(patient.folder)
    assert jobs.echo.push("next").result(20) == "next"


def test_a_worker_whose_folder_was_removed_restarts_elsewhere(patient: Fleet, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    member = patient.start("worker", "tests.support.jobs.harm", "--max-tasks", "1", cwd=tmp_path / "gone")
    member.wait_said(" started: queues=")
    (tmp_path / "gone").rmdir()
    assert harm.change_folder.push(str(tmp_path)).result(10) == str(tmp_path)
    member.wait_said("the worker cannot restart in its original folder")
    member.wait_said(" started: queues=", 2)


def test_a_relative_checkpoint_folder_stays_the_same(fleet: Fleet, elsewhere: str) -> None:
    member = fleet.worker(
        modules=("tests.support.jobs.harm",), RELIER_CHECKPOINT_DIR="kept", RELIER_CHECKPOINT_MAX_INLINE_BYTES="0"
    )
    harm.change_folder.push(elsewhere).result(10)
    receipt = harm.keep.push("so far")
    fleet.wait_diary("kept", 1)
    wait_until(lambda: list(fleet.folder.glob("kept/**/*.checkpoint")), what="a checkpoint beside the worker's start")
    assert not list(Path(elsewhere).glob("**/*.checkpoint"))
    member.kill_all()
    fleet.worker(
        modules=("tests.support.jobs.harm",), RELIER_CHECKPOINT_DIR="kept", RELIER_CHECKPOINT_MAX_INLINE_BYTES="0"
    )
    assert receipt.result(20) == "so far"


def test_the_embedded_store_stays_that_of_the_original_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is opened after the change is still that of the folder in which the client was created."""
    (tmp_path / "shop" / "below").mkdir(parents=True)
    (tmp_path / "shop" / "pyproject.toml").touch()
    (tmp_path / "other" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop" / "below")
    client = Client(Settings(redis_url="embedded://"))
    named = Client(Settings(redis_url="embedded://data", checkpoint_dir="kept"))
    monkeypatch.chdir(tmp_path / "other")
    assert project_folder(Path.cwd()) == tmp_path / "other"
    assert client.settings.redis_url == f"embedded://{tmp_path}/shop/.relier"
    assert named.settings.redis_url == f"embedded://{tmp_path}/shop/below/data"
    assert named.settings.checkpoint_dir == f"{tmp_path}/shop/below/kept"


def test_a_push_after_a_change_of_folder_opens_the_original_store(tmp_path: Path, fleet: Fleet, elsewhere: str) -> None:
    """By then the worker's loop has a connection, but blocking callers have none."""
    project = tmp_path / "shop"
    project.mkdir()
    (project / "pyproject.toml").touch()
    own = Client(Settings(redis_url=f"embedded://{project}/.relier", namespace="shop"))
    use_client(own)
    try:
        member = fleet.start(
            "worker", "tests.support.jobs.harm", cwd=project, RELIER_REDIS_URL="embedded://", RELIER_NAMESPACE="shop"
        )
        member.wait_said(" started: queues=")
        harm.change_folder.push(elsewhere).result(10)
        pushed_id = harm.push_sync.push("hello").result(20)
        assert harm.pushed.sync_receipt(pushed_id).result(20) == "hello"
        assert not (Path(elsewhere) / ".relier").exists()
        assert member.terminate(20) == 0
    finally:
        use_client(fleet.client)
        own.close()


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://host:1/0", "redis://host:1/0"),
        ("rediss://u:p%3F@h/0?ssl_ca_certs=ca.pem&db=1", "rediss://u:p%3F@h/0?ssl_ca_certs={here}/ca.pem&db=1"),
        ("rediss://h?ssl_certfile=%2Fa%20b&ssl_keyfile=k", "rediss://h?ssl_certfile=/a%20b&ssl_keyfile={here}/k"),
    ],
)
def test_file_names_in_a_url_become_absolute(
    url: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(Settings(redis_url=url)).redis_url == found.format(here=tmp_path)
