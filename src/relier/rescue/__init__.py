"""Recovery: return the tasks of dead workers, queue due tasks, remove expired records, and repair damaged keys."""
