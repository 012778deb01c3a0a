"""Who may use the dashboard, how people sign in, and what protects them from other sites."""
