"""Draw the states of a task and the moves between them as docs/images/states.svg. The table is src/relier/states.py.

Positions and words are set here by hand. A move that is missing here, or gone from the table, is an error.
"""

from __future__ import annotations

from relier.states import ENDED, MOVES, State

Point = tuple[int, int]

WIDTH, HEIGHT = 960, 410
BOX = (120, 44)
CENTRES: dict[State, Point] = {
    State.SCHEDULED: (110, 170),
    State.QUEUED: (390, 170),
    State.RUNNING: (650, 170),
    State.DONE: (870, 170),
    State.DEAD: (870, 300),
    State.CANCELLED: (250, 370),
}
# From, to: the path of the arrow, where its words stand, and the words. "" is a task that does not exist yet.
ARROWS: dict[tuple[str, str], tuple[str, Point, str]] = {
    ("", "scheduled"): ("M110,45 V146", (110, 36), "push with a delay"),
    ("", "queued"): ("M390,45 V146", (390, 36), "push"),
    ("scheduled", "queued"): ("M171,160 H327", (250, 152), "due"),
    ("queued", "scheduled"): ("M329,180 H173", (250, 198), "wait for a rate limit"),
    ("queued", "running"): ("M451,160 H587", (520, 152), "claim"),
    ("running", "queued"): ("M589,180 H453", (520, 204), "revive, release, retry"),
    ("running", "scheduled"): ("M640,147 C600,60 200,60 140,146", (570, 76), "retry later"),
    ("running", "done"): ("M711,170 H807", (760, 162), "commit"),
    ("running", "dead"): ("M690,193 C720,250 760,290 807,297", (770, 250), "bury"),
    ("dead", "queued"): ("M809,312 C640,350 470,310 408,195", (720, 344), "replay"),
    ("scheduled", "cancelled"): ("M110,193 C110,280 150,330 205,346", (58, 262), "cancel, expire"),
    ("queued", "cancelled"): ("M380,193 C370,280 330,320 290,345", (300, 270), "cancel, expire"),
    ("running", "cancelled"): ("M650,193 C640,420 450,400 313,376", (620, 368), "cancel"),
}
# Rare moves, which would hide the others: a push that another one of the same call replaces; records that are damaged.
NOT_DRAWN = {("", "cancelled"), ("scheduled", "dead"), ("queued", "dead")}
STYLE = """
text { font: 15px sans-serif; text-anchor: middle; fill: #7a8794 }
.state { fill: #00897b; stroke: none } .name { fill: #fff; font-weight: bold }
path.arrow { fill: none; stroke: #7a8794; stroke-width: 1.6; marker-end: url(#tip) }
"""


def states_svg() -> str:
    check()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>The states of a task</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0,0 L8,4 L0,8 z" fill="#7a8794"/></marker></defs>',
    ]
    for path, (x, y), words in ARROWS.values():
        parts.append(f'<path class="arrow" d="{path}"/>')
        if words:
            parts.append(f'<text x="{x}" y="{y}">{words}</text>')
    for state, (x, y) in CENTRES.items():
        width, height = BOX
        corner = f'x="{x - width // 2}" y="{y - height // 2}"'
        parts.append(f'<rect class="state" {corner} width="{width}" height="{height}" rx="10"/>')
        parts.append(f'<text class="name" x="{x}" y="{y + 5}">{state}</text>')
    return "\n".join([*parts, "</svg>\n"])


def check() -> None:
    """Compare the arrows with the table. That ended records are removed is not drawn."""
    table = {(str(a or ""), str(b)) for move in MOVES.values() for a, b in move.pairs if b is not None}
    removed = {a for move in MOVES.values() for a, b in move.pairs if b is None}
    drawn = ARROWS.keys() | NOT_DRAWN
    if table != drawn or removed != ENDED:
        raise SystemExit(f"docs/draw_states.py: draw {table - drawn}, remove {drawn - table}")
