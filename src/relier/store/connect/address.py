"""Parse store URLs into a frozen `StoreTarget`. Passwords never appear in a message or a repr.

    embedded://                        this project's own Valkey, in .relier/ (embedded://folder, embedded:///abs/folder)
    redis://  valkey://                user:password@host:port/db
    rediss://  valkeys://              the same over TLS, certificate verified
    unix://                            user:password@/path/to.sock?db=0
    sentinel://                        user:password@host:port,host:port/master-name
    redis+cluster://                   user:password@host:port,host:port

Options after `?`: db, ssl, ssl_cert_reqs (required | none), ssl_check_hostname, ssl_ca_certs, ssl_certfile,
ssl_keyfile, sentinel_username, sentinel_password.
"""

from __future__ import annotations

import difflib
import os
import re
import ssl
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from relier.errors import ConfigurationError
from relier.settings import Settings

Kind = Literal["embedded", "fixed", "sentinel", "cluster"]
SCHEMES: dict[str, tuple[Kind, bool]] = {
    "embedded": ("embedded", False),
    "redis": ("fixed", False),
    "valkey": ("fixed", False),
    "rediss": ("fixed", True),
    "valkeys": ("fixed", True),
    "unix": ("fixed", False),
    "sentinel": ("sentinel", False),
    "redis+cluster": ("cluster", False),
}
OPTIONS = frozenset(
    [
        "db",
        "ssl",
        "ssl_cert_reqs",
        "ssl_check_hostname",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
        "sentinel_username",
        "sentinel_password",
    ]
)
FREE_TEXT = OPTIONS - {"db", "ssl", "ssl_cert_reqs", "ssl_check_hostname"}
YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
VERIFY = {"required": True, "cert_required": True, "none": False, "cert_none": False}


@dataclass(frozen=True)
class Tls:
    """Hold how to verify the server and which client certificate to use.

    Verification is on unless the URL turns it off.
    """

    verify: bool = True
    check_hostname: bool = True
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @cached_property
    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            context.check_hostname = self.verify and self.check_hostname
            context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise ConfigurationError(
                f"cannot load the TLS files of the store URL: {error}; check ssl_ca_certs, ssl_certfile and ssl_keyfile"
            ) from error
        return context


@dataclass(frozen=True)
class Address:
    """Hold where one server listens, and what each new connection needs: credentials, database, TLS, the role."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: Tls | None = None
    must_be_master: bool = False

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True)
class StoreTarget:
    """Hold a parsed URL. `nodes` are the fixed address, the Sentinels or the cluster's seeds."""

    kind: Kind
    redacted_url: str
    nodes: tuple[Address, ...] = ()
    master: Address = Address()
    master_name: str = ""
    folder: str = ""


def redact(url: str) -> str:
    """Return the URL without user, passwords and the values of unknown options. Works on malformed URLs too."""
    location, mark, query = url.partition("?")
    if _has_stray_at(query):
        return re.sub(r"^(.*?//)?.*", r"\1***", location, count=1, flags=re.DOTALL)
    location = re.sub(r"^(.*?//)?.*@", r"\1***@", location, flags=re.DOTALL)
    return location + mark + "&".join(map(_redacted, query.split("&")))


def _redacted(option: str) -> str:
    name, mark, value = option.partition("=")
    return name + mark + (value if name in OPTIONS and "password" not in name else "***" if value else "")


def _has_stray_at(query: str) -> bool:
    """Return whether the text may be the rest of a password with a ? in it and the host, instead of options."""
    return any("@" in option and option.partition("=")[0] not in FREE_TEXT for option in query.split("&"))


def target_of(settings: Settings) -> StoreTarget:
    """Return the target that the settings name. With `redis_use_sentinel` the URL is ignored."""
    if not settings.redis_use_sentinel:
        return parse_url(settings.redis_url)
    nodes, _, options = settings.redis_sentinel_nodes.partition("?")
    if not nodes.strip():
        raise ConfigurationError(
            "RELIER_REDIS_USE_SENTINEL is on, but RELIER_REDIS_SENTINEL_NODES is empty; "
            "set it to the Sentinels, as in host:port,host:port"
        )
    return parse_url(
        f"sentinel://{nodes.strip()}/{settings.redis_sentinel_master_name}{'?' if options else ''}{options}"
    )


def with_absolute_files(url: str) -> str:
    """Return the URL, or the list of nodes, with absolute paths of its TLS files.

    The files may be read after a task's code has changed the current folder.
    """
    location, mark, query = url.partition("?")
    return location + mark + "&".join(map(_absolute, query.split("&")))


def _absolute(option: str) -> str:
    name, _, value = option.partition("=")
    return f"{name}={quote(os.path.abspath(unquote_plus(value)))}" if value and name in FILES else option


def parse_url(url: str) -> StoreTarget:
    """Parse a store URL. Raise ConfigurationError that says what is wrong with it and how it should look."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in SCHEMES:
        raise _url_error(url, f"it must begin with one of {', '.join(f'{known}://' for known in SCHEMES)}")
    kind, tls = SCHEMES[scheme.lower()]
    location, _, query = rest.partition("?")
    options = _options(url, query)
    if kind == "embedded":
        if "@" in location or options:
            raise _url_error(url, "embedded:// takes only a folder, as in embedded:///var/lib/app or embedded://data")
        return StoreTarget("embedded", redacted_url=redact(url), folder=unquote(location))
    userinfo, _, place = location.rpartition("@")
    user, _, password = userinfo.partition(":")
    nodes, slash, path = place.partition("/")
    plain = Address(
        user=unquote(user) or None,
        password=unquote(password) or None,
        db=_number(url, options["db"], "db") if "db" in options else 0,
        tls=_tls(url, options, wanted=tls or _flag(url, options, "ssl", default=False)),
    )
    if scheme.lower() == "unix":
        if nodes or len(path) < 1:
            raise _url_error(url, "a socket URL has the form unix:///path/to.sock")
        return _target("fixed", url, (replace(plain, path=unquote(slash + path)),), plain)
    if kind == "sentinel":
        return _sentinel(url, plain, nodes, unquote(path), options)
    if path and "db" not in options:
        plain = replace(plain, db=_number(url, path, "the database after the last /"))
    addresses = _nodes(url, nodes, plain, 6379)
    if kind == "fixed" and len(addresses) > 1:
        raise _url_error(url, "it names several hosts, which only sentinel:// and redis+cluster:// allow")
    return _target(kind, url, addresses, plain)


def _sentinel(url: str, plain: Address, nodes: str, path: str, options: dict[str, str]) -> StoreTarget:
    name, _, db = path.partition("/")
    if not name:
        raise _url_error(
            url, "the master's name is missing; the form is sentinel://host:26379,host:26379/relier-master"
        )
    if db:
        plain = replace(plain, db=_number(url, db, "the database after the master's name"))
    asked = Address(user=options.get("sentinel_username"), password=options.get("sentinel_password"), tls=plain.tls)
    target = _target("sentinel", url, _nodes(url, nodes, asked, 26379), replace(plain, must_be_master=True))
    return replace(target, master_name=name)


def _target(kind: Kind, url: str, nodes: tuple[Address, ...], master: Address) -> StoreTarget:
    return StoreTarget(kind, redacted_url=redact(url), nodes=nodes, master=master)


def _nodes(url: str, text: str, plain: Address, default_port: int) -> tuple[Address, ...]:
    nodes = []
    for part in text.split(","):
        found = re.fullmatch(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::(?P<port>\d+))?", part.strip())
        if not found:
            raise _url_error(url, f"{redact(part)!r} is not host:port (write an IPv6 address in [brackets])")
        port = int(found["port"] or default_port)
        if not 0 < port < 65536:
            raise _url_error(url, f"port {port} is not between 1 and 65535")
        nodes.append(replace(plain, host=unquote(found["host"]).strip("[]") or "localhost", port=port))
    return tuple(nodes)


def _options(url: str, query: str) -> dict[str, str]:
    if _has_stray_at(query):
        raise _url_error(url, "there is an @ after the ?; in a user name or password, write ? as %3F and @ as %40")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            raise _url_error(url, f"unknown option {name!r}{f', did you mean {near[0]!r}?' if near else ''}")
    return options


def _tls(url: str, options: dict[str, str], *, wanted: bool) -> Tls | None:
    if not wanted:
        idle = [name for name in options if name.startswith("ssl_")]
        if idle:
            raise _url_error(url, f"{idle[0]} has no effect without TLS; turn TLS on with rediss:// or ssl=true")
        return None
    asked = options.get("ssl_cert_reqs", "required").lower()
    if asked not in VERIFY:
        raise _url_error(url, f"ssl_cert_reqs must be 'required' or 'none', not {asked!r}")
    return Tls(
        verify=VERIFY[asked],
        check_hostname=_flag(url, options, "ssl_check_hostname", default=True),
        ca_file=options.get("ssl_ca_certs"),
        cert_file=options.get("ssl_certfile"),
        key_file=options.get("ssl_keyfile"),
    )


def _flag(url: str, options: dict[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in YES_NO:
        raise _url_error(url, f"{name} must be true or false, not {text!r}")
    return YES_NO[text.lower()]


def _number(url: str, text: str, what: str) -> int:
    if not text.isdecimal():
        raise _url_error(url, f"{what} must be a number, not {text!r}")
    return int(text)


def _url_error(url: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"the store URL {redact(url)!r} cannot be used: {why}; correct RELIER_REDIS_URL")
