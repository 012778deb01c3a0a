"""Say how to pass values of other libraries: numpy, pandas, Django, SQLAlchemy.

The classes are recognised by their names, so that nothing is imported.
"""

from __future__ import annotations

from typing import Any

from relier.codec.unfit import type_name


def foreign_advice(value: Any) -> str:
    """Return why a value of another library is refused and what to pass instead, or "" if its class is unknown."""
    name, bases = type_name(type(value)), [type_name(base) for base in type(value).__mro__]
    if "numpy.generic" in bases:
        return f"{name} is a numpy scalar and would come back as a different type: pass value.item()"
    if "numpy.ndarray" in bases:
        return f"{name} cannot be encoded: pass value.tolist(), or store it elsewhere and pass a reference"
    if any(base.startswith("pandas.") for base in bases):
        return f"{name} cannot be encoded: pass plain values, such as value.to_pydatetime() or value.to_dict('records')"
    if "django.db.models.base.Model" in bases:
        return f"{name} is a Django model, whose row may change before the task runs: pass value.pk, and load it there"
    if "django.db.models.query.QuerySet" in bases:
        return f"{name} is a query, not its rows: pass list(value.values_list('pk', flat=True)), and load them there"
    if any(base.startswith("django.utils.functional.") for base in bases):
        return f"{name} is evaluated later, perhaps to another text: pass str(value)"
    if hasattr(type(value), "__mapper__") and hasattr(value, "_sa_instance_state"):
        return f"{name} belongs to a SQLAlchemy session: pass its primary key, and load it in the task"
    return ""
