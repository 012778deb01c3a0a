"""Carry out actions: the preview of a bulk action, the role and CSRF checks, the record of who did what."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from relier.cli.namespace_reads import NamespaceReads
from relier.dashboard import action_log
from relier.dashboard.actions import ACTIONS
from relier.dashboard.actions.action import Action, ActionForm, ActionOutcome
from relier.dashboard.actions.tasks import MOST
from relier.dashboard.api import is_api, json_response
from relier.dashboard.forms import body_of, form_of
from relier.dashboard.problems import NotAllowedError, problem_of
from relier.dashboard.query import Query
from relier.dashboard.reads.tasks import RecordFilter, read_some, records_of
from relier.dashboard.rendering import render
from relier.dashboard.security.access import DashboardUser
from relier.dashboard.security.protection import trouble_with
from relier.dashboard.session import DashboardSession
from relier.errors import InvalidSubmissionError
from relier.ledger.records import Record
from relier.states import LIVE, State

FITTING = {
    "tasks/cancel": tuple(LIVE),
    "tasks/replay": (State.DEAD,),
    "tasks/discard": (State.DEAD, State.DONE, State.CANCELLED),
}
EFFECTS = {
    "tasks/cancel": "Waiting tasks end as cancelled. Running ones are asked to stop.",
    "tasks/replay": "Each task is queued again under its id, and continues from its checkpoint and steps.",
    "tasks/discard": "Records and their history are removed for good. This cannot be undone.",
}


async def preview(request: Request, user: DashboardUser) -> Response:
    """Show what an action on several tasks would do. Nothing is changed."""
    given = await _checked_form(request, user)
    form, name = ActionForm(given), ActionForm(given).needed("action")
    if name not in FITTING:
        raise InvalidSubmissionError(f"there is no preview of {name!r:.40}; reload the page")
    session: DashboardSession = request.app.state.dashboard.session
    fit, others, more = await run_in_threadpool(_selected, session, form, FITTING[name])
    kinds = Counter((record.name, record.reason) for record in fit).most_common()
    data = {"fit": fit, "others": others, "more": more, "kinds": kinds, "effect": EFFECTS[name]}
    return HTMLResponse(render(request, "preview.html", user, action=ACTIONS[name], data=data))


def _selected(
    session: DashboardSession, form: ActionForm, states: tuple[State, ...]
) -> tuple[list[Record], list[Record], bool]:
    """Return the selected tasks that are in a fitting state, those that are not, and whether a filter has more."""
    session.reach()
    ids = form.all("id")
    more = False
    if ids:
        records = read_some(session, ids[:MOST])
    elif form.text("name") or form.text("reason"):
        reads = NamespaceReads(session.store, session.ledger)
        page = reads.page("ended", State.DEAD.value, "", MOST, form.text("name"), newest_first=True)
        wanted = RecordFilter.of(Query({name: form.text(name) for name in ("since", "until")}))
        found = [one for one in records_of(page) if wanted.matches(one)]
        records = [one for one in found if one.reason == form.text("reason") and one.name == form.text("name")]
        more = bool(page.cursor)
    else:
        raise InvalidSubmissionError("no task is selected; go back, and select at least one")
    fit = [record for record in records if record.state in states]
    return fit, [record for record in records if record.state not in states], more


async def operate(request: Request, user: DashboardUser) -> Response:
    """Carry out one action, and record it."""
    given = await _checked_form(request, user)
    action = ACTIONS.get(request.path_params["action"])
    if action is None:
        raise InvalidSubmissionError(f"there is no action {request.path_params['action']!r:.60}")
    session: DashboardSession = request.app.state.dashboard.session
    begun, outcome, status = await run_in_threadpool(_carry_out, session, user, action, ActionForm(given))
    if is_api(request):
        return json_response({"ok": outcome.ok, "says": outcome.says, "action": begun}, status)
    joined = "&" if urlsplit(outcome.back).query else "?"
    return RedirectResponse(f"{request.scope.get('root_path', '')}{outcome.back}{joined}said={begun}", 303)


def _carry_out(
    session: DashboardSession, user: DashboardUser, action: Action, form: ActionForm
) -> tuple[str, ActionOutcome, int]:
    """Record the action, carry it out, record its outcome. Without the first record nothing is done."""
    session.reach()
    begun = action_log.begin(session, user, action.name, form.shown(action.fields))
    try:
        outcome = action.run(session, form)
    except Exception as error:
        problem = problem_of(error)
        action_log.end(session, begun, ok=False, says=problem.says if problem else f"{type(error).__name__}")
        if problem is None:
            raise
        return begun, ActionOutcome(problem.says, action.back, ok=False), problem.status
    action_log.end(session, begun, ok=outcome.ok, says=outcome.says)
    return begun, outcome, 200 if outcome.ok else 409


async def _checked_form(request: Request, user: DashboardUser) -> dict[str, list[str]]:
    """Return the fields of a request that changes something, or raise NotAllowedError."""
    is_json = request.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    given = _fields_in(await body_of(request)) if is_json else await form_of(request)
    if trouble := trouble_with(request, {name: values[-1] for name, values in given.items() if values}):
        raise NotAllowedError(f"nothing was changed: {trouble}")
    if not user.is_operator:
        raise NotAllowedError(
            f"nothing was changed: {user.name} is a viewer, and only operators may make changes; sign in as an operator"
        )
    return given


def _fields_in(body: bytes) -> dict[str, list[str]]:
    """Read a JSON object of texts, numbers, or lists of texts."""
    try:
        given: Any = json.loads(body or b"{}")
    except ValueError as error:
        raise InvalidSubmissionError(f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidSubmissionError("the body must be a JSON object of fields")
    return {
        str(name): [str(one) for one in value] if isinstance(value, list) else [str(value)]
        for name, value in given.items()
        if value is not None
    }
