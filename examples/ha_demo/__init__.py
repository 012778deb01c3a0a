"""`make ha-demo`: a primary, two replicas and three Sentinels, and what survives when the primary is lost."""
