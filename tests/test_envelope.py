"""Envelopes: any JSON parser reads them; anything else raises a PayloadIntegrityError that says what is wrong. With
keys, an envelope is signed for one task, and its body is encrypted."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relier.codec import encode
from relier.codec.keyring import NO_KEYS, Keyring
from relier.envelope import Envelope, _signed, open_envelope, reseal, seal
from relier.errors import PayloadEncodingError, PayloadIntegrityError
from tests.support.keyrings import everything_said, key, keyring, leaks

# A busy machine must not fail these tests.
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


def test_the_format_is_stable() -> None:
    """Records outlive releases: every later version must read what is written today."""
    assert seal(BODY, schema_version=2, pushed_ms=1794720833000).decode() == (
        f'{{"v":1,"schema":2,"at":1794720833000,"sum":"{SUM}","body":[["cus_1",5000],{{}}]}}'
    )
    traced = json.loads(seal(BODY, schema_version=2, pushed_ms=3, trace='00-"ab"-é'))
    assert traced == {"v": 1, "schema": 2, "at": 3, "trace": '00-"ab"-é', "sum": SUM, "body": [["cus_1", 5000], {}]}


@unhurried
@given(JSON, st.integers(0, 2**53), st.integers(0, 2**53), TEXT)
@example({"body": {"sum": "sha256:"}}, 1, 1, "")
def test_a_sealed_envelope_can_be_opened(value: Any, schema: int, at: int, trace: str) -> None:
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
        (an_envelope(v=2), "is an envelope of version 2, but this code reads version 1; run a newer worker"),
        (b'{"v":3,"parts":[]}', "is an envelope of version 3"),
        (b'{"v":1,"trace":"\xff"}', "is not an envelope"),
        (b'{"v":1,"body":' + b"[" * 100_000, "is not an envelope: maximum recursion depth exceeded"),
        (b"[" * 100_000, "is not an envelope"),
        (an_envelope() + b"x", "is not an envelope: JSON is malformed: trailing characters"),
        (an_envelope(sum="md5:0"), f"checksum is wrong: expected 'md5:0', found '{SUM}'"),
        (an_envelope(body=[["cus_1", 5001], {}]), f"checksum is wrong: expected '{SUM}', found 'sha256:"),
        (an_envelope().replace(b"5000", b" 5000"), "the body changed after the push"),
    ],
)
def test_an_unsound_envelope_is_reported(raw: bytes, message: str) -> None:
    with pytest.raises(PayloadIntegrityError) as refused:
        open_envelope(raw)
    assert message in str(refused.value)
    assert str(refused.value).endswith("the task was not run, and its bytes are kept; inspect them, then push it again")


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


# --- with keys ---------------------------------------------------------------------------------------------------

ID, NAME, AT = "0198f3a2c4d57e1f8a9b0c1d2e3f4a5b", "shop.charge", 1794720833000
SIGNING, ENCRYPTING, BOTH = keyring("s1"), keyring(encryption="e1"), keyring("s1", "e1")
KEYRINGS = pytest.mark.parametrize("keys", [SIGNING, ENCRYPTING, BOTH], ids=["signed", "encrypted", "both"])
SIGNED = pytest.mark.parametrize("keys", [SIGNING, BOTH], ids=["signed", "both"])


def sealed(keys: Keyring, body: bytes = BODY, **other: Any) -> bytes:
    fields: dict[str, Any] = {"schema_version": 2, "pushed_ms": AT, "trace": "00-ab-cd-01", "task_id": ID, "name": NAME}
    return seal(body, keyring=keys, **fields | other)


def opened(raw: bytes, keys: Keyring, task_id: str = ID, name: str = NAME) -> Envelope:
    return open_envelope(raw, task_id=task_id, name=name, keyring=keys)


def refusal(raw: bytes, keys: Keyring, task_id: str = ID, name: str = NAME) -> str:
    """Return why the payload is refused. The error must contain neither a key nor the correct signature."""
    with pytest.raises(PayloadIntegrityError) as refused:
        opened(raw, keys, task_id, name)
    said = list(everything_said(refused.value))
    assert not leaks(said, key("s1"), key("e1"), key("s2"), key("e2"))
    assert SIGNATURE not in str(refused.value)
    return str(refused.value)


SIGNATURE = "4475c1326a645eae04e8def61f4378d16118c1661a1200934fe7c477a25033da"


def test_the_format_with_a_signature_is_stable() -> None:
    """Records outlive releases, and a producer in another language may want to sign."""
    message = f"relier envelope 1\n32:{ID}11:{NAME}2:{AT}:11:00-ab-cd-01".encode() + BODY
    assert hmac.digest(key("s1"), message, "sha256").hex() == SIGNATURE
    assert sealed(SIGNING).decode() == (
        f'{{"v":1,"schema":2,"at":{AT},"trace":"00-ab-cd-01","sum":"{SUM}","sig":"hmac-sha256:s1:{SIGNATURE}",'
        f'"body":[["cus_1",5000],{{}}]}}'
    )


def test_the_format_of_an_encrypted_body_is_stable() -> None:
    text = "aes-gcm:e1:AAECAwQFBgcICQoLqtJmaaEG9Y7JEOjlLZmVfc450AuVl5Dsdpc+FtReKtUnGZ8="
    total = hashlib.sha256(f'"{text}"'.encode()).hexdigest()
    raw = an_envelope(schema=2, at=AT, sum=f"sha256:{total}", body=text)
    assert opened(raw, ENCRYPTING) == Envelope(2, AT, "", BODY)


def test_without_keys_nothing_changes() -> None:
    assert sealed(NO_KEYS) == seal(BODY, schema_version=2, pushed_ms=AT, trace="00-ab-cd-01")
    assert b"sig" not in sealed(NO_KEYS)


@unhurried
@given(
    st.lists(JSON, max_size=3), st.integers(0, 2**53), st.integers(0, 2**53), TEXT, st.text(), st.text(), st.booleans()
)
def test_an_envelope_sealed_with_keys_is_opened_with_them(
    value: Any, schema: int, at: int, trace: str, task_id: str, name: str, later: bool
) -> None:
    body = encode(value)
    for keys, rotated in (
        (SIGNING, keyring("s2,s1")),
        (ENCRYPTING, keyring(encryption="e2,e1")),
        (BOTH, keyring("s2,s1", "e2,e1")),
    ):
        raw = seal(body, schema_version=schema, pushed_ms=at, trace=trace, task_id=task_id, name=name, keyring=keys)
        reader = rotated if later else keys
        assert opened(raw, reader, task_id, name) == Envelope(schema, at, trace, body)
        json.loads(raw)


def test_an_encrypted_body_reveals_nothing() -> None:
    raw = sealed(BOTH, b'[["4111 1111 1111 1111"],{"cvc":737}]')
    assert b"4111" not in raw
    assert b"cvc" not in raw
    assert json.loads(raw)["body"].startswith("aes-gcm:e1:")
    assert raw != sealed(BOTH, b'[["4111 1111 1111 1111"],{"cvc":737}]')  # equal calls do not look alike


# --- what is not ours --------------------------------------------------------------------------------------------


@SIGNED
def test_an_unsigned_payload_is_refused(keys: Keyring) -> None:
    assert "is not signed, but RELIER_SIGNING_KEYS is set" in refusal(sealed(NO_KEYS), keys)
    assert "is not signed" in refusal(an_envelope(), keys)
    assert "is not signed" in refusal(sealed(ENCRYPTING), keys)
    assert "kept; inspect them" in refusal(sealed(NO_KEYS), keys)


@SIGNED
def test_a_payload_signed_with_other_keys_is_refused(keys: Keyring) -> None:
    assert "is signed with key 's2', which is not in RELIER_SIGNING_KEYS" in refusal(sealed(keyring("s2")), keys)
    forged = sealed(keyring("s2", "e1")).replace(b"hmac-sha256:s2:", b"hmac-sha256:s1:")
    assert "has an invalid signature (key 's1')" in refusal(forged, keys)


@SIGNED
@pytest.mark.parametrize(
    ("task_id", "name"),
    [("another", NAME), (ID, "shop.refund"), (ID + "1", NAME[:-1]), ("", ""), (NAME, ID), (ID[:-1], ID[-1] + NAME)],
)
def test_a_payload_copied_to_another_task_is_refused(keys: Keyring, task_id: str, name: str) -> None:
    assert "belongs to another task" in refusal(sealed(keys), keys, task_id, name)


def test_an_encrypted_body_copied_to_another_task_is_refused() -> None:
    assert "the payload cannot be decrypted" in refusal(sealed(ENCRYPTING), ENCRYPTING, "another")


@SIGNED
@pytest.mark.parametrize(
    "changed",
    [
        {"schema_version": 3},
        {"pushed_ms": AT + 1},
        {"trace": ""},
        {"trace": "00-ab-cd-00"},
        {"body": b'[["cus_1",9999],{}]'},
    ],
    ids=str,
)
def test_an_altered_field_with_a_fitting_sum_is_refused(keys: Keyring, changed: dict[str, Any]) -> None:
    """Someone with the store's password can write everything except for the signature."""
    signature = json.loads(sealed(keys))["sig"]
    forged = sealed(NO_KEYS, **changed).replace(b'"body":', f'"sig":"{signature}","body":'.encode())
    assert open_envelope(forged)
    assert "forged or altered" in refusal(forged, keys)


def test_a_body_under_an_unknown_key_names_the_key() -> None:
    raw = sealed(ENCRYPTING)
    for keys in (NO_KEYS, keyring(encryption="e2")):
        assert "the payload is encrypted with key 'e1', which is not in" in refusal(raw, keys)


def test_without_signing_keys_only_the_checksum_is_checked() -> None:
    assert opened(sealed(SIGNING), NO_KEYS, "any id", "any name").body == BODY
    assert "checksum is wrong" in refusal(sealed(SIGNING).replace(b"5000", b"5001"), NO_KEYS)


def test_plain_payloads_are_read_when_encryption_keys_are_set() -> None:
    """So keys can be introduced while tasks wait."""
    assert opened(sealed(NO_KEYS), ENCRYPTING).body == BODY
    assert opened(sealed(SIGNING), BOTH).body == BODY


@KEYRINGS
def test_no_flipped_bit_passes_with_keys(keys: Keyring) -> None:
    raw = sealed(keys)
    whole = opened(raw, keys)
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = opened(bytes(flipped), keys)
        except PayloadIntegrityError:
            continue
        # Without a signature the fields beside the body are not covered.
        assert not keys.signs or found == whole
        assert found.body == BODY


@unhurried
@given(st.sampled_from([SIGNING, ENCRYPTING, BOTH]), st.randoms(use_true_random=False))
def test_no_damage_passes_with_keys(keys: Keyring, dice: random.Random) -> None:
    raw = bytearray(sealed(keys))
    for _ in range(dice.randint(1, 5)):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    del raw[dice.choice([len(raw), dice.randrange(len(raw))]) :]
    try:
        found = opened(bytes(raw), keys)
    except PayloadIntegrityError:
        return
    assert found.body == BODY
    assert not keys.signs or found == opened(sealed(keys), keys)


SHORT = st.text("0123:a\n", max_size=4)
PARTS = st.tuples(SHORT, SHORT, st.integers(0, 12), st.integers(0, 12), SHORT, SHORT.map(str.encode))


@unhurried
@given(PARTS, PARTS)
@example(("1", "", 0, 0, "", b""), ("", "1", 0, 0, "", b""))
@example(("", "", 1, 1, "", b""), ("", "", 11, 1, "", b""))
@example(("", "", 1, 1, "a", b"b"), ("", "", 1, 1, "", b"ab"))
def test_no_two_envelopes_have_the_same_bytes_to_sign(one: Any, other: Any) -> None:
    assert (_signed(*one) == _signed(*other)) == (one == other)


# --- edited by a person ------------------------------------------------------------------------------------------

EDITED = b'[["cus_2",1],{}]'


@pytest.mark.parametrize("keys", [NO_KEYS, SIGNING, ENCRYPTING, BOTH], ids=["plain", "signed", "encrypted", "both"])
def test_an_edited_payload_is_sealed_again(keys: Keyring) -> None:
    raw = reseal(sealed(keys), EDITED, ID, NAME, keys)
    assert opened(raw, keys) == Envelope(2, AT, "00-ab-cd-01", EDITED)
    assert opened(reseal(sealed(keys), EDITED, ID, NAME, keys, schema_version=5), keys).schema_version == 5
    if keys.signs:
        assert refusal(raw, keys, "another")


@SIGNED
@pytest.mark.parametrize("raw", [b"junk", sealed(NO_KEYS), sealed(keyring("s2"))], ids=["junk", "unsigned", "foreign"])
def test_no_field_of_an_untrusted_payload_is_signed_again(keys: Keyring, raw: bytes) -> None:
    with pytest.raises(PayloadIntegrityError):
        reseal(raw, EDITED, ID, NAME, keys)
    again = reseal(raw, EDITED, ID, NAME, keys, schema_version=3, pushed_ms=7)
    assert opened(again, keys) == Envelope(3, 7, "", EDITED)
