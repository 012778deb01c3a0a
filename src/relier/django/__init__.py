"""Relier for Django: an app, `relier.django` in INSTALLED_APPS.

models.py, migrations   the tables                          outbox.py     pushes: rows in the surrounding `atomic`
database.py             the database of a relay             management    `manage.py relier_worker`, `relier_dev`, …
inbox.py                `with ctx.exactly_once("default")`  checks.py     the checks of `manage.py check`
admin.py, shown.py      the outbox in the admin             ledger_admin  tasks and dead letters in the admin
project_settings.py     `settings.RELIER`                   tasks         a backend for Django's own tasks
beat.py                 django-celery-beat's tables as the source of beat, from the ledger
setup.py, __main__.py   Django in other processes: on import, and `python -m relier.django`

    with transaction.atomic():
        order.save()
        send_receipt.push_in("default", order.pk)
"""
