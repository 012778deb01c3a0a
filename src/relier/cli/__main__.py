"""python -m relier.cli: the same as `rl`."""

from relier.cli.main import main

if __name__ == "__main__":
    main()
