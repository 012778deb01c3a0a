"""Push to several shards: choose the shard of a task, and split a bulk by shards."""
