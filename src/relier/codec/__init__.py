"""Encode values as JSON and decode them to equal values of the same type.

Values that JSON can express are plain JSON. Others are tagged objects with the key "~":

    {"~": "datetime", "v": "2026-11-15T05:53:53", "zone": "Europe/Paris"}    also "name" of a fixed offset, "fold"
    {"~": "date", "v": "2026-11-15"}                     {"~": "time", …} is written like a datetime
    {"~": "timedelta", "v": [days, seconds, microseconds]}
    {"~": "uuid", "v": "…"}   {"~": "decimal", "v": "1.50"}   {"~": "float", "v": "nan"}   {"~": "bytes", "v": base64}
    {"~": "tuple", "v": […]}  {"~": "set", "v": […]}          {"~": "frozenset", "v": […]}
    {"~": "bytes", "v": base64, "mutable": true}         a bytearray
    {"~": "dict", "v": [[key, value], …]}                a dict with a non-string key, or with the key "~"
    {"~": "enum", "t": "shop.models:Colour", "v": "RED"} a member by name; a combination of flags by number

Types are matched exactly. A subclass would be decoded as its base class, so it is refused. The one exception is a
database driver's UUID class, which is decoded as a plain UUID. Models (dataclasses, Structs, pydantic) are written as
plain objects of their fields and are rebuilt only where an annotation names their class (relier.arguments).
Sets are written in the order of their encoded items, so equal sets have equal bytes in every process.

Decoding never imports or calls anything that a payload names. Enums are looked up in the modules already imported.
"""

from relier.codec.models import fields_of, is_model, is_pydantic, modules_named
from relier.codec.reading import decode, unpack
from relier.codec.unfit import Unfit, type_name
from relier.codec.writing import ENCODER, MAX_DEPTH, PLAIN, TAG, encode, pack, parts_of, refusal, shown

__all__ = [
    "ENCODER",
    "MAX_DEPTH",
    "PLAIN",
    "TAG",
    "Unfit",
    "decode",
    "encode",
    "fields_of",
    "is_model",
    "is_pydantic",
    "modules_named",
    "pack",
    "parts_of",
    "refusal",
    "shown",
    "type_name",
    "unpack",
]
