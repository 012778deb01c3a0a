"""Run attempts in processes of their own."""
