"""Find what people mean: a task by the beginning of its id, a name by its last part, the process of a worker."""
