"""A relay that sends rows to the ledger, as a node of the ledger's namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relier.outbox.publish.sharded_target import ShardedLedgerTarget
from relier.outbox.publish.target import LedgerTarget, PublishTarget
from relier.outbox.relay.membership import Membership
from relier.outbox.relay.metrics import reported
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.row import LEDGER
from relier.outbox.table.statements import Database
from relier.outbox.wake.doorbell import DoorbellListener, WakeListener
from relier.redact import shown
from relier.submit.client import Client


def ledger_target(client: Client, options: RelayOptions) -> LedgerTarget | ShardedLedgerTarget:
    """Return the ledger as a target. A call may take half of the send timeout. The other half is for the check whether
    the store is unreachable, which follows a call without a reply."""
    patient = Client(client.settings.replace(redis_deadline=options.send_timeout / 2))
    return LedgerTarget(patient) if client.settings.shards == 1 else ShardedLedgerTarget(patient)


def relay_to_ledger(
    database: Database,
    client: Client,
    options: RelayOptions | None = None,
    others: Sequence[PublishTarget] = (),
    listener: Callable[[Callable[[], None]], WakeListener] | None = None,
) -> Relay:
    """Return a relay that sends rows to the ledger. It is a member of the cluster, and commits wake it through the
    ledger's store, or through `listener`. `others`: targets for other kinds of rows.

    With shards, the relay is a member of the first one, and is woken through it."""
    options = options or RelayOptions()
    home = client.shards[0]
    settings = home.settings
    membership = Membership(
        settings,
        home.scripts,
        lambda: {"tables": [options.table], "kinds": [LEDGER, *(other.kind for other in others)]},
        lambda: reported([relay]),
        lambda: relay.stop(),
    )

    def doorbell(wake: Callable[[], None]) -> WakeListener:
        return DoorbellListener(settings, home.scripts, wake, lambda: membership.is_draining)

    relay = Relay(
        database,
        [ledger_target(client, options), *others],
        options,
        membership,
        None if options.no_wake else listener or doorbell,
        show=lambda name, text: str(shown(settings, name, text)),
    )
    return relay
