"""The proof: a model of the ledger in plain Python, and what is done to it.

    model.py        the ledger as a data structure: every move, without a server
    world.py        producers, workers, sweepers and operators around it, driven by a seeded scheduler that loses and
                    delays messages, kills and freezes workers, moves clocks, fills and rolls back the store
    checker.py      the invariants: safety after every step, liveness once the faults stop
    exhaustive.py   every interleaving of small cases
    mutants.py      seeded bugs, each of which some check must catch
    differential.py the same schedules on the real scripts: equal replies, equal keyspace

`python -m relier.proof --help` runs any of it; every failure prints its seed and the command that replays it.
"""
