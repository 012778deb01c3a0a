"""Check calls against the signature of a task function, and encode and decode their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from relier.arguments.annotations import hints_of, is_context, is_task_context
from relier.arguments.depends import INJECTED, Dependency, dependency_in, looks_injected
from relier.arguments.readers import Reader, encode_one, reader_of
from relier.codec import ENCODER, PLAIN, TAG, decode, encode, pack
from relier.errors import ConfigurationError, PayloadEncodingError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NEVER = 1 << 30
_PUSH_OPTIONS = {"countdown": "delay"} | {
    name: name for name in ("delay", "eta", "expires", "priority", "queue", "task_id", "durability", "idempotency_key")
}


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
        """The callers' parameters by name, as far as is known without resolving annotations."""
        every = self._whole.parameters.values()
        return {each.name: each for each in every if not is_context(each.annotation) and not looks_injected(each)}

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes the TaskContext, if there is one."""
        every = self._whole.parameters.values()
        return next((each.name for each in every if is_context(self._hints.get(each.name, each.annotation))), None)

    @cached_property
    def dependencies(self) -> dict[str, Dependency]:
        """The parameters that `Depends(…)` fills in, by name."""
        every = self._whole.parameters.values()
        found = {each.name: dependency_in(each, self._hints.get(each.name)) for each in every}
        return {name: dependency for name, dependency in found.items() if dependency is not None}

    @cached_property
    def injected(self) -> frozenset[str]:
        """The names of the parameters that callers do not pass: the context and the dependencies."""
        context = () if self.context_parameter is None else (self.context_parameter,)
        found = frozenset((*context, *self.dependencies))
        for each in self._whole.parameters.values():
            unread = each.name not in self._hints and looks_injected(each)
            if each.name not in found and (unread or each.default is INJECTED):
                raise ConfigurationError(
                    f"{self._name}(): nothing can fill in the parameter {each.name!r}, because its annotation "
                    f"{each.annotation!r:.80} has neither a Depends(…) nor a TaskContext that can be read at run time; "
                    f"import the names it uses outside `if TYPE_CHECKING:`, or make Depends(…) the default"
                )
        return found

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature as callers see it, without injected parameters."""
        every = self._whole.parameters.values()
        return self._whole.replace(parameters=[each for each in every if each.name not in self.injected])

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError, as a direct call would, if these arguments do not fit the signature."""
        if self._fits(len(args), kwargs) if kwargs else self._least <= len(args) <= self._most:
            return
        trouble = self._misfit(args, kwargs)
        if trouble:
            raise TypeError(f"{self._name}() {trouble}{self._advice(kwargs)}")

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the body of a call.

        Raise TypeError if the arguments do not fit the signature, PayloadEncodingError if a value cannot be encoded.
        """
        self.check(args, kwargs)
        if not self._readers:
            try:
                return ENCODER.encode((args if PLAIN.issuperset(map(type, args)) else pack([*args]), pack(kwargs)))
            except (ValueError, RecursionError):
                pass  # encode the arguments one by one to name the one at fault
        return self._encode_each(args, kwargs)

    def encode_after(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the body of a call whose first argument is added later, in front of these."""
        self.check((None, *args), kwargs)
        return self._encode_each(args, kwargs, skip=1)

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
        name = self.context_parameter
        return (args, kwargs) if name is None else self.with_injected(args, kwargs, {name: context})

    def with_injected(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], values: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the caller's arguments with these values, by parameter, added where the signature expects them."""
        rest, placed, named = list(args), [], dict(kwargs)
        for each in self._whole.parameters.values():
            by_position = each.kind is each.POSITIONAL_ONLY or (bool(rest) and each.kind is each.POSITIONAL_OR_KEYWORD)
            if each.name in values and by_position:
                placed.append(values[each.name])
            elif each.name in values:
                named[each.name] = values[each.name]
            elif rest and by_position:
                placed.append(rest.pop(0))
            elif each.kind is each.POSITIONAL_ONLY and each.name in self._before_injected:
                placed.append(each.default)  # a keyword cannot skip it
        return (*placed, *rest), named

    def passed_directly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[str]:
        """Return the parameters that a direct call of the function passes. It may leave out the context."""
        if self.context_parameter is not None and not any(map(is_task_context, (*args, *kwargs.values()))):
            every = [each for each in self._whole.parameters.values() if each.name != self.context_parameter]
            needed = {each.name for each in every if each.default is each.empty and each.kind not in _REST}
            with suppress(TypeError):
                given = frozenset(self._whole.replace(parameters=every).bind_partial(*args, **kwargs).arguments)
                if given.issuperset(needed - self.injected):
                    return given  # otherwise, something else was passed as the context
        return frozenset(self._whole.bind_partial(*args, **kwargs).arguments)

    # --- what the signature says ---------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @cached_property
    def _before_injected(self) -> frozenset[str]:
        """The names of the parameters before the last injected positional-only parameter."""
        every = list(self._whole.parameters.values())
        last = max(
            (n for n, e in enumerate(every) if e.name in self.injected and e.kind is e.POSITIONAL_ONLY), default=0
        )
        return frozenset(each.name for each in every[:last])

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
        return {each.kind: each.name for each in self.signature.parameters.values() if each.kind in _REST}

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
        """Return Python's message about a call that does not fit, or an empty string if it fits."""
        for name in self.injected.intersection(kwargs):
            return f"got an unexpected keyword argument {name!r}"
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

    def _advice(self, kwargs: Mapping[str, Any]) -> str:
        """Return advice if the call passed an option of a push to `push` itself."""
        for option in (name for name in kwargs if name in _PUSH_OPTIONS and name not in self.signature.parameters):
            return f"; options of a push go into with_options({_PUSH_OPTIONS[option]}=…).push(…)"
        return ""

    def _encode_each(self, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int = 0) -> bytes:
        places = zip(args, islice(self._places(), skip, None), strict=False)
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
        "the payload is not a call, [[arguments…], {keyword: argument…}]; another program wrote it, or its bytes were "
        "changed; push the task again"
    )
