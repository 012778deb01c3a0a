"""The health and the metrics of workers and of their supervisor, for relier.monitoring."""
