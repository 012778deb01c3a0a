"""One module before and after a change: what the old and the new workers of bench/deploy.py run."""
