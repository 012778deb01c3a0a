"""One seeded bug: a model, or a worker, that differs from the correct one in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proof.model.model import Model
from proof.simulator.actors import Worker


@dataclass(frozen=True, slots=True)
class Mutant:
    """`profiles`: the profiles, or the directed schedules, that are likely to find it."""

    name: str
    about: str
    model: type[Model]
    profiles: tuple[str, ...]
    worker: type[Worker] = Worker


def register(into: list[Mutant], about: str, *profiles: str) -> Callable[[type[Model]], type[Model]]:
    """Register a mutant under the name of its class."""

    def declare(model: type[Model]) -> type[Model]:
        into.append(Mutant(model.__name__, about, model, profiles or ("mixed",)))
        return model

    return declare


def register_worker(into: list[Mutant], about: str, *profiles: str) -> Callable[[type[Worker]], type[Worker]]:
    """Register a worker with a bug, on the correct model."""

    def declare(worker: type[Worker]) -> type[Worker]:
        into.append(Mutant(worker.__name__, about, Model, profiles, worker))
        return worker

    return declare
