"""Outcomes: how tasks end, and how long they wait and run (lua/lib/outcomes.lua)."""
