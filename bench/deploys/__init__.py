"""One module before and after a change, for the old and the new workers of bench/deploy.py."""
