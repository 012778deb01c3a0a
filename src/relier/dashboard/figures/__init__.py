"""Figures over time that one process keeps: samples of counters and depths, and digests of outcomes."""
