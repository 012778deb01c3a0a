"""The `rl` command: inspect a ledger and operate on it, for people and for scripts.

main.py            the table of commands; imports none of them, so that `rl --help` is fast
command_groups.py  groups that import a command when it runs, or have a usual command; the options of all commands
session.py         what commands share: settings, store, ledger, and the exit code of each error
output.py, table.py  times, texts, progress bars; tables that fit a terminal
commands/          one module per command, imported when the command runs
find/              finds a task by the beginning of its id or by a short name
audit/             what `rl audit` reads and how it judges it
doctor/            the checks of `rl doctor`
lua/               read-only scripts that only `rl` needs; namespace_reads.py runs them
"""
