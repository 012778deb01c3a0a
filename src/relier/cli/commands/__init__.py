"""One module for each command of `rl`, imported when the command runs: see COMMANDS in main.py."""
