"""The proof: a model of the ledger in plain Python, and what is done to it. See docs/explanation/proof.md.

    state.py pieces.py operate.py model.py   the ledger as a data structure: every move, without a server
    world.py tasks.py actors.py faults.py …  producers, workers, sweepers and operators around it, driven by a seeded
                                             scheduler that loses and delays messages, kills, freezes, rolls back
    checker.py history.py hearing.py …       the invariants: safety after every call
    simulate.py schedules.py                 one schedule with its end (liveness), and many of them
    exhaustive.py                            every interleaving of small cases
    mutants*.py lua_mutants.py directed.py   seeded bugs, each of which some check must catch
    differential.py fuzz.py                  the same calls on the real scripts: equal replies, equal keyspace

`python -m relier.proof --help` runs any of it; every failure prints its seed and the command that replays it.
"""
