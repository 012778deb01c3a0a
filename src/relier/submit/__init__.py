"""1 enter: a call becomes a record, and its caller gets a receipt."""
