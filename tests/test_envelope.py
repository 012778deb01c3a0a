"""What travels as a payload: any JSON parser reads it; anything else is a PayloadIntegrityError that says what."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relier.codec import encode
from relier.envelope import Envelope, open_envelope, seal
from relier.errors import PayloadEncodingError, PayloadIntegrityError

# A busy machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BODY = b'[["cus_1",5000],{}]'
SUM = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def an_envelope(**changes: Any) -> bytes:
    fields: dict[str, Any] = {"v": 1, "schema": 1, "at": 1, "sum": SUM, "body": json.loads(BODY)} | changes
    kept = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(kept, separators=(",", ":")).encode()


def test_the_layout_is_kept() -> None:
    """Records outlive releases: what is written today must be read by every later version."""
    assert seal(BODY, schema_version=2, pushed_ms=1794720833000).decode() == (
        f'{{"v":1,"schema":2,"at":1794720833000,"sum":"{SUM}","body":[["cus_1",5000],{{}}]}}'
    )
    traced = json.loads(seal(BODY, schema_version=2, pushed_ms=3, trace='00-"ab"-é'))
    assert traced == {"v": 1, "schema": 2, "at": 3, "trace": '00-"ab"-é', "sum": SUM, "body": [["cus_1", 5000], {}]}


@unhurried
@given(JSON, st.integers(0, 2**53), st.integers(0, 2**53), TEXT)
@example({"body": {"sum": "sha256:"}}, 1, 1, "")
def test_what_was_sealed_is_opened(value: Any, schema: int, at: int, trace: str) -> None:
    body = encode(value)
    raw = seal(body, schema_version=schema, pushed_ms=at, trace=trace)
    assert open_envelope(raw) == Envelope(schema, at, trace, body)
    assert json.loads(raw)["body"] == json.loads(body)


def test_fields_of_a_later_release_are_passed_over() -> None:
    assert open_envelope(an_envelope(colour="red")).body == BODY


def test_a_trace_that_is_no_text_is_refused_before_it_is_written() -> None:
    with pytest.raises(PayloadEncodingError, match=r"^the trace: text with a lone surrogate"):
        seal(BODY, schema_version=1, pushed_ms=1, trace="\ud800")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the payload is not an envelope: Input data was truncated"),
        (b"paid", "is not an envelope: JSON is malformed"),
        (BODY, "is not an envelope: Expected `object`, got `array`"),
        (b"{}", "is not an envelope: Object missing required field `v`"),
        (an_envelope(sum=None), "is not an envelope: Object missing required field `sum`"),
        (an_envelope(schema="1"), "is not an envelope: Expected `int`, got `str` - at `$.schema`"),
        (an_envelope(trace=["a"]), "is not an envelope: Expected `str`, got `array` - at `$.trace`"),
        (an_envelope(v=2), "is an envelope of version 2, and this code reads version 1; run a newer worker"),
        (b'{"v":3,"parts":[]}', "is an envelope of version 3"),
        (b'{"v":1,"trace":"\xff"}', "is not an envelope"),
        (b'{"v":1,"body":' + b"[" * 100_000, "is not an envelope: maximum recursion depth exceeded"),
        (b"[" * 100_000, "is not an envelope"),
        (an_envelope() + b"x", "is not an envelope: JSON is malformed: trailing characters"),
        (an_envelope(sum="md5:0"), f"checksum does not fit: expected 'md5:0', found '{SUM}'"),
        (an_envelope(body=[["cus_1", 5001], {}]), f"checksum does not fit: expected '{SUM}', found 'sha256:"),
        (an_envelope().replace(b"5000", b" 5000"), "the body changed after the push"),
    ],
)
def test_what_is_no_sound_envelope_is_said(raw: bytes, message: str) -> None:
    with pytest.raises(PayloadIntegrityError) as refused:
        open_envelope(raw)
    assert message in str(refused.value)
    assert str(refused.value).endswith("it was not run and its bytes are kept: look at them, then push the task anew")


@unhurried
@given(st.binary() | JSON.map(encode) | st.binary().map(lambda raw: b'{"v":1,"schema":1,"at":1,"body":' + raw))
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    with pytest.raises(PayloadIntegrityError):
        open_envelope(raw)


def opened_body(raw: bytes) -> bytes | None:
    try:
        return open_envelope(raw).body
    except PayloadIntegrityError:
        return None


def test_no_flipped_bit_changes_the_body_unseen() -> None:
    raw = seal(BODY, schema_version=1, pushed_ms=1794720833000, trace="00-ab-cd-01")
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        assert opened_body(bytes(flipped)) in {BODY, None}


@unhurried
@given(JSON, st.randoms(use_true_random=False))
def test_no_damage_changes_the_body_unseen(value: Any, dice: random.Random) -> None:
    body = encode(value)
    raw = bytearray(seal(body, schema_version=1, pushed_ms=1794720833000, trace="00-ab-cd-01"))
    for _ in range(dice.randint(1, 5)):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    del raw[dice.choice([len(raw), dice.randrange(len(raw))]) :]
    assert opened_body(bytes(raw)) in {body, None}
