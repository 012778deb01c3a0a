"""Two releases on one namespace: the previous one, built from the repository's history, and this one."""
