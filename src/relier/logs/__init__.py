"""Log lines of our own processes: their format, and the task fields on every line that a task logs.

setup.py           the handler of `rl worker` and the other commands, if the application has configured none
formats.py         console for people, JSON for machines
record_fields.py   the fields of the running task on every LogRecord

The application's own logging configuration always wins: nothing here replaces a handler or a level of it.
"""
