"""The checks of `rl doctor`, grouped by subject. Each yields CheckResults."""
