"""The version of this package, and how its optional parts are installed: the only place that states either.

Another project has the name `relier` on the public index, so no message of ours says `pip install relier`: that would
install the other one.
"""

__version__ = "1.0.0a1"


def how_to_install(*extras: str) -> str:
    """Return the command that installs this package with some of its extras, for error messages."""
    return f"in a checkout of Relier, run: pip install '.[{','.join(extras)}]'"
