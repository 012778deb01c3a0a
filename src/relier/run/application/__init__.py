"""What an application puts around its tasks: a lifespan for each process, middleware for each attempt."""
