"""The parts that nodes of every role share: report on the process, send heartbeats, and conform to orders.

process.py      what a process reports about itself
membership.py   the thread that keeps a helper (a relay, a scheduler, …) registered; workers have engines/heartbeat.py
health.py       the health of a helper that runs on an event loop
orders.py       conform to an operator's orders
log_level.py    the log level that an operator ordered
"""
