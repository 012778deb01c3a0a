"""The proof: a model of the ledger in plain Python, and the checks that use it. See docs/explanation/proof.md.

    model/         the ledger as a data structure: every move, without a server
    simulator/     producers, workers, sweepers and operators around the model, driven by a seeded scheduler that loses
                   and delays messages, kills and freezes processes, and rolls the store back
    checker/       the invariants: safety is checked after every call, against the history of calls and replies
    directed/      schedules written by hand, for corners that random schedules seldom reach
    exhaustive.py  every interleaving of small cases
    mutants/       seeded bugs in the model and its workers, each of which some check must catch
    differential/  the same calls on the real scripts: equal replies, equal keyspace; seeded bugs in the scripts
    store/         the real store layer over a simulated server, on virtual time; seeded bugs in it
    release/       the million schedules before a release, in pieces, and the record of them in record.toml

Run `python -m proof --help` from the root of the repository. A failure prints its seed and the command that replays it.
The proof may import relier; relier never imports the proof, and the wheel does not contain it.
"""
