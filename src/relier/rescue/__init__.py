"""5 revive: what returns the work of the dead, wakes what is due, and removes what has ended."""
