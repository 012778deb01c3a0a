"""Send tasks of an adopted app to the ledger instead of the broker.

- publish.py    turns a task message into a record
- producers.py  replaces kombu's producer, so that an adopted task needs no broker connection
- collect.py    collects the tasks that Celery sends after a task body, for the commit of the attempt
- spread.py     packs more follow-ups than one commit takes
- control.py    extends `revoke` and `purge` to the ledger
- pipeline.py   sends many messages of an outbox relay to a Redis broker at once
"""
