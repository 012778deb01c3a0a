"""`python -m relier.django …`: the same as `rl`, in a Django project that DJANGO_SETTINGS_MODULE names.

The processes that `manage.py relier_worker` starts run this. manage.py itself cannot be run again from everywhere:
`django-admin` and `python -m django` have none.
"""

import relier.django.setup  # noqa: F401 - first, because the settings of the project count for every command
from relier.cli.main import rl
from relier.django.management.click_command import PROGRAM

if __name__ == "__main__":
    rl(prog_name="rl", obj=PROGRAM)
