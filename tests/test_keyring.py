"""Keys are read once, used in their order, named by their id, and never shown."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relier.codec.keyring import AES, HEAD, NO_KEYS, PLAIN, Keyring
from relier.errors import ConfigurationError, PayloadIntegrityError
from relier.settings import Settings, get_settings
from relier.submit.client import Client
from tests.support.keyrings import entry, everything_said, key, keyring, keys_setting, leaks, spellings

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ID = "0198f3a2c4d57e1f8a9b0c1d2e3f4a5b"
VALUES = st.binary(max_size=300) | st.binary(max_size=20).map(lambda tail: HEAD + tail)
OLD_AND_NEW = [NO_KEYS, keyring(encryption="a"), keyring(encryption="b,a"), keyring(signing="s")]


# --- reading the settings ----------------------------------------------------------------------------------------


def test_without_keys_there_is_one_keyring_that_does_nothing() -> None:
    assert Keyring.of(Settings()) is NO_KEYS
    assert not NO_KEYS.signs
    assert not NO_KEYS.encrypts
    assert Client(Settings()).keyring is NO_KEYS


def test_a_client_has_the_keys_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SIGNING_KEYS", keys_setting("new", "old"))
    monkeypatch.setenv("RELIER_ENCRYPTION_KEYS", keys_setting("e1"))
    keys = Client(Settings()).keyring
    assert (keys.signs, keys.encrypts) == (True, True)
    assert repr(keys) == "Keyring(signing: new, old; encryption: e1)"


@pytest.mark.parametrize(
    "spell",
    [
        lambda text: text,
        lambda text: text.rstrip("="),
        lambda text: text.replace("+", "-").replace("/", "_"),
        lambda text: f"  {text}\n",
        lambda text: text.replace(":", " : "),
    ],
)
def test_base64_is_accepted_in_its_common_variants(spell: Callable[[str], str]) -> None:
    odd = entry("k1", seed="\x7f?>")  # holds + and /
    assert {"+", "/"} & set(odd)
    written = Keyring.of(Settings(encryption_keys=spell(odd))).wrap(b"x", ID, "result")
    assert Keyring.of(Settings(encryption_keys=odd)).unwrap(written, ID, "result") == b"x"


@pytest.mark.parametrize("size", [16, 24, 32])
def test_aes_keys_have_one_of_three_sizes(size: int) -> None:
    keys = Keyring.of(Settings(encryption_keys=entry("k1", size)))
    assert keys.unwrap(keys.wrap(b"paid", ID, "result"), ID, "result") == b"paid"


WRONG = {
    "empty": (" ", "entry 1 is empty or has no id"),
    "a comma too many": (entry("k1") + ",", "entry 2 is empty or has no id"),
    "no id": (entry("k1").partition(":")[2], "entry 1 is empty or has no id"),
    "an empty id": (entry("k1")[2:], "the id of entry 1 is invalid"),
    "a long id": (entry("k" * 17), "the id of entry 1 is invalid"),
    "an odd id": (entry("k 1"), "the id of entry 1 is invalid"),
    "id and key swapped": (":".join(reversed(entry("k1", 16).split(":"))), "the id of entry 1 is invalid"),
    "twice": (f"{entry('k1')},{entry('k1', seed='other')}", "key 'k1' appears twice"),
    "no base64": (entry("k1") + "!", "key 'k1' is not base64"),
    "no ASCII": (entry("k1") + "ä", "key 'k1' is not base64"),
    "no key": ("k1:", "key 'k1' has 0 bytes"),
    "too short": (entry("k1", 15), "key 'k1' has 15 bytes"),
    "the second is too short": (f"{entry('k1')},{entry('k2', 15)}", "key 'k2' has 15 bytes"),
}
MATERIAL = [
    key("k1"),
    key("k1", 16),
    key("k1", 15),
    key("k2", 15),
    key("k1", 17),
    key("other"),
    key("k 1"),
    key("k" * 17),
]


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("kind", ["signing_keys", "encryption_keys"])
def test_a_wrong_key_is_refused_at_start_by_its_id_and_never_shown(
    kind: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    text, message = WRONG[what]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError, match=f"^RELIER_{kind.upper()}: ") as refused:
        Client(Settings(**{kind: text}))
    assert message in str(refused.value)
    assert "id:base64" in str(refused.value)
    assert not leaks([*everything_said(refused.value), caplog.text], *MATERIAL)


@pytest.mark.parametrize("size", [17, 33, 64])
def test_an_aes_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"key 'k1' has {size} bytes, but an AES key has 16, 24 or 32"):
        Keyring.of(Settings(encryption_keys=entry("k1", size)))


def test_a_missing_package_is_reported_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cryptography", "cryptography.exceptions", "cryptography.hazmat.primitives.ciphers.aead"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[encryption\]'") as refused:
        Client(Settings(encryption_keys=entry("k1"), signing_keys=entry("s1")))
    assert not leaks(list(everything_said(refused.value)), key("k1"), key("s1"))
    assert Client(Settings(signing_keys=entry("s1"))).keyring.signs  # which needs no package


# --- keys are not shown ------------------------------------------------------------------------------------------


def test_settings_and_keyrings_do_not_show_keys() -> None:
    given_ = Settings(signing_keys=entry("s1"), encryption_keys=entry("e1"))
    client = Client(given_)
    keys = client.keyring
    shown = [f(each) for f in (repr, str, ascii) for each in (given_, asdict(given_), keys, client, vars(client))]
    shown += [json.dumps(asdict(given_), default=str), repr([getattr(keys, name) for name in Keyring.__slots__])]
    assert not leaks(shown, key("s1"), key("e1"))


def test_a_keyring_cannot_be_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(keyring("s1", "e1"))


def test_errors_about_settings_show_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SIGNING_KEYS", entry("s1"))
    monkeypatch.setenv("RELIER_CONCURRENCY", "many")
    get_settings.cache_clear()
    with pytest.raises(ConfigurationError, match="RELIER_CONCURRENCY") as refused:
        get_settings()
    assert not leaks(list(everything_said(refused.value)), key("s1"))


def test_the_search_for_keys_finds_keys() -> None:
    """Otherwise the tests above would prove nothing."""
    for spelled in spellings(key("s1")):
        assert leaks([f"a text with {spelled} in it"], key("s1"))

    def raise_with(secret: bytes) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        raise_with(key("s1"))
    inner = raised.value.__traceback__
    assert inner is not None
    assert inner.tb_next is not None
    assert leaks([repr(value) for value in inner.tb_next.tb_frame.f_locals.values()], key("s1"))


# --- signing -----------------------------------------------------------------------------------------------------


def test_the_first_key_signs_and_all_verify() -> None:
    old, both, new = keyring("old"), keyring("new,old"), keyring("new")
    assert old.sign(b"m").startswith("hmac-sha256:old:")
    assert both.sign(b"m") == new.sign(b"m")
    assert both.sign(b"m").startswith("hmac-sha256:new:")
    assert both.distrust(b"m", old.sign(b"m")) == ""
    assert "key 'old', which is not in RELIER_SIGNING_KEYS" in new.distrust(b"m", old.sign(b"m"))


def test_the_signature_is_plain_hmac() -> None:
    """Records outlive releases, and other programs may want to check the signature."""
    import hmac

    assert keyring("k1").sign(b"m") == f"hmac-sha256:k1:{hmac.digest(key('k1'), b'm', 'sha256').hex()}"


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("", "is not signed"),
        ("hmac", "a signature of unknown kind 'hmac'"),
        ("none:k1:", "a signature of unknown kind 'none'"),
        ("hmac-sha256", "key '', which is not in"),
        ("hmac-sha256::", "key '', which is not in"),
        ("hmac-sha256:k9:00", "key 'k9', which is not in"),
        ("hmac-sha256:k1:", "an invalid signature (key 'k1')"),
        ("hmac-sha256:k1:00", "an invalid signature (key 'k1')"),
        ("hmac-sha256:k1:ÄÖ\ud800", "an invalid signature (key 'k1')"),
    ],
)
def test_an_invalid_signature_is_rejected(signature: str, message: str) -> None:
    assert message in keyring("k1").distrust(b"m", signature)


@unhurried
@given(st.binary(), st.text(), st.sampled_from(["", "hmac-sha256:", "hmac-sha256:k1:"]))
def test_a_wrong_signature_is_refused_and_the_right_one_is_never_shown(message: bytes, tail: str, head: str) -> None:
    keys = keyring("k1")
    trouble = keys.distrust(message, head + tail)
    assert trouble
    assert keys.sign(message).rpartition(":")[2] not in trouble


def test_the_same_id_with_another_key_does_not_fit() -> None:
    ours, theirs = Settings(signing_keys=entry("k1")), Settings(signing_keys=entry("k1", seed="other"))
    assert "a different key under this id" in Keyring.of(ours).distrust(b"m", Keyring.of(theirs).sign(b"m"))


# --- encryption --------------------------------------------------------------------------------------------------


@unhurried
@given(VALUES, st.text(), st.text(), st.sampled_from(OLD_AND_NEW))
def test_a_wrapped_value_can_be_unwrapped(raw: bytes, task_id: str, what: str, keys: Keyring) -> None:
    wrapped = keys.wrap(raw, task_id, what)
    assert keys.unwrap(wrapped, task_id, what) == raw
    if keys.encrypts:
        assert wrapped.startswith(AES)
        assert len(raw) < 4 or raw not in wrapped[len(AES) :]
    elif not raw.startswith(HEAD):
        assert wrapped is raw


@unhurried
@given(VALUES, st.sampled_from(OLD_AND_NEW))
def test_values_stored_before_there_were_keys_are_read(raw: bytes, before: Keyring) -> None:
    keys = keyring("s", "c,b,a")
    assert keys.unwrap(before.wrap(raw, ID, "result"), ID, "result") == raw


def test_the_format_of_a_wrapped_value_is_stable() -> None:
    """Records outlive releases: every later version must read what is written today."""
    sealed = bytes.fromhex("000102030405060708090a0be396dc65f4e0cbf3749c88d9cf1634c85febfff68e9a")
    stored = b"\0rl:aes:k1:" + sealed
    assert keyring(encryption="k1").unwrap(stored, ID, "result") == b'"paid"'


def test_every_value_has_a_nonce_of_its_own() -> None:
    keys = keyring(encryption="k1")
    assert len({keys.wrap(b"paid", ID, "result") for _ in range(1000)}) == 1000


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    old, both, new = keyring(encryption="old"), keyring(encryption="new,old"), keyring(encryption="new")
    before = old.wrap(b"paid", ID, "result")
    assert both.unwrap(before, ID, "result") == b"paid"
    assert new.unwrap(both.wrap(b"paid", ID, "result"), ID, "result") == b"paid"
    for keys in (new, NO_KEYS, keyring("old")):
        with pytest.raises(PayloadIntegrityError, match="encrypted with key 'old', which is not in RELIER_ENCRYPTION"):
            keys.unwrap(before, ID, "result")


@pytest.mark.parametrize(
    ("task_id", "what"),
    [("another", "result"), (ID, "checkpoint"), (ID, "step:result"), ("", f"{ID}result"), (f"{ID}re", "sult")],
)
def test_a_value_moved_elsewhere_is_refused(task_id: str, what: str) -> None:
    keys = keyring(encryption="k1")
    with pytest.raises(PayloadIntegrityError, match="cannot be decrypted with key 'k1'"):
        keys.unwrap(keys.wrap(b"paid", ID, "result"), task_id, what)


def test_the_same_id_with_another_key_decrypts_nothing() -> None:
    ours, theirs = (Keyring.of(Settings(encryption_keys=entry("k1", seed=seed))) for seed in ("k1", "other"))
    with pytest.raises(PayloadIntegrityError, match="a different key under this id") as refused:
        ours.unwrap(theirs.wrap(b"paid", ID, "result"), ID, "result")
    assert not leaks(list(everything_said(refused.value)), key("k1"), key("other"))


def refused_or_itself(keys: Keyring, raw: bytes) -> bool:
    """A value whose beginning is damaged looks as if it was stored before there were keys. Then it is not JSON."""
    try:
        return keys.unwrap(raw, ID, "result") == raw and not raw.startswith(HEAD)
    except PayloadIntegrityError:
        return True


def test_no_value_with_a_flipped_bit_passes() -> None:
    keys = keyring(encryption="z1,k1")  # z is one bit from the colon
    raw = keys.wrap(b'{"paid":5000}', ID, "result")
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refused_or_itself(keys, bytes(flipped)), bit


def test_no_truncated_value_passes() -> None:
    keys = keyring(encryption="k1")
    raw = keys.wrap(b'{"paid":5000}', ID, "result")
    for length in range(len(raw)):
        assert refused_or_itself(keys, raw[:length]), length


@unhurried
@given(st.binary(), st.sampled_from([b"", HEAD, AES, AES + b"k1:", AES + b"k9:"]))
def test_random_bytes_raise_nothing_else(tail: bytes, head: bytes) -> None:
    raw = head + tail
    if not raw.startswith(PLAIN):
        assert refused_or_itself(keyring(encryption="k1"), raw)
