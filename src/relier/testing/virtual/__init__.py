"""A store for tests with virtual time, and the driver that runs its tasks without waiting.

store.py         `relier.testing.store()`: the embedded server, a namespace per test, `run_pending`
pending.py       the driver: let everything run, then move the clock to the next moment at which something happens
runner.py        runs attempts in this process, with faults
faults.py        the faults: kill_after_step, kill_before_commit, lose_lease
ran.py           what `run_pending` returns
timers.py        asyncio's timers on the virtual clock
client.py        the client of such a store: its calls never wait on the loop
store_clock.py   the ledger's scripts with a clock that can be set
"""
