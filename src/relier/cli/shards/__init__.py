"""What `rl` does in a namespace with shards: choose the shard of an id, show all shards, check and change them."""
