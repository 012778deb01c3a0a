"""Open the client of the process when the application starts, and close it when the application ends.

app = FastAPI(lifespan=relier_lifespan())
app = FastAPI(lifespan=relier_lifespan(own_lifespan))
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from relier.errors import ConfigurationError, StoreUnavailableError
from relier.settings import Settings
from relier.submit.client import Client, default_client, has_stand_in, place_of, use_client

log = logging.getLogger("relier.fastapi")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def relier_lifespan(own: Lifespan | None = None, *, settings: Settings | None = None) -> Lifespan:
    """Return a lifespan for FastAPI or Starlette. `own`: the application's own lifespan, entered inside this one.

    If the store is unreachable, the application still starts: pushes raise until the store is back. A wrong
    configuration, such as a refused password, ends the start. In a test with `relier_pushed`, `relier_inline` or
    `relier_store`, the application pushes there, whatever its settings.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        own_client = None if settings is None or has_stand_in() else Client(settings)
        if own_client is not None:
            use_client(own_client)
        client = default_client()
        await _open(client)
        try:
            if own is None:
                yield {}
            else:
                async with own(app) as state:
                    yield state or {}
        finally:
            if not client.is_stand_in:
                await client.aclose()
            if own_client is not None:
                use_client(None)

    return lifespan


async def _open(client: Client) -> None:
    for shard in client.shards:
        place = place_of(shard.settings)
        try:
            await shard.aopen()
        except ConfigurationError:
            raise
        except StoreUnavailableError as error:
            log.warning("the store is unreachable, pushes fail until it is back: %s (%s)", place, error)
        else:
            log.info("connected: %s", place)


def get_client() -> Client:
    """Return the client of the process, for `Depends(get_client)`."""
    return default_client()
