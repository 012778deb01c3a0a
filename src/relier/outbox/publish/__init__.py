"""Publishing claimed rows: the targets, the threads that call them, and what happens when a target is unreachable."""
