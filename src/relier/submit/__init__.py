"""Submit tasks: turn a call into a record in the ledger, and give its caller a receipt."""
