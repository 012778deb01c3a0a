"""The version of this package: the only place that states it."""

__version__ = "1.0.0a1"
