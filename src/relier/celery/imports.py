"""Imported last in an isolated process, after the module that holds the app: what a worker of that app imports when it
starts, which its `imports`, autodiscovery and Django wait for."""

from relier.celery.adoption import all_adoptions

for _adoption in all_adoptions():
    _adoption.app.loader.import_default_modules()
