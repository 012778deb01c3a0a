"""Commands that watch: `rl health` one process, `rl exporter` a whole namespace."""
