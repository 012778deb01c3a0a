"""Models and enums: which classes are models, the fields of a model, and how an enum is found by name."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any

import msgspec

from relier.codec.unfit import Unfit
from relier.import_names import name_of_main


@lru_cache(maxsize=1024)
def enum_address(kind: type[Enum]) -> str:
    module, name = kind.__module__, kind.__qualname__
    if find_enum(f"{module}:{name}") is not kind:
        raise Unfit(f"the enum '{module}:{name}' cannot be found by its name: define it at the top level of a module")
    return f"{name_of_main(sys.modules[module]) if module == '__main__' else module}:{name}"


def find_enum(address: Any) -> type[Enum] | None:
    if not isinstance(address, str):
        return None
    module, _, path = address.partition(":")
    for home in modules_named(module):
        found: Any = home
        for name in path.split("."):
            # Not getattr: a module's __getattr__ may import.
            found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
        if isinstance(found, type) and issubclass(found, Enum):
            return found
    return None


def modules_named(name: str) -> Iterator[ModuleType]:
    """Yield the imported modules with this name. The running script comes first, if others import it by this name."""
    main = sys.modules["__main__"]
    if name == name_of_main(main):
        yield main
    if name in sys.modules:
        yield sys.modules[name]


def is_model(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__") or issubclass(kind, msgspec.Struct) or is_pydantic(kind)


def is_pydantic(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # not imported: no such class can exist
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def fields_of(model: Any) -> Any:
    """Return a model's fields in the form its own decoder expects, usually a dict by field name."""
    if isinstance(model, msgspec.Struct):
        return _struct_fields(model)
    if is_pydantic(type(model)):
        return _pydantic_fields(model)
    names = (field.name for field in dataclasses.fields(model))
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _struct_fields(model: msgspec.Struct) -> Any:
    config = model.__struct_config__
    values = (getattr(model, name) for name in model.__struct_fields__)
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *values]
    pairs = zip(model.__struct_encode_fields__, values, strict=True)
    fields = {name: value for name, value in pairs if value is not msgspec.UNSET}
    return fields if config.tag is None else {str(config.tag_field): config.tag, **fields}


def _pydantic_fields(model: Any) -> Any:
    """Return the fields by the names validation accepts. Unset fields are left out, so `exclude_unset` still works."""
    if type(model).__pydantic_root_model__:
        return model.root
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    fields: dict[str, Any] = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        unset = name not in model.model_fields_set and info.default_factory is None
        if unset and type(value) is type(info.default) and value == info.default:
            continue
        alias = info.validation_alias or info.alias
        fields[alias if isinstance(alias, str) and not by_name else name] = value
    return fields | (model.model_extra or {})
