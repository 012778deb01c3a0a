"""Tasks that request a durability level, as `rl doctor` imports them."""

from __future__ import annotations

from relier import rl_task


@rl_task
def somewhere() -> None: ...


@rl_task(durability="fsync")
def on_disk() -> None: ...


@rl_task(durability="replicated")
def everywhere() -> None: ...
