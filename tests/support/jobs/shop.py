"""Tasks of one shop; store.py has some of the same names."""

from __future__ import annotations

from relier import rl_task


@rl_task(idempotent=True)
def where(order: int) -> str:
    return f"shop {order}"
