"""Seeded bugs in the birth mark of a namespace."""

from __future__ import annotations

from functools import partial
from typing import Any

from proof.model.model import Model
from proof.mutants.mutant import Mutant, register

MUTANTS: list[Mutant] = []
_bug = partial(register, MUTANTS)


@_bug("whoever opens a namespace gives it a new mark", "emptied", "wiped")
class BornAtEveryOpen(Model):
    def _open(self, args: list[bytes]) -> Any:
        self.born = ""
        return super()._open(args)


@_bug("a store that was emptied gets the mark it had", "emptied", "wiped")
class BornTheSame(Model):
    def _open(self, args: list[bytes]) -> Any:
        self.born = self.born or args[2].decode()
        return super()._open(args)


@_bug("a process that remembers nothing is taken for one that saw the store emptied", "emptied", "wiped")
class NewcomersRemember(Model):
    def _open(self, args: list[bytes]) -> Any:
        return super()._open([*args[:2], args[2] or b"before"])


@_bug("nobody notes that the store was emptied", "emptied", "wiped")
class EmptiedUnnoted(Model):
    def _open(self, args: list[bytes]) -> Any:
        return super()._open([*args[:2], b""])


@_bug("a submit does not tell the mark", "emptied", "wiped")
class SubmitWithoutMark(Model):
    def _submit(self, args: list[bytes]) -> Any:
        answer = super()._submit(args)
        return answer if answer[0] == b"refused" else [answer[0], b"", *answer[2:]]


@_bug("a task that is gone is told without the mark", "emptied")
class MissingWithoutMark(Model):
    def _get(self, args: list[bytes]) -> Any:
        answer = super()._get(args)
        return [*answer[:6], *(b"" for _ in answer[6:])]
