"""A Hypothesis state machine over the real scripts: any move at any time, compared with the model after every step.

Hypothesis shrinks a failure to the shortest list of calls on which scripts and model differ.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from proof.differential.fuzz import BOOTS, LEASE_MS, Fuzzer
from proof.differential.harness import RealStore, Twin, proof_scripts
from proof.model.model import Model
from relier.errors import StoreFullError
from relier.ledger import keys
from relier.settings import Settings
from relier.store import SyncStore
from relier.store.call import Call
from tests.support.servers import Server

MOVES = [
    *("submit", "register", "beat", "retire", "claim", "checkpoint", "step", "commit", "retry", "release", "bury"),
    *("forfeit", "revive", "promote", "reap", "replay", "cancel", "discard", "pause", "resume"),
    *("get", "owned", "again", "members", "take", "bring", "lock", "renew", "conclude", "unlock"),
]


def machine_on(real: RealStore) -> type[RuleBasedStateMachine]:
    class LedgerMachine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            real.clear()
            self.twin = Twin(Model(), real)
            self.fuzzer = Fuzzer(random.Random(0), self.twin.model)
            self.send(self.fuzzer.ledger.open())
            for boot in BOOTS[:2]:
                self.send(self.fuzzer.ledger.register(boot, LEASE_MS))

        @rule(move=st.sampled_from(MOVES), rng=st.randoms(use_true_random=False))
        def move(self, move: str, rng: random.Random) -> None:
            self.fuzzer.rng = rng
            call = getattr(self.fuzzer, move)()
            self.fuzzer.kept = [*self.fuzzer.kept[-20:], call]
            self.send(call)

        @rule(us=st.sampled_from([1, 1_000, 50_000, 400_000, 1_300_000, 6_000_000, -2_000_000]))
        def time_passes(self, us: int) -> None:
            self.twin.time_us += us

        @rule()
        def keyspaces_are_equal(self) -> None:
            self.twin.compare_keyspaces()

        def send(self, call: Call[object]) -> None:
            try:
                self.twin.run(call)
            except StoreFullError:
                return

        def teardown(self) -> None:
            if hasattr(self, "twin"):
                self.twin.compare_keyspaces()

    return LedgerMachine


def test_any_sequence_of_moves_leaves_scripts_and_model_equal(server: Server, pytestconfig: object) -> None:
    config = Settings(redis_url=server.url, namespace="differential")
    with SyncStore(config, proof_scripts()) as store:
        run_state_machine_as_test(
            machine_on(RealStore(store, keys.prefix("differential"))),
            settings=settings(
                max_examples=200,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
