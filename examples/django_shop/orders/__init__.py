"""Orders, their payments, and a report about them."""
