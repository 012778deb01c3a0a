"""A web application that answers one order, and a relay that sends its outbox, in a process of their own.

python -m tests.support.conformance.traced_shop FOLDER TRACEPARENT TRACESTATE BAGGAGE
"""

from __future__ import annotations

import sys

from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind

from relier import Client, use_client
from relier.outbox.relay.batch import ClaimedBatch
from tests.support.conformance.traced_tasks import fulfil, provide_tracer
from tests.support.outbox_shop import Shop


def application(shop: Shop, folder: str) -> FastAPI:
    app = FastAPI()

    @app.post("/orders")
    def order(request: Request) -> str:
        token = attach(extract(request.headers))
        try:
            with (
                trace.get_tracer("shop").start_as_current_span("checkout", kind=SpanKind.SERVER),
                shop.session() as session,
                session.begin(),
            ):
                return shop.outbox.add(session, fulfil, folder).id
        finally:
            detach(token)

    return app


def main(folder: str, traceparent: str, tracestate: str, baggage: str) -> None:
    provider, client = provide_tracer(), Client()
    use_client(client)
    with Shop(f"sqlite:///{folder}/shop.db", client) as shop:
        headers = {"traceparent": traceparent, "tracestate": tracestate, "baggage": baggage}
        answer = TestClient(application(shop, folder)).post("/orders", headers=headers)
        relay = shop.relay()
        relay.turn(relay.turn(ClaimedBatch(relay.relay_id)))
    provider.shutdown()
    client.close()
    print(answer.json())


if __name__ == "__main__":
    main(*sys.argv[1:])
