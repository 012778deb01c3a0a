"""The keys of a namespace: payloads are signed, and stored values are encrypted.

    RELIER_SIGNING_KEYS="2026-11:<base64>,2026-05:<base64>"       HMAC-SHA256 over each envelope (see envelope.py)
    RELIER_ENCRYPTION_KEYS="2026-11:<base64>"                     AES-GCM over payloads, results, checkpoints, steps,
                                                                  and the results of locks

The first key of a list signs or encrypts; all keys verify or decrypt, so keys can be rotated while tasks wait. Stored
values name their key by id.

An encrypted value is `NUL rl:aes: <key id> : <nonce of 12 bytes> <ciphertext, tag>`. A value that does not begin with
`NUL rl:` was stored before keys were set and is read as it is. Each value is bound to its task's id (or a lock's key)
and to its role: someone who copies it to another task or role gets a value that cannot be decrypted. An older value of
the same task and role can still be decrypted.

Keys are not kept as bytes or text after they were read, and no function that raises has one in a local variable. So
neither messages nor tools that print local variables can reveal a key or a valid signature.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from relier.errors import ConfigurationError, PayloadIntegrityError
from relier.settings import Settings
from relier.settings.values import Secret
from relier.version import how_to_install

ALGORITHM = "hmac-sha256"
HEAD = b"\0rl:"
AES, PLAIN = HEAD + b"aes:", HEAD + b"raw:"
LEAST_SIGNING_BYTES = 16
AES_BYTES = (16, 24, 32)
NONCE_BYTES, TAG_BYTES = 12, 16
# Shorter than the base64 of the shortest key, so a key in place of an id is refused and never printed.
_ID = re.compile(r"[A-Za-z0-9_.-]{1,16}")
T = TypeVar("T")


class Aead(Protocol):
    """The methods of cryptography's AESGCM that are used."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Cipher:
    """One AES key. `refused` is the exception that its library raises for bytes it cannot decrypt."""

    __slots__ = ("_aes", "_refused")

    def __init__(self, aes: Aead, refused: type[Exception]) -> None:
        self._aes = aes
        self._refused = refused

    def encrypt(self, raw: bytes, about: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aes.encrypt(nonce, raw, about)

    def decrypt(self, sealed: bytes, about: bytes) -> bytes | None:
        """Return the plain bytes, or None if the bytes or their context are wrong."""
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            return None
        try:
            return self._aes.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
        except self._refused:
            return None


class Keyring:
    """All keys of one client. Without keys it changes nothing: see `signs` and `encrypts`."""

    __slots__ = ("_ciphers", "_encrypter", "_signer", "_signers", "encrypts", "signs")

    def __init__(self, signers: Mapping[str, hmac.HMAC], ciphers: Mapping[str, Cipher]) -> None:
        self._signers = dict(signers)
        self._ciphers = dict(ciphers)
        self._signer = next(iter(signers), "")
        self._encrypter = next(iter(ciphers), "")
        self.signs = bool(signers)
        self.encrypts = bool(ciphers)

    @classmethod
    def of(cls, settings: Settings) -> Keyring:
        """Return the keys in the settings. A ConfigurationError about a bad key names its id, never the key."""
        signing, encryption = settings.signing_keys, settings.encryption_keys
        if not signing and not encryption:
            return NO_KEYS
        signers = _read("RELIER_SIGNING_KEYS", signing, _signer_of) if signing else {}
        return cls(signers, _read("RELIER_ENCRYPTION_KEYS", encryption, _cipher_maker()) if encryption else {})

    def __repr__(self) -> str:
        signing, encryption = ", ".join(self._signers), ", ".join(self._ciphers)
        return f"Keyring(signing: {signing or 'none'}; encryption: {encryption or 'none'})"

    # --- signing -------------------------------------------------------------------------------------------------

    def sign(self, message: bytes) -> str:
        """Return `hmac-sha256:<key id>:<hex>`, made with the first key."""
        return f"{ALGORITHM}:{self._signer}:{_digest(self._signers[self._signer], message)}"

    def distrust(self, message: bytes, signature: str) -> str:
        """Return why a signature is not trusted, or an empty string if it is valid."""
        if not signature:
            return "is not signed, but RELIER_SIGNING_KEYS is set: its producer has no key, or is not allowed to push"
        algorithm, _, rest = signature.partition(":")
        key_id, _, digest = rest.partition(":")
        if algorithm != ALGORITHM:
            return f"has a signature of unknown kind {algorithm!r:.40}"
        if key_id not in self._signers:
            return f"is signed with key {key_id!r:.40}, which is not in RELIER_SIGNING_KEYS of this process"
        if not _fits(self._signers[key_id], message, digest):
            return (
                f"has an invalid signature (key {key_id!r}): it was forged or altered, belongs to another task, or its "
                f"producer has a different key under this id"
            )
        return ""

    # --- encryption ----------------------------------------------------------------------------------------------

    def wrap(self, raw: bytes, task_id: str, what: str) -> bytes:
        """Return a value as it is stored.

        `what` is the role of the value: `result`, `checkpoint`, `step:…` or `lock`. `lock` is for the result of a lock,
        whose key is passed as `task_id`.
        """
        if self.encrypts:
            key_id, sealed = self.encrypt(raw, task_id, what)
            return b"%b%b:%b" % (AES, key_id.encode(), sealed)
        return PLAIN + raw if raw.startswith(HEAD) else raw  # otherwise it would look encrypted

    def unwrap(self, raw: bytes, task_id: str, what: str, called: str = "") -> bytes:
        """Return the value that `wrap` was given, or the bytes as they are if they were never wrapped.

        Raises PayloadIntegrityError if decryption fails. `called` is the name of the value in its message.
        """
        if not raw.startswith(HEAD):
            return raw
        if raw.startswith(PLAIN):
            return raw[len(PLAIN) :]
        if not raw.startswith(AES):
            raise PayloadIntegrityError(
                f"{called or f'the {what} of task {task_id}'} is encrypted in an unknown way; a newer Relier wrote it, "
                f"or it was altered"
            )
        key_id, _, sealed = raw[len(AES) :].partition(b":")
        return self.decrypt(key_id.decode("utf-8", "replace"), sealed, task_id, what, called)

    def encrypt(self, raw: bytes, task_id: str, what: str) -> tuple[str, bytes]:
        """Return the id of the first key and the encrypted value."""
        return self._encrypter, self._ciphers[self._encrypter].encrypt(raw, _about(task_id, what))

    def decrypt(self, key_id: str, sealed: bytes, task_id: str, what: str, called: str = "") -> bytes:
        """Return the plain value. Raise PayloadIntegrityError, naming it `called`, if decryption fails."""
        called = called or f"the {what} of task {task_id}"
        if key_id not in self._ciphers:
            raise PayloadIntegrityError(
                f"{called} is encrypted with key {key_id!r:.40}, which is not in RELIER_ENCRYPTION_KEYS; add that key "
                f"after the first one and try again"
            )
        raw = self._ciphers[key_id].decrypt(sealed, _about(task_id, what))
        if raw is None:
            raise PayloadIntegrityError(
                f"{called} cannot be decrypted with key {key_id!r}: it was altered, it belongs to another task, or "
                f"its writer had a different key under this id"
            )
        return raw


NO_KEYS = Keyring({}, {})


def _about(task_id: str, what: str) -> bytes:
    return f"{len(task_id)}:{task_id}{what}".encode("utf-8", "surrogatepass")


def _digest(template: hmac.HMAC, message: bytes) -> str:
    keyed = template.copy()  # already keyed
    keyed.update(message)
    return keyed.hexdigest()


def _fits(template: hmac.HMAC, message: bytes, digest: str) -> bool:
    return hmac.compare_digest(_digest(template, message).encode(), digest.encode("utf-8", "surrogatepass"))


# --- reading the settings ----------------------------------------------------------------------------------------


def _read(variable: str, secret: Secret, make: Callable[[bytes], T | str]) -> dict[str, T]:
    made, trouble = _made(secret, make)
    if trouble:
        raise ConfigurationError(
            f"{variable}: {trouble}; write id:base64,id2:base64, the key in use first, then older ones; to make a "
            f"key: python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"
        )
    return made


def _made(secret: Secret, make: Callable[[bytes], T | str]) -> tuple[dict[str, T], str]:
    """Return the keys by id, or a description of the problem. The caller raises: it has no key in a local variable."""
    made: dict[str, T] = {}
    for number, entry in enumerate(secret.get_secret_value().split(","), 1):
        key_id, mark, text = (part.strip() for part in entry.partition(":"))
        if not mark:
            return {}, f"entry {number} is empty or has no id"
        if not _ID.fullmatch(key_id):
            return {}, f"the id of entry {number} is invalid: an id is 1 to 16 letters, digits or any of . _ -"
        if key_id in made:
            return {}, f"key {key_id!r} appears twice"
        raw = _bytes_of(text)
        key = "is not base64" if raw is None else make(raw)
        if isinstance(key, str):
            return {}, f"key {key_id!r} {key}"
        made[key_id] = key
    return made, ""


def _bytes_of(text: str) -> bytes | None:
    """Decode base64 in either alphabet, with or without padding."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return None


def _signer_of(key: bytes) -> hmac.HMAC | str:
    if len(key) < LEAST_SIGNING_BYTES:
        return f"has {len(key)} bytes, but a signing key needs at least {LEAST_SIGNING_BYTES}"
    return hmac.new(key, digestmod="sha256")


def _cipher_maker() -> Callable[[bytes], Cipher | str]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(
            "RELIER_ENCRYPTION_KEYS is set, but the cryptography package is not installed; "
            f"{how_to_install('encryption')}"
        ) from error

    def cipher_of(key: bytes) -> Cipher | str:
        if len(key) not in AES_BYTES:
            return f"has {len(key)} bytes, but an AES key has 16, 24 or 32"
        return Cipher(AESGCM(key), InvalidTag)

    return cipher_of
