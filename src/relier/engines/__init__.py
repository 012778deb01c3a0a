"""4 who: the engines that run attempts. `native` is ours; each drives `run` and settles through the same ledger."""
