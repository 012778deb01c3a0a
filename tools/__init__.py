"""Tools of this repository: the walk of a task, hooks of the site, and releases."""
