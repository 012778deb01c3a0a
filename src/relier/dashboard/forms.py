"""Read the fields of a form. Forms of the dashboard are small, and have no files."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from relier.errors import InvalidSubmissionError

MOST_BYTES = 2 * 1024 * 1024
MOST_FIELDS = 2_000


async def body_of(request: Request) -> bytes:
    """Return the body of a request, at most MOST_BYTES."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise InvalidSubmissionError(f"the request is too large; at most {MOST_BYTES:,} bytes")
    return b"".join(parts)


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return name -> values of a form."""
    try:
        text = (await body_of(request)).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise InvalidSubmissionError(f"the form cannot be read: {error}") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found
