"""What a supervisor does for its worker processes in the ledger."""
