"""The outbox for Django: an app, `relier.django` in INSTALLED_APPS.

models.py, migrations   the tables                          outbox.py     the way in: rows of the surrounding `atomic`
database.py             what a relay works on               management    `manage.py relier_relay`
inbox.py                `with ctx.exactly_once("default")`
admin.py, shown.py      what people see, and may do         checks.py     what `manage.py check` finds

    with transaction.atomic():
        order.save()
        send_receipt.push_in("default", order.pk)
"""
