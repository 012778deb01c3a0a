"""The `rl` command: inspect a ledger and operate on it, for people and for scripts.

main.py          the table of commands; imports none of them, so that `rl --help` is fast
session.py       what commands share: options, settings, store, ledger, and the exit code of each error
commands/        one module per command, imported when the command runs
audit/           what `rl audit` reads and how it judges it
doctor/          the checks of `rl doctor`
lua/             read-only scripts that only `rl` needs; namespace_reads.py runs them
"""
