"""URLs: what each form means, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from relier.errors import ConfigurationError
from relier.settings import Settings
from relier.store import AsyncStore, Scripts
from relier.store.connect.address import Address, Tls, parse_url, redact, target_of


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://example", Address("example")),
        ("valkey://example:6380/3", Address("example", 6380, db=3)),
        ("redis://[::1]:6380", Address("::1", 6380)),
        ("redis://:secret@example", Address("example", password="secret")),
        ("redis://ann:s%40c%2Fret@example/1", Address("example", user="ann", password="s@c/ret", db=1)),
        ("redis://ann:a@b@example", Address("example", user="ann", password="a@b")),
        ("redis://example?db=4", Address("example", db=4)),
        ("rediss://example", Address("example", tls=Tls())),
        ("valkeys://example", Address("example", tls=Tls())),
        ("rediss://example?ssl_cert_reqs=none", Address("example", tls=Tls(verify=False))),
        ("rediss://example?ssl_cert_reqs=CERT_REQUIRED", Address("example", tls=Tls())),
        (
            "rediss://example?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k&ssl_check_hostname=false",
            Address("example", tls=Tls(check_hostname=False, ca_file="/ca", cert_file="/c", key_file="/k")),
        ),
        ("unix:///run/valkey.sock", Address(path="/run/valkey.sock")),
        ("unix://ann:pw@/run/v.sock?db=2", Address(path="/run/v.sock", user="ann", password="pw", db=2)),
    ],
)
def test_a_fixed_address_is_parsed(url: str, address: Address) -> None:
    target = parse_url(url)
    assert (target.kind, target.nodes) == ("fixed", (address,))


def test_a_sentinel_url_is_parsed() -> None:
    target = parse_url("sentinel://ann:pw@a:1,b,[::1]:3/main/2?sentinel_password=other")
    assert target.kind == "sentinel"
    assert target.master_name == "main"
    assert target.master == Address(user="ann", password="pw", db=2, must_be_master=True)
    assert [(node.host, node.port, node.password) for node in target.nodes] == [
        ("a", 1, "other"),
        ("b", 26379, "other"),
        ("::1", 3, "other"),
    ]


def test_sentinel_by_settings_ignores_the_url() -> None:
    settings = Settings(redis_url="nonsense", redis_use_sentinel=True, redis_sentinel_nodes=":pw@a:1,b:2?db=3")
    target = target_of(settings)
    assert (target.kind, target.master_name) == ("sentinel", "relier-master")
    assert target.master == Address(password="pw", db=3, must_be_master=True)
    assert [str(node) for node in target.nodes] == ["a:1", "b:2"]


def test_sentinel_by_settings_needs_nodes() -> None:
    with pytest.raises(ConfigurationError, match="SENTINEL_NODES is empty; set it to the Sentinels, as in host:port"):
        target_of(Settings(redis_use_sentinel=True))


def test_a_cluster_url_is_parsed() -> None:
    target = parse_url("redis+cluster://:pw@a:1,b:2?ssl=true")
    assert target.kind == "cluster"
    assert [(str(node), node.password, node.tls) for node in target.nodes] == [
        ("a:1", "pw", Tls()),
        ("b:2", "pw", Tls()),
    ]


@pytest.mark.parametrize(("url", "folder"), [("embedded://", ""), ("embedded:///a/b", "/a/b"), ("embedded://a", "a")])
def test_an_embedded_url_is_parsed(url: str, folder: str) -> None:
    target = parse_url(url)
    assert (target.kind, target.folder) == ("embedded", folder)


KNOWN = "embedded://, redis://, valkey://, rediss://, valkeys://, unix://, sentinel://, redis+cluster://"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", f"it must begin with one of {KNOWN}"),
        ("localhost:6379", f"it must begin with one of {KNOWN}"),
        ("http://host", f"it must begin with one of {KNOWN}"),
        ("redis://host/x", "the database after the last / must be a number, not 'x'"),
        ("redis://host?db=x", "db must be a number, not 'x'"),
        ("redis://host:99999", "port 99999 is not between 1 and 65535"),
        ("redis://host:port", "'host:port' is not host:port (write an IPv6 address in [brackets])"),
        ("redis://::1", "'::1' is not host:port (write an IPv6 address in [brackets])"),
        ("redis://a,b", "it names several hosts, which only sentinel:// and redis+cluster:// allow"),
        ("redis://host?ssl_cert_req=none", "unknown option 'ssl_cert_req', did you mean 'ssl_cert_reqs'?"),
        ("redis://host?zzz=1", "unknown option 'zzz'"),
        ("rediss://host?ssl_cert_reqs=maybe", "ssl_cert_reqs must be 'required' or 'none', not 'maybe'"),
        (
            "redis://host?ssl_ca_certs=/ca",
            "ssl_ca_certs has no effect without TLS; turn TLS on with rediss:// or ssl=true",
        ),
        ("redis://host?ssl=perhaps", "ssl must be true or false, not 'perhaps'"),
        ("unix://", "a socket URL has the form unix:///path/to.sock"),
        ("unix://run/v.sock", "a socket URL has the form unix:///path/to.sock"),
        ("sentinel://a:1", "the master's name is missing; the form is sentinel://host:26379,host:26379/relier-master"),
        ("embedded://me@x", "embedded:// takes only a folder, as in embedded:///var/lib/app or embedded://data"),
    ],
)
def test_an_invalid_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(url)
    assert str(caught.value) == f"the store URL {redact(url)!r} cannot be used: {why}; correct RELIER_REDIS_URL"


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:hunter2@host:99999",
        "redis://:hunter2@host/x",
        "redis://x:hunter2@@host:bad:bad",
        "nonsense://:hunter2@host",
        "redis://:hunter2@host,other",
        "sentinel://a:1/m?sentinel_password=hunter2&zzz=1",
        "sentinel://a:1/m?sentinel_password=hun@hunter2&zzz=1",
        "sentinel://a:1/m?sentinel_pasword=hunter2",
        "sentinel://a:1/m?sentinel_pasword=hun@hunter2",
        "redis://:hun?hunter2@host:6379/0",
        "redis://ann:hun?hunter2=1@host/0",
        "redis://:hunter2?db=1@host",
        "redis://:hun?db=hunter2@host",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_url_is_shown_without_its_password() -> None:
    url = "sentinel://ann:pw@a:1,b:2/m?sentinel_password=p@w&ssl=true&zzz=1"
    assert redact(url) == "sentinel://***@a:1,b:2/m?sentinel_password=***&ssl=true&zzz=***"
    assert redact("redis://:p?w@host/0") == "redis://***"
    assert redact(":pw@a:1,b:2?db=3") == "***@a:1,b:2?db=3", "the Sentinels as a setting of their own names them"


def test_no_object_with_a_password_shows_it(scripts: Scripts) -> None:
    settings = Settings(redis_url="redis://ann:hunter2@host/1", redis_sentinel_nodes=":hunter2@host")
    target = target_of(settings)
    store = AsyncStore(settings, scripts)
    assert repr(store) == "AsyncStore('redis://***@host/1')"
    assert "hunter2" not in f"{settings!r} {settings} {target!r} {target.nodes[0]}"


def test_tls_verifies_unless_told_otherwise() -> None:
    assert Tls().context.verify_mode.name == "CERT_REQUIRED"
    assert Tls().context.check_hostname
    assert Tls(verify=False).context.verify_mode.name == "CERT_NONE"
    with pytest.raises(ConfigurationError, match="cannot load the TLS files of the store URL"):
        _ = Tls(ca_file="/nowhere").context
