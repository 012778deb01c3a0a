"""Recovery: return the tasks of dead workers, queue due tasks, and remove expired records."""
