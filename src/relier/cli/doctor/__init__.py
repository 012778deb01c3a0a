"""The checks of `rl doctor`, by what they look at. Each yields verdicts in words."""
