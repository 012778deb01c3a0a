"""What is inside the Celery engine, and what only a Celery worker can do. What it owes as an engine: conformance/."""
