"""The outbox and the inbox for SQLAlchemy. Only this sub-package imports SQLAlchemy."""
