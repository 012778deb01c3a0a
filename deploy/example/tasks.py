"""The smallest application: what the Compose files run until you mount your own."""

from relier import rl_task


@rl_task
def hello(who: str) -> str:
    return f"hello, {who}"
