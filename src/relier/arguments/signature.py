"""Check calls against the signature of a task function, and encode and decode their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import takewhile
from typing import Any

import msgspec

from relier.arguments.annotations import hints_of, is_context
from relier.arguments.readers import Reader, encode_one, reader_of
from relier.codec import ENCODER, PLAIN, TAG, decode, encode, pack
from relier.errors import PayloadEncodingError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NEVER = 1 << 30


class Arguments:
    """The arguments and the result of one function.

    Annotations are resolved on first use, because they may name classes that are defined later.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._name = getattr(fn, "__qualname__", repr(fn))

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Arguments:
        return cls(fn)

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The callers' parameters by name, as far as can be told without resolving annotations."""
        every = self._whole.parameters.values()
        return {each.name: each for each in every if not is_context(each.annotation)}

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes the TaskContext, if there is one."""
        every = self._whole.parameters.values()
        return next((each.name for each in every if is_context(self._hints.get(each.name, each.annotation))), None)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature as callers see it, without the context."""
        every = self._whole.parameters.values()
        return self._whole.replace(parameters=[each for each in every if each.name != self.context_parameter])

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError, as a direct call would, if these arguments do not fit the signature."""
        if self._fits(len(args), kwargs) if kwargs else self._least <= len(args) <= self._most:
            return
        trouble = self._misfit(args, kwargs)
        if trouble:
            raise TypeError(f"{self._name}() {trouble}")

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the body of a call.

        Raises TypeError if it does not fit the signature, PayloadEncodingError if a value cannot be encoded.
        """
        self.check(args, kwargs)
        if not self._readers:
            try:
                return ENCODER.encode((args if PLAIN.issuperset(map(type, args)) else pack([*args]), pack(kwargs)))
            except (ValueError, RecursionError):
                pass  # encode the arguments one by one to name the one at fault
        return self._encode_each(args, kwargs)

    def decode(self, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, with models rebuilt. Raise PayloadEncodingError if one does not fit its annotation."""
        args, kwargs = call_in(decode(body, "the payload"))
        if self._readers:
            places = zip(args, self._places(), strict=False)
            args = [read(value, what) if read else value for value, (what, read) in places]
            for key, value in kwargs.items():
                what, read = self._keyword(key)
                kwargs[key] = read(value, what) if read else value
        return tuple(args), kwargs

    def encode_result(self, value: Any) -> bytes | None:
        """Return the result as bytes, or None for None: then no result is stored."""
        try:
            return None if value is None else encode_one(value, "the result", self._result)
        except PayloadEncodingError as error:  # unlike at a push, something has happened already
            why = str(error).removesuffix("; nothing was written")
            raise PayloadEncodingError(f"{why}; the function has run, but its result was not stored") from error

    def decode_result(self, raw: bytes | None) -> Any:
        if raw is None:
            return None
        value = decode(raw, "the result")
        return self._result(value, "the result") if self._result else value

    def with_context(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the caller's arguments with the context added where the signature expects it."""
        name, before = self.context_parameter, self._before_context
        if name is None:
            return args, kwargs
        kind = self._whole.parameters[name].kind
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            args += tuple(each.default for each in before[len(args) :])  # positional-only: a keyword cannot skip them
        elif kind is inspect.Parameter.KEYWORD_ONLY or len(args) <= len(before):
            return args, {**kwargs, name: context}
        return (*args[: len(before)], context, *args[len(before) :]), kwargs

    # --- what the signature says ---------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @cached_property
    def _before_context(self) -> list[inspect.Parameter]:
        return [*takewhile(lambda each: each.name != self.context_parameter, self._whole.parameters.values())]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return hints_of(self._fn)

    @cached_property
    def _readers(self) -> dict[str, Reader]:
        found = {name: reader_of(self._hints.get(name)) for name in self.signature.parameters}
        return {name: reader for name, reader in found.items() if reader is not None}

    @cached_property
    def _result(self) -> Reader | None:
        return reader_of(self._hints.get("return"))

    @cached_property
    def _positional(self) -> list[inspect.Parameter]:
        return [each for each in self.signature.parameters.values() if each.kind in _POSITIONAL]

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
        """The parameters accepted by position, those accepted by name, and the required ones."""
        every = [each for each in self.signature.parameters.values() if each.name not in self._rest.values()]
        return (
            tuple(each.name for each in self._positional),
            frozenset(each.name for each in every if each.kind is not each.POSITIONAL_ONLY),
            frozenset(each.name for each in every if each.default is each.empty),
        )

    def _fits(self, count: int, kwargs: Mapping[str, Any]) -> bool:
        """Return True if a call certainly fits. For the rest, Signature.bind decides, which is slow."""
        positional, by_name, needed = self._names
        given = positional[:count]
        return (
            count <= len(positional)
            and by_name.issuperset(kwargs)
            and kwargs.keys().isdisjoint(given)
            and needed.issubset((*given, *kwargs))
        )

    @cached_property
    def _rest(self) -> dict[Any, str]:
        """The names of `*args` and `**kwargs`, by kind."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {each.kind: each.name for each in self.signature.parameters.values() if each.kind in kinds}

    @cached_property
    def _least(self) -> int:
        """The smallest number of positional arguments that suffices without keywords."""
        needed = [each for each in self.signature.parameters.values() if each.default is each.empty]
        if any(each.kind is each.KEYWORD_ONLY for each in needed):
            return _NEVER
        return sum(each.kind in _POSITIONAL for each in needed)

    @cached_property
    def _most(self) -> int:
        return _NEVER if inspect.Parameter.VAR_POSITIONAL in self._rest else len(self._positional)

    def _places(self) -> Iterator[tuple[str, Reader | None]]:
        """Yield, for each positional argument, its name in messages and its reader."""
        for each in self._positional:
            yield f"argument {each.name!r}", self._readers.get(each.name)
        rest, index = self._rest.get(inspect.Parameter.VAR_POSITIONAL, "?"), 0
        while True:
            yield f"argument '*{rest}' → [{index}]", self._readers.get(rest)
            index += 1

    def _keyword(self, key: str) -> tuple[str, Reader | None]:
        known = key in self.signature.parameters and key not in self._rest.values()
        parameter = key if known else self._rest.get(inspect.Parameter.VAR_KEYWORD, key)
        return f"argument {key!r}", self._readers.get(parameter)

    def _misfit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return why a call does not fit, in Python's words; empty if it does."""
        if self.context_parameter in kwargs:
            return f"got an unexpected keyword argument {self.context_parameter!r}"
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = str(error)
        else:
            return ""
        if message != "too many positional arguments":
            return f"got {message}" if message.startswith("multiple values") else message
        least, most = sum(each.default is each.empty for each in self._positional), len(self._positional)
        takes = f"from {least} to {most}" if least < most else str(most)
        were = "was" if len(args) == 1 else "were"
        return f"takes {takes} positional argument{'' if takes == '1' else 's'} but {len(args)} {were} given"

    def _encode_each(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        places = zip(args, self._places(), strict=False)
        items = [msgspec.Raw(encode_one(value, what, reader)) for value, (what, reader) in places]
        named = {}
        for key, value in kwargs.items():
            encode(key, f"the name of argument {key!r}")
            named[key] = msgspec.Raw(encode_one(value, *self._keyword(key)))
        return ENCODER.encode((items, {TAG: "dict", "v": [*named.items()]} if TAG in named else named))


def call_in(body: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments in a decoded body. Raise PayloadEncodingError if it is not a call."""
    match body:
        case [list() as args, dict() as kwargs] if all(isinstance(key, str) for key in kwargs):
            return args, kwargs
    raise PayloadEncodingError(
        "the payload is not a call, [[arguments…], {keyword: argument…}]; it was not written by Relier"
    )
