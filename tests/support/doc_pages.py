"""Run the code blocks of documentation pages: write their files, run their commands, and compare the output.

    ```python            a block that begins with `# name.py` is a file
    ```console           `$ …` is a command, the lines below it are its expected output; `…` stands for any lines

`export NAME=…` applies to all commands below it.

A command that does not end (`rl worker`, `rl dev`, relays, web servers) is started and left running, as in its own
terminal, until the next command of its kind. Its output is not compared. A file in a folder is part of a framework's
project, which imports it.

Ids, workers, processes, times and folders differ from run to run, so only their form is compared. If a later command
contains an id from the page, it gets the real id of this run.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import free_port

PORT = "8321"  # of the web server in a page; another one here, for two may run at once
PATIENCE_S = 30.0
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STAYS = {  # what it says when it is ready
    "rl worker": " started: queues=",
    "rl dev": " started: queues=",
    "python manage.py relier_worker": " started: queues=",
    "rl outbox relay": " relay started: ",
    "python manage.py relier_relay": "Relay started: ",
    "uvicorn": "Uvicorn running on",  # only then does it listen
}
CHANGES = re.compile(
    r"rl (dlq replay|dlq discard|tasks cancel|queues pause|queues resume|outbox replay|outbox purge|outbox forget"
    r"|admission reset|limits set|limits clear|schedules (?:add|pause|resume|run|remove))"
    r"|python|kill|echo|cat|curl|for |pytest"
)

ID = re.compile(r"\b[0-9a-f]{32}\b")
# asyncio's debug mode, which unittest turns on, reports a step that took over 100 ms: the machine was busy.
SLOW_CALLBACK = re.compile(r"^Executing <.*> took \d+\.\d+ seconds\n", re.MULTILINE)
BOOT = re.compile(r"\b([\w-]+)\.(\d+)\.[0-9a-f]{5,}\b")
SPAN = r"\d[\d.,]* (?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"
VARIES = [
    (re.compile(r"\b(?:(?:[A-Z][a-z]{2} )?\d{4}-\d\d-\d\d|[A-Z][a-z]{2} \d\d) (?=\d\d:)"), ""),
    (re.compile(r"\d\d:\d\d:\d\d(?:,\d+)?"), "<time>"),
    (re.compile(rf"just now|(?<=  )now(?=  )|in {SPAN}|{SPAN} ago"), "<ago>"),
    (re.compile(SPAN), "<span>"),
    (re.compile(r"\bin \d+\.\d\d\d?s\b"), "<ago>"),
    (re.compile(r"Checked \d+ keys"), "Checked <n> keys"),  # outcomes have a key for each minute
    (re.compile(r"embedded:///\S+"), "<store>"),
    (re.compile(r'"[^"\s]*/([^/"\s]+\.py)"'), r'"\1"'),
    (ID, "<id>"),
]


@dataclass
class Step:
    """A file to write, or a command with its expected output."""

    file: str = ""
    command: str = ""
    lines: list[str] = field(default_factory=list)


def steps_of(page: Path) -> list[Step]:
    steps = []
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "python":
            name = re.match(r"# (\S+\.py)\n", text)
            assert name, f"{page.name}: a python block must begin with `# name.py`:\n{text}"
            steps.append(Step(file=name[1], lines=[text]))
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                steps.append(Step(command=line[2:]))
            else:
                steps[-1].lines.append(line)
    return steps


class Terminal:
    """A folder with its own store, and the processes that were started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyproject.toml").touch()  # the embedded store lives with the project
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith(("RELIER_", "PYTEST_"))}
        self._environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self._environment["TZ"] = "UTC"  # pages show local times with their zone
        self._environment["PYTEST_ADDOPTS"] = "-p no:asyncio"  # as if it were not installed
        self._log = folder / "worker.log"
        self._staying: dict[str, subprocess.Popen[bytes]] = {}  # by what they say
        self._reloads = False
        self._real = {PORT: str(free_port())}  # what the page calls it -> what it is here

    def run(self, page: Path) -> None:
        for step in steps_of(page):
            if step.file:
                self._write(step)
            elif step.command.startswith(tuple(STAYS)):
                self._stay(step.command)
            elif step.command.startswith("export "):
                self._export(step.command)
            else:
                self._compare(step)

    def close(self) -> None:
        for word in list(self._staying):
            self._end(word)

    def _end(self, word: str) -> None:
        staying = self._staying.pop(word, None)
        if staying is not None and staying.poll() is None:
            staying.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                staying.wait(15)
            staying.kill()
            staying.wait()

    def _write(self, step: Step) -> None:
        began, file = self._began(" started: queues="), Path(step.file)
        (self.folder / file).write_text(step.lines[0])
        alone = file.parent == Path()
        self._compare(Step(command=f"python -c 'import {file.stem}'" if alone else f"python -m py_compile {file}"))
        if self._reloads:
            self._wait_for(" started: queues=", began + 1)

    def _export(self, command: str) -> None:
        name = command.removeprefix("export ").partition("=")[0]
        shell = ["/bin/sh", "-c", f'{command}; printf %s "${name}"']
        said = subprocess.check_output(shell, cwd=self.folder, env=self._environment, text=True, timeout=60)
        self._environment[name] = said

    def _stay(self, command: str) -> None:
        word = next(said for kind, said in STAYS.items() if command.startswith(kind))
        self._end(word)
        began = self._began(word)
        self._reloads = command.startswith("rl dev") or (self._reloads and word != " started: queues=")
        with self._log.open("ab") as log:
            self._staying[word] = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._here(command)}"],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self._wait_for(word, began + 1)

    def _began(self, word: str) -> int:
        return self._log.read_text().count(word) if self._log.exists() else 0

    def _wait_for(self, word: str, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._began(word) < count:
            assert time.monotonic() < until, f"nothing started:\n{self._log.read_text()}"
            time.sleep(0.1)

    def _compare(self, step: Step) -> None:
        """Run a command, compare its output. A read-only command is repeated for a while until its output matches."""
        command = self._here(step.command)
        patience = 0.0 if CHANGES.match(step.command) else PATIENCE_S
        until = time.monotonic() + patience
        while True:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            pairs = matched(step.lines, SLOW_CALLBACK.sub("", done.stdout).splitlines())
            if pairs is not None:
                break
            should = "\n".join(step.lines)
            assert time.monotonic() < until, f"$ {command}\nshould print\n{should}\n\nbut prints\n{done.stdout}"
            time.sleep(0.3)
        for said, real in pairs:
            self._learn(said, real)

    def _learn(self, said: str, real: str) -> None:
        for what in (ID, BOOT):
            for ours, theirs in zip(what.finditer(said), what.finditer(real), strict=True):
                self._real[ours[0]] = theirs[0]
                if what is BOOT:
                    self._real[ours[2]] = theirs[2]

    def _here(self, command: str) -> str:
        for said in sorted(self._real, key=len, reverse=True):
            command = re.sub(rf"\b{re.escape(said)}\b", self._real[said], command)
        return command


def matched(said: list[str], real: list[str]) -> list[tuple[str, str]] | None:
    """Pair each line of the page with a line of the output, ignoring empty lines. Return None if they do not match."""
    left = [line for line in real if line.strip()]
    pairs, skip = [], False
    for line in (line for line in said if line.strip()):
        if line.strip() == "…":
            skip = True
            continue
        while skip and left and plain(line) != plain(left[0]):
            left.pop(0)
        place = place_of(line, left)
        if place is None:
            return None
        pairs.append((line, left.pop(place)))
        skip = False
    return pairs if skip or not left else None


def place_of(line: str, left: list[str]) -> int | None:
    """Return the index of the line that matches: the next one or, for the row of a task, any of the following rows.

    Tasks that ended in the same millisecond are listed in any order.
    """
    for place, row in enumerate(left):
        if plain(row) == plain(line):
            return place
        if not (plain(line).startswith("<id> ") and plain(row).startswith("<id> ")):
            return None
    return None


def plain(line: str) -> str:
    """Return a line without the parts that differ from run to run."""
    for host, pid in {(boot[1], boot[2]) for boot in BOOT.finditer(line)}:
        line = BOOT.sub("<boot>", line)
        line = re.sub(rf"\b{pid}\b", "<pid>", re.sub(rf"\b{re.escape(host)}\b", "<host>", line))
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return " ".join(line.split())
