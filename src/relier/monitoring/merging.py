"""Merge the metrics of several processes into one page: each sample gets the label `process`.

The label is the number of a place under a supervisor, not a process id: a process that is started again takes the place
of the one that ended, so the number of series is bounded. A sum would be wrong: when one process starts again, its
counters begin at 0, the sum drops, and Prometheus takes that for a restart of all processes.
"""

from __future__ import annotations

from collections.abc import Mapping

LABEL = "process"


def merged(pages: Mapping[str, bytes]) -> bytes:
    """Return one page of metrics, from the pages of processes by their label."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, page in pages.items():
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if line not in heads.setdefault(family, []):
                    heads[family].append(line)
            elif line:
                samples.setdefault(family, []).append(labelled(line, process))
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in lines).encode()


def labelled(sample: str, process: str) -> str:
    """Return a line of a page with the label `process` added."""
    at = min(found for found in (sample.find("{"), sample.find(" ")) if found >= 0)
    rest = sample[at + 1 :] if sample[at] == "{" else f"}}{sample[at:]}"
    comma = "" if rest.startswith("}") else ","
    return f'{sample[:at]}{{{LABEL}="{process}"{comma}{rest}'
