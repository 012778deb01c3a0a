"""Provide the dependencies of one call of a task: call their providers before it, and clean up after it.

An `async def` task gets all its dependencies on the event loop. A `def` task gets those that need the loop there, and
the others in its own thread, where libraries with thread-local state expect to be used. Generators clean up in the
reverse order, where they were started. They see the error of a failed task and cannot hide it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any

from relier.arguments.depends import Dependency
from relier.arguments.signature import Arguments
from relier.errors import ConfigurationError

Provider = Callable[..., Any]

overrides: dict[Provider, Provider] = {}  # tests replace providers here


class Dependencies:
    """Hold the dependencies of one call. Enter this object with `async with` on the loop, then, if the task runs in a
    thread, with `with` in that thread.

    `values` holds them by parameter. `on_loop`: provide all of them on the event loop, as for an `async def`. `given`:
    the parameters that the caller passed.
    """

    def __init__(
        self, arguments: Arguments, context: Any, *, on_loop: bool, given: frozenset[str] = frozenset()
    ) -> None:
        self._wanted = {name: each for name, each in arguments.dependencies.items() if name not in given}
        self.for_loop = [name for name, each in self._wanted.items() if async_provider(each) or on_loop]
        self._context = context
        self._cache: dict[Provider, Any] = {}
        self._loop_stack = AsyncExitStack()
        self._thread_stack = ExitStack()
        self.values: dict[str, Any] = {}

    async def __aenter__(self) -> Dependencies:
        try:
            for name in self.for_loop:
                self.values[name] = await self._provide_on_loop(self._wanted[name])
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._loop_stack.__aexit__(*error)

    def __enter__(self) -> Dependencies:
        try:
            for name, each in self._wanted.items():
                if name not in self.values:
                    self.values[name] = self._provide_here(each)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread_stack.__exit__(*error)

    async def _provide_on_loop(self, dependency: Dependency) -> Any:
        provider = provider_of(dependency)
        if dependency.cached and provider in self._cache:
            return self._cache[provider]
        arguments = arguments_of(provider)
        values = {name: await self._provide_on_loop(each) for name, each in arguments.dependencies.items()}
        args, kwargs = self._with_context(provider, arguments, values)
        if inspect.isasyncgenfunction(provider) or inspect.isgeneratorfunction(provider):
            value = await self._loop_stack.enter_async_context(_managed(provider, args, kwargs))
        else:
            value = provider(*args, **kwargs)
            value = await value if inspect.isawaitable(value) else value
        if dependency.cached:
            self._cache[provider] = value
        return value

    def _provide_here(self, dependency: Dependency) -> Any:
        provider = provider_of(dependency)
        if dependency.cached and provider in self._cache:
            return self._cache[provider]
        arguments = arguments_of(provider)
        values = {name: self._provide_here(each) for name, each in arguments.dependencies.items()}
        args, kwargs = self._with_context(provider, arguments, values)
        if inspect.isgeneratorfunction(provider):
            value = self._thread_stack.enter_context(contextmanager(provider)(*args, **kwargs))
        else:
            value = provider(*args, **kwargs)
        if dependency.cached:
            self._cache[provider] = value
        return value

    def _with_context(
        self, provider: Provider, arguments: Arguments, values: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if arguments.context_parameter is not None:
            if self._context is None:
                raise TypeError(
                    f"the dependency {name_of(provider)} needs a context, and there is none outside a running task; "
                    f"pass the value of the parameter, or enter `with relier.testing.context(state=…):` in tests"
                )
            values = {**values, arguments.context_parameter: self._context}
        return arguments.with_injected((), {}, values)


def provider_of(dependency: Dependency) -> Provider:
    """Return the function to call: the override of a test, or the provider itself."""
    return overrides.get(dependency.provider, dependency.provider)


@lru_cache(maxsize=4096)
def arguments_of(provider: Provider) -> Arguments:
    """Return the arguments of a provider. Raise ConfigurationError if it has parameters that nothing fills in."""
    arguments = Arguments.of(provider)
    needed = [each.name for each in arguments.signature.parameters.values() if _is_needed(each)]
    if needed:
        raise ConfigurationError(
            f"the dependency {name_of(provider)} has the parameter {needed[0]!r}, "
            f"which nothing fills in; give it a default, Depends(…) or the annotation TaskContext"
        )
    return arguments


def _is_needed(parameter: inspect.Parameter) -> bool:
    rest = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in rest


def async_provider(dependency: Dependency, above: tuple[Provider, ...] = ()) -> Provider | None:
    """Return an async provider that a dependency needs, directly or indirectly, or None."""
    provider = provider_of(dependency)
    if provider in above:
        names = " → ".join(name_of(each) for each in (*above, provider))
        raise ConfigurationError(f"the dependencies {names} need each other; break the cycle")
    for each in arguments_of(provider).dependencies.values():
        if (found := async_provider(each, (*above, provider))) is not None:
            return found
    kinds = (provider, type(provider).__call__)
    is_async = any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in kinds)
    return provider if is_async else None


def name_of(provider: Provider) -> str:
    return str(getattr(provider, "__qualname__", provider))


def _managed(provider: Provider, args: Any, kwargs: Any) -> AbstractAsyncContextManager[Any]:
    """Return a generator as an async context manager, whichever kind of generator it is."""
    if inspect.isasyncgenfunction(provider):
        return asynccontextmanager(provider)(*args, **kwargs)

    @asynccontextmanager
    async def around() -> Any:
        with contextmanager(provider)(*args, **kwargs) as value:
            yield value

    return around()
