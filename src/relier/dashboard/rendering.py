"""Turn data into HTML. Everything is escaped: names, ids, payloads and errors are text that others wrote."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request

from relier.cli.output import ago, plural, span
from relier.dashboard.pages import MENU
from relier.dashboard.security.access import DashboardUser
from relier.dashboard.security.protection import csrf_token
from relier.version import __version__

UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
CHART_HEIGHT = 60
BAR_WIDTH = 8


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("relier.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "moment": moment,
        "span": span,
        "number": number,
        "pretty": pretty,
        "share": share,
        "with_times": with_times,
        "at_most": at_most,
        "burn": burn,
        "rate": rate,
        "exact_share": exact_share,
        "utc_time": utc_time,
        "field_time": field_time,
    }
    made.globals |= {"plural": plural, "ago": ago, "chart": chart, "url": url}
    return made


def render(request: Request, template: str, user: DashboardUser | None, **data: Any) -> str:
    """Return a page."""
    base = request.scope.get("root_path", "")
    shared = {
        "base": base,
        "path": request.url.path.removeprefix(base) or "/",
        "menu": MENU,
        "user": user,
        "csrf": csrf_token(request),
        "version": __version__,
        "may_sign_out": bool(request.app.state.dashboard.tokens) and user is not None,
        "namespace": request.app.state.dashboard.session.settings.namespace,
    }
    return environment().get_template(template).render(**shared, **data)


def url(path: str, **query: Any) -> str:
    """Return a path with those parameters that are not empty."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def moment(ms: int | None, now_ms: int | None = None) -> Markup:
    """Return a time that the browser shows in the viewer's zone, with its age."""
    if not ms:
        return Markup('<span class="none">–</span>')
    at = datetime.fromtimestamp(ms / 1000, UTC)
    age = "" if now_ms is None else ago(ms, now_ms)
    plain = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), plain, age or plain)


def with_times(text: str) -> Markup:
    """Return a sentence, with its times in UTC as times that the browser shows in the viewer's zone."""
    parts = UTC_TIME.split(text)
    for n in range(1, len(parts), 2):
        written = parts[n].replace(" ", "T")
        parts[n] = Markup('<time datetime="{}Z">{} UTC</time>').format(written, parts[n])
    return Markup("").join(parts)


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def exact_share(value: float) -> str:
    """Return a target such as 99.95 %, with as many digits as it has."""
    return f"{100 * value:.4f}".rstrip("0").rstrip(".") + " %"


def at_most(ms: int | None) -> str:
    """Return an upper bound of a time: percentiles are known only as buckets."""
    return "–" if ms is None else f"≤ {span(ms)}"


def burn(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def rate(value: float | None) -> str:
    if value is None:
        return "–"
    return number(value) if value >= 10 else f"{value:.2f}" if value else "0"


def utc_time(ms: int | None) -> str:
    """Return a time as a parameter of a link, or nothing."""
    return "" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}Z"


def field_time(ms: int | None) -> str:
    """Return a time as the value of a field. The browser turns it into the viewer's zone."""
    return utc_time(ms).removesuffix("Z")


def pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def chart(bars: list[dict[str, float]]) -> Markup:
    """Return bars of ended tasks per second, as SVG: done below, dead above."""
    most = max((bar["done"] + bar["dead"] for bar in bars), default=0) or 1
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">').format(
            BAR_WIDTH * max(len(bars), 12), CHART_HEIGHT, f"Tasks that ended per second, at most {number(most)}"
        )
    ]
    for n, bar in enumerate(bars):
        done, dead = (CHART_HEIGHT * bar[name] / most for name in ("done", "dead"))
        for kind, height, top in (("done", done, CHART_HEIGHT - done), ("dead", dead, CHART_HEIGHT - done - dead)):
            parts.append(
                Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"></rect>').format(
                    kind, n * BAR_WIDTH, f"{top:.1f}", BAR_WIDTH - 2, f"{height:.1f}"
                )
            )
    return Markup("").join([*parts, Markup("</svg>")])
