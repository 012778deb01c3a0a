"""The outbox for Django: an app, `relier.django` in INSTALLED_APPS.

models.py, migrations   the tables                          outbox.py     pushes: rows in the surrounding `atomic`
database.py             the database of a relay             management    `manage.py relier_relay`, `relier_outbox`
inbox.py                `with ctx.exactly_once("default")`  checks.py     the checks of `manage.py check`
admin.py, shown.py      the outbox in the admin

    with transaction.atomic():
        order.save()
        send_receipt.push_in("default", order.pk)
"""
