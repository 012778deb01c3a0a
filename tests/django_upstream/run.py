"""Run the tests of Django's tasks (django/tests/tasks, or those of django-tasks) against our backend.

    python -m tests.django_upstream.run <folder of the tests> [words for unittest]

The folder is copied, and Django's dummy and immediate backends are replaced by ours (adapters.py). Failures that are
no fault are listed here with their reasons; any other fails the run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

CONTRIB = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")]
EXPECTED = {
    "test_cannot_get_result": "our backend supports get_result",
    "test_cannot_refresh_result": "our backend supports refresh",
    "test_cannot_pass_run_after": "our backend supports run_after",
    "test_throws_keyboard_interrupt": "the task runs in a worker, so its KeyboardInterrupt does not reach the caller",
    "DummyBackendTestCase.test_refresh_result": "changes an object in the dummy backend's memory, and reads it back",
    "DummyBackendTestCase.test_refresh_result_async": "the same, asynchronously",
    "ImmediateBackendTestCase.test_get_result_from_different_request": "our backend supports get_result",
}


def main(folder: Path, words: list[str]) -> int:
    copied = Path(tempfile.mkdtemp())
    try:
        for source in set(folder.rglob("*.py")) - set(folder.rglob("test_compat.py")):  # that one is about Django's own
            target = copied / package_of(folder) / source.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(with_our_backends(source.read_text()))
        os.environ["RELIER_REDIS_URL"] = f"embedded://{copied / 'store'}"
        sys.path.insert(0, str(copied))
        return run(copied, package_of(folder), words)
    finally:
        shutil.rmtree(copied, ignore_errors=True)


def with_our_backends(text: str) -> str:
    text = re.sub(r"django[._]tasks\.backends\.(dummy|immediate)\b", "tests.django_upstream.adapters", text)
    text = re.sub(r"\bfrom tests import", "from upstream import", text)
    return re.sub(r"\btests\.(tasks|tests|urls|views)\b", r"upstream.\1", text)


def package_of(folder: Path) -> str:
    """Return the package that the copied tests are in. `tests` is ours, so that of django-tasks gets another name."""
    return "upstream" if folder.name == "tests" else folder.name


def run(folder: Path, package: str, words: list[str]) -> int:
    import django
    from django.conf import settings

    library = [] if django.VERSION >= (6,) else ["django_tasks"]
    databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    more = {"SECRET_KEY": "tests", "USE_TZ": True, "ALLOWED_HOSTS": ["*"]}
    if (folder / package / "urls.py").exists():
        more["ROOT_URLCONF"] = f"{package}.urls"
    settings.configure(DATABASES=databases, INSTALLED_APPS=["relier.django", *library, *CONTRIB], **more)
    django.setup()
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in words] or None
    suite = loader.discover(str(folder / package), top_level_dir=str(folder))
    done = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = sorted({short_name(test) for test, _ in [*done.failures, *done.errors]})
    wrong = [name for name in failed if reason_of(name) is None]
    print(f"{done.testsRun} tests, {len(failed)} failed, {len(wrong)} of them unexpected")
    for name in failed:
        print(f"  {name}: {reason_of(name) or 'UNEXPECTED'}")
    return 1 if wrong else 0


def short_name(test: unittest.TestCase) -> str:
    """Return `Class.test`, also for a subtest."""
    words = test.id().split()[0].split(".")
    return ".".join(words[-2:])


def reason_of(name: str) -> str | None:
    return EXPECTED.get(name) or EXPECTED.get(name.rpartition(".")[2])


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(code)  # the workers' threads do not end by themselves
