"""Relier: background work that cannot get lost."""
