"""The inbox: a task's effects in the user's database, and the mark that the task ran, commit together."""
