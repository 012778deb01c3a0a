"""Simulated runs of admission: tombstones and limits."""

from __future__ import annotations

from proof.directed.stage import Stage
from relier.ledger.records import Admission, AdmissionLimit
from relier.store.call import result_or_error


def tombstone(stage: Stage) -> None:
    """An outbox row is sent again after its record was discarded: the tombstone answers."""
    ledger = stage.ledger
    sub = stage.submission("t", tomb_ttl_ms=60_000)
    stage.run(ledger.register("A", 2000))
    stage.push(sub)
    (lease,) = stage.claim("A", 1)
    stage.run(ledger.commit([(lease, None, ())]))
    stage.run(ledger.discard("t", stage.world.backend.model.tasks["t"].version))
    stage.push(sub)
    stage.wait(61)
    stage.push(sub)


def burst(stage: Stage) -> None:
    """A limit of four: four tasks pass, their repeats cost nothing, the fifth is refused, and one more passes a while
    later."""
    admission = Admission((AdmissionLimit.per_window("l", 4, 2000),))
    for n in range(1, 6):
        call = stage.ledger.submit([stage.submission(f"t{n}")], admission)
        for _ in range(2):
            result_or_error(call, stage.world.apply(call))
    stage.wait(0.5)
    stage.run(stage.ledger.submit([stage.submission("t6")], admission))
