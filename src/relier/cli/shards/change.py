"""Change the number of shards of a drained namespace: find what keeps it from being drained, and write new marks."""

from __future__ import annotations

from relier.cli.output import plural
from relier.cli.session import Session
from relier.errors import ShardsError
from relier.ledger import keys
from relier.ledger.ledger import Ledger, scripts_of
from relier.ledger.pages import read_stats
from relier.settings import Settings
from relier.settings.shards import ROOT, split_urls
from relier.states import State
from relier.store.sync_store import SyncStore

LIVE = (State.QUEUED, State.RUNNING, State.SCHEDULED)


def settings_after(present: Settings, number: int, urls: str) -> Settings:
    """Return the settings of the new number of shards. `urls`: their store URLs, if they differ from the present."""
    known = split_urls(present.redis_url) if present.shards > 1 else (present.redis_url,)
    if not urls and len(known) > 1:
        raise ShardsError(
            f"RELIER_REDIS_URL lists one URL per shard, and those of {plural(number, 'shard')} are not known; nothing "
            f"was changed; give them with --to-urls"
        )
    return present.replace(shards=number, redis_url=urls or known[0])


def left_in(session: Session) -> list[str]:
    """Return what keeps a shard from being drained."""
    stats = read_stats(session.run, session.ledger)
    tasks, lease, prefix = stats.by_state(), session.settings.heartbeat_ttl, session.ledger.prefix
    schedules = [keys.spell(prefix, "schedules", group) for group in ("native", "celery")]
    counts = [
        (sum(tasks.get(state, 0) for state in LIVE), "task that has not ended", "tasks that have not ended"),
        (sum(int(session.store.command("ZCARD", key, retry=True)) for key in schedules), "schedule", ""),
        (int(session.store.command("ZCARD", keys.spell(prefix, "batches"), retry=True)), "workflow", ""),
        (sum(node.health(stats.now_ms, lease) == "alive" for node in stats.nodes), "live node", ""),
    ]
    return [plural(n, what, many) for n, what, many in counts if n]


def ended_in(session: Session) -> int:
    """Return the number of ended tasks that a shard still keeps."""
    return sum(read_stats(session.run, session.ledger).ended.values())


def write_marks(present: Settings, after: Settings) -> None:
    """Replace the birth marks of all shards, present and future, and of the root: they record the number of shards."""
    for settings in (present, after):
        for number in _marked(settings):
            _forget_mark(settings.of_shard(number))
    for number in _marked(after):
        namespace = after.of_shard(number)
        with SyncStore(namespace, scripts_of(namespace)) as store:
            store.run(Ledger(namespace).open())


def _marked(settings: Settings) -> tuple[int, ...]:
    """Return the numbers of the namespaces with a mark. Without shards, the root is the only one."""
    return (ROOT, *range(settings.shards)) if settings.shards > 1 else (ROOT,)


def _forget_mark(settings: Settings) -> None:
    with SyncStore(settings, scripts_of(settings)) as store:
        store.command("HDEL", keys.spell(Ledger(settings).prefix, "meta"), "born", retry=True)
