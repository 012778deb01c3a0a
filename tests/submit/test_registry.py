"""A task's name is the same wherever its module is imported, run or named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relier import ConfigurationError, WorkerInitializationError, registry, rl_task
from relier.task import RlTask

CODE = """
from relier import rl_task

@rl_task
def add(a: int, b: int) -> int:
    return a + b

class Shop:
    @rl_task
    @staticmethod
    def sell(a: int) -> int:
        return a

if __name__ == "__main__":
    print(add.name, Shop.sell.name)
"""
NAMES = "import {module} as m; print(m.add.name, m.Shop.sell.name)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with jobs.py, and the package shop with its own jobs.py and a __main__.py."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for file in ("jobs.py", "shop/jobs.py", "shop/__main__.py"):
        (tmp_path / file).write_text(CODE)
    return tmp_path


def python(folder: Path, *args: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
    done = subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_script_has_the_name_under_which_it_is_imported(project: Path) -> None:
    assert python(project, "jobs.py") == "jobs.add jobs.Shop.sell"
    assert python(project, "-c", NAMES.format(module="jobs")) == "jobs.add jobs.Shop.sell"


def test_a_script_has_the_same_name_wherever_it_is_run_from(project: Path) -> None:
    assert python(project.parent, str(project / "jobs.py")) == "jobs.add jobs.Shop.sell"
    loaded = "from relier import registry as r; r.load([{!r}]); print(*(t.name for t in r.known_tasks()))"
    assert python(project.parent, "-c", loaded.format(str(project / "jobs.py"))) == "jobs.add jobs.Shop.sell"


def test_a_file_of_a_package_has_the_name_that_producers_import(project: Path) -> None:
    names = "shop.jobs.add shop.jobs.Shop.sell"
    loaded = "from relier import registry as r; r.load([{!r}]); print(*(t.name for t in r.known_tasks()))"
    assert python(project, "-c", loaded.format("shop/jobs.py")) == names
    assert python(project, "shop/jobs.py") == names
    assert python(project / "shop", "-c", loaded.format("jobs.py")) == "jobs.add jobs.Shop.sell"


def test_a_module_run_by_python_m_is_known_by_its_module(project: Path) -> None:
    assert python(project, "-m", "shop.jobs") == "shop.jobs.add shop.jobs.Shop.sell"
    assert python(project, "-c", NAMES.format(module="shop.jobs")) == "shop.jobs.add shop.jobs.Shop.sell"


def test_a_package_run_by_python_m_is_known_by_what_a_worker_imports(project: Path) -> None:
    assert python(project, "-m", "shop") == python(project, "-c", NAMES.format(module="shop.__main__"))


def test_a_module_run_and_imported_in_one_process_has_one_name(project: Path) -> None:
    """As when a helper of a script imports the script."""
    (project / "helper.py").write_text("import jobs\n")
    (project / "jobs.py").write_text("import helper\n" + CODE)
    assert python(project, "jobs.py") == "jobs.add jobs.Shop.sell"


VALUES = """
import sys
from enum import Enum
from relier import codec
from relier.failure import Failure

class Colour(Enum):
    RED = (1, 2)

class Refused(Exception):
    pass

def written() -> str:
    return codec.encode(Colour.RED).decode()

def read(raw: str) -> bool:
    return codec.decode(raw.encode()) is Colour.RED and type(Failure("paint:Refused", "no").rebuild()) is Refused

if __name__ == "__main__":
    print(read(sys.argv[1]) if sys.argv[1:] else written())
"""


@pytest.mark.parametrize("imported_too", [False, True])
def test_tasks_of_a_script_are_found_by_importers_and_vice_versa(project: Path, imported_too: bool) -> None:
    """This covers enums in payloads and results, and the exceptions that a task died of."""
    (project / "helper.py").write_text("import paint\n")
    (project / "paint.py").write_text(("import helper\n" if imported_too else "") + VALUES)
    importing = "import sys, paint; print(paint.read(sys.argv[1]) if sys.argv[1:] else paint.written())"
    by_the_script, by_its_worker = python(project, "paint.py"), python(project, "-c", importing)
    assert by_the_script == by_its_worker == '{"~":"enum","t":"paint:Colour","v":"RED"}'
    assert python(project, "-c", importing, by_the_script) == "True"
    assert python(project, "paint.py", by_its_worker) == "True"


def test_code_without_a_file_has_a_name_too(project: Path) -> None:
    code = "from relier import rl_task\n@rl_task\ndef add(): ...\nprint(add.name)"
    assert python(project, "-c", code) == "__main__.add"


def test_two_functions_may_not_share_one_name() -> None:
    @rl_task(name="tests.submit.taken")
    def one() -> None: ...

    with pytest.raises(ConfigurationError, match=r"two tasks have the name 'tests\.submit\.taken'"):

        @rl_task(name="tests.submit.taken")
        def other() -> None: ...

    assert registry.find("tests.submit.taken") is one


def test_a_module_imported_again_replaces_its_tasks() -> None:
    def make() -> RlTask[[], None]:
        @rl_task
        def again() -> None: ...

        return again

    make()
    second = make()
    assert registry.find(second.name) is second


def test_an_unknown_name_is_not_found() -> None:
    assert registry.find("nobody.knows") is None


def test_a_module_that_cannot_be_imported_is_reported_with_its_cause(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "broken_jobs.py").write_text("1 / 0")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module, cause in (("broken_jobs", "ZeroDivisionError"), ("no.such.jobs", "ModuleNotFoundError")):
        with pytest.raises(WorkerInitializationError, match=cause):
            registry.load([module])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["elsewhere/jobs.py"], "there is no file 'elsewhere/jobs.py' in "),
        (["plain/email.py"], "another module has the name 'email' ({lib}/email/__init__.py); rename"),
        (["plain/same_jobs.py", "other/same_jobs.py"], "another module has the name 'same_jobs' ({project}/plain/same"),
        (["needs.py"], "cannot be imported: KeyError: 'DB_URL' ({project}/needs.py, line 2); correct that"),
        (["typo.py"], "cannot be imported: SyntaxError: invalid syntax (typo.py, line 1) ({project}/typo.py, line 1)"),
        (["absent.py"], "ModuleNotFoundError: No module named 'nobody_has_it' ({project}/absent.py, line 1)"),
        (["nobody_has_it"], "No module named 'nobody_has_it'); give its name as in an import statement"),
    ],
)
def test_a_problem_with_a_file_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], says: str
) -> None:
    for file in ("plain/email.py", "plain/same_jobs.py", "other/same_jobs.py"):
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).touch()
    (project / "needs.py").write_text("import os\nos.environ['DB_URL']\n")
    (project / "typo.py").write_text("this is no Python\n")
    (project / "absent.py").write_text("import nobody_has_it\n")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("DB_URL", raising=False)
    with pytest.raises(WorkerInitializationError) as caught:
        registry.load(files)
    assert says.format(project=project, lib=Path(os.__file__).parent) in str(caught.value)
    sys.modules.pop("same_jobs", None)
