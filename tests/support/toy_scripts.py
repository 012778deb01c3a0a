"""Calls of the toy scripts in lua/."""

from __future__ import annotations

from typing import Any

from relier.store import Call, Durability


def identity(reply: Any) -> Any:
    return reply


def echo(text: str | bytes = "hello", level: Durability = Durability.MEMORY) -> Call[Any]:
    return Call("echo", "rl:{default}:", (text,), identity, level)


def put(key: str, value: str, level: Durability = Durability.MEMORY) -> Call[Any]:
    return Call("put", key, (value,), identity, level)


def count(key: str, nonce: str, level: Durability = Durability.MEMORY) -> Call[int]:
    return Call("count", key, (nonce,), int, level)


def broken() -> Call[Any]:
    return Call("broken", "k", (), identity)


def slow(milliseconds: int) -> Call[Any]:
    return Call("slow", "k", (milliseconds,), identity)


class Hands:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
