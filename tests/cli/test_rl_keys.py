"""`rl` in a namespace with keys, and with values that must not be shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from relier.codec.keyring import Keyring
from relier.envelope import open_envelope, seal
from relier.ledger.records import new_task_id
from tests.support.cli_desk import Desk, Run, RunJson, failure
from tests.support.keyrings import entry, key, keyring, keys_setting, leaks

CARD = "4111-1111-1111-1111"
BOTH = keyring("s1", "e1")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SIGNING_KEYS", keys_setting("s1"))
    monkeypatch.setenv("RELIER_ENCRYPTION_KEYS", keys_setting("e1"))


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rl_privacy.py").write_text(
        "import re\n"
        "def mask(name, value):\n"
        "    if isinstance(value, str):\n"
        "        return re.sub(r'[0-9]{4}(-[0-9]{4}){3}', '(card)', value)\n"
        "    if isinstance(value, list):\n"
        "        return [mask(name, item) for item in value]\n"
        "    return {k: mask(name, v) for k, v in value.items()} if isinstance(value, dict) else value\n"
        "def odd(name, value):\n"
        "    return {1, 2}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RELIER_REDACT", "rl_privacy:mask")


def dead(desk: Desk, keys: Keyring, *args: Any, **kept: str) -> str:
    task_id, body = new_task_id(), json.dumps([args, {}]).encode()
    payload = seal(body, schema_version=2, pushed_ms=7, task_id=task_id, name="shop.charge", keyring=keys)
    return desk.dead(id=task_id, payload=payload, **kept)


@pytest.mark.usefixtures("keys")
def test_an_encrypted_payload_is_shown_if_the_keys_are_set(desk: Desk, run: Run, run_json: RunJson) -> None:
    task = dead(desk, BOTH, CARD)
    assert run_json("dlq", "show", task)["payload"] == {
        "kind": "envelope",
        "schema_version": 2,
        "pushed_ms": 7,
        "trace": None,
        "body": [[CARD], {}],
    }
    assert CARD in run("dlq", "show", task).stdout


def test_without_the_key_the_payload_is_hidden_and_the_key_is_named(desk: Desk, run: Run, run_json: RunJson) -> None:
    task = dead(desk, BOTH, CARD)
    told = run_json("dlq", "show", task)["payload"]
    assert told["kind"] == "json"
    assert "is encrypted with key 'e1'" in told["problem"]
    assert CARD not in json.dumps(told)
    assert CARD not in run("dlq", "show", task).stdout


@pytest.mark.usefixtures("keys")
def test_a_payload_with_a_wrong_signature_is_reported(desk: Desk, run_json: RunJson) -> None:
    told = run_json("dlq", "show", dead(desk, keyring(), "forged"))["payload"]
    assert "is not signed" in told["problem"]
    assert told["body"]["body"] == [["forged"], {}]


@pytest.mark.usefixtures("keys")
def test_an_edited_payload_is_signed_and_encrypted_again(desk: Desk, run: Run) -> None:
    task = dead(desk, BOTH, CARD)
    assert run("dlq", "replay", task, "--payload", "-", input='[["other"], {}]').exit_code == 0
    claimed = desk.claim()
    assert b"other" not in claimed.payload
    opened = open_envelope(claimed.payload, task_id=task, name="shop.charge", keyring=BOTH)
    assert (opened.body, opened.schema_version, opened.pushed_ms) == (b'[["other"],{}]', 2, 7)


@pytest.mark.usefixtures("keys")
def test_no_field_of_a_forged_payload_is_signed_again(desk: Desk, run: Run) -> None:
    task = dead(desk, keyring(), "forged")
    result = run("dlq", "replay", task, "--payload", "-", input='[["other"], {}]')
    assert result.exit_code == 2
    assert "pass --schema-version" in result.stderr
    given = ("--schema-version", "1", "--payload", "-")
    assert run("dlq", "replay", task, *given, input='[["other"], {}]').exit_code == 0
    assert open_envelope(desk.claim().payload, task_id=task, name="shop.charge", keyring=BOTH).schema_version == 1


@pytest.mark.usefixtures("keys")
def test_schema_check_reads_encrypted_payloads(desk: Desk, run_json: RunJson, tmp_path: Path) -> None:
    module = tmp_path / "rl_keys_jobs.py"
    module.write_text(
        "from relier import rl_task\n"
        "@rl_task(name='shop.charge', schema_version=2)\n"
        "def charge(card: str) -> None: ...\n"
    )
    dead(desk, BOTH, CARD)
    assert run_json("schema", "check", str(module))["troubles"] == []
    for _ in range(3):
        dead(desk, keyring("s1", "e2"), CARD)
    (trouble,) = run_json("schema", "check", str(module), code=1)["troubles"]
    assert "is encrypted with key 'e2'" in trouble["why"]
    assert trouble["states"] == {"dead": 3}


# --- what may be shown -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hook")
def test_payloads_and_failures_pass_through_the_redaction_hook(desk: Desk, run: Run) -> None:
    task = dead(desk, keyring(), CARD, detail=failure(f"{CARD} was declined"))  # kept before there was a hook
    for command in (("dlq",), ("dlq", "show", task), ("why", task)):
        for more in ((), ("--json",)):
            told = run(*command, *more).stdout
            assert "(card) was declined" in told, command
            assert CARD not in told, command


@pytest.mark.usefixtures("hook")
def test_a_value_that_the_hook_makes_unprintable_is_hidden(
    desk: Desk, run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIER_REDACT", "rl_privacy:odd")
    told = run_json("dlq", "show", dead(desk, keyring(), CARD))
    assert told["payload"]["body"] == "(hidden: rl_privacy:odd did not return plain data)"


def test_an_invalid_hook_ends_the_command(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task = desk.dead()
    monkeypatch.setenv("RELIER_REDACT", "rl_no_such:mask")
    result = run("dlq", "show", task)
    assert result.exit_code == 2
    assert "RELIER_REDACT=rl_no_such:mask: it cannot be imported" in result.stderr


# --- the doctor --------------------------------------------------------------------------------------------------


def keys_in(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(check["level"], check["says"]) for check in told["checks"] if check["check"] == "keys"]


@pytest.mark.usefixtures("keys")
def test_the_doctor_names_the_keys_and_shows_none(desk: Desk, run: Run) -> None:
    result = run("doctor", "--json")
    ((level, says),) = keys_in(json.loads(result.stdout))
    assert (level, says) == (
        "ok",
        "Payloads are signed and encrypted. Keyring(signing: s1; encryption: e1); the first of each is in use.",
    )
    assert not leaks([result.stdout, run("doctor").stdout], key("s1"), key("e1"))


def test_the_doctor_warns_of_encryption_alone(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_ENCRYPTION_KEYS", keys_setting("e1"))
    ((level, says),) = keys_in(json.loads(run("doctor", "--json").stdout))
    assert level == "warn"
    assert "not signed" in says


def test_the_doctor_finds_keys_that_cannot_work(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_SIGNING_KEYS", entry("s1", 8))
    result = run("doctor", "--json")
    ((level, says),) = keys_in(json.loads(result.stdout))
    assert level == "bad"
    assert re.search(r"key 's1' has 8 bytes", says)
    assert not leaks([result.stdout], key("s1", 8))


def test_without_keys_the_doctor_does_not_mention_them(desk: Desk, run: Run) -> None:
    assert keys_in(json.loads(run("doctor", "--json").stdout)) == []
