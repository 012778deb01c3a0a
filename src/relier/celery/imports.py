"""Import what a worker of the app imports when it starts: its `imports`, autodiscovery, and Django's setup.

An isolated process imports this module last, after the module that holds the app.
"""

from relier.celery.adoption import all_adoptions

for _adoption in all_adoptions():
    _adoption.app.loader.import_default_modules()
