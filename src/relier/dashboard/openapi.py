"""Describe the JSON API in the OpenAPI format, from the tables of pages and actions."""

from __future__ import annotations

from typing import Any

from relier.dashboard.actions import ACTIONS
from relier.dashboard.actions.action import Action
from relier.dashboard.api import PREFIX, api_path
from relier.dashboard.pages import PAGES, DashboardPage
from relier.version import __version__

ABOUT = (
    "The data of every page, and every action of the dashboard. Send `Authorization: Bearer <token>`. With a cookie, "
    "actions also need the header `X-CSRF-Token`. With the header `Accept: text/event-stream`, `/events` is a feed of "
    "server-sent events: `change` and `missed`, each with a cursor as its id; `Last-Event-ID` or `since` continues one."
    " A WebSocket to the same address gets the same events as JSON texts with `event`, `id` and `data`."
)
LISTS = ("id", "pick")
ERRORS = {
    "400": "The request cannot be understood",
    "401": "No token, or an unknown one",
    "403": "A viewer may not do this, or the CSRF token is missing",
    "404": "There is no such thing",
    "409": "Refused: it changed meanwhile, or its state does not allow it",
    "503": "The store cannot be reached",
}


def description(base: str) -> dict[str, Any]:
    """Return the whole document. `base`: the prefix under which the dashboard is mounted."""
    paths: dict[str, Any] = {api_path(page).removeprefix(PREFIX): {"get": _read(page)} for page in PAGES}
    paths |= {f"/do/{action.name}": {"post": _change(action)} for action in ACTIONS.values()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Relier dashboard", "version": __version__, "description": ABOUT},
        "servers": [{"url": f"{base}{PREFIX}"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": _object({"error": {"type": "string"}}),
                "Outcome": _object(
                    {"ok": {"type": "boolean"}, "says": {"type": "string"}, "action": {"type": "string"}}
                ),
            },
        },
    }


def _read(page: DashboardPage) -> dict[str, Any]:
    needed = {"task": "id", "batch": "id", "schedule": "name"}.get(page.name)
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": name == needed,
            "description": meaning,
            "schema": {"type": "string"},
        }
        for name, meaning in page.parameters.items()
    ]
    return {
        "operationId": f"read_{page.name}",
        "summary": page.title,
        "parameters": parameters,
        "responses": {"200": _answer("What the page shows", {"type": "object"}), **_errors("400", "401", "404", "503")},
    }


def _change(action: Action) -> dict[str, Any]:
    properties: dict[str, Any] = {
        name: {"description": meaning, **({"oneOf": TEXTS} if name in LISTS else {"type": "string"})}
        for name, meaning in action.fields.items()
    }
    return {
        "operationId": action.name.replace("/", "_"),
        "summary": action.title,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _object(properties)}}},
        "responses": {"200": _answer("It was done", _reference("Outcome")), **_errors(*ERRORS)},
    }


TEXTS = [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _errors(*codes: str) -> dict[str, Any]:
    return {code: _answer(ERRORS[code], _reference("Error")) for code in codes}
