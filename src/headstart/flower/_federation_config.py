"""The two files of a federation: ``federation.toml`` at the server, ``site.toml`` at each site."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headstart.errors import ConfigError
from headstart.options import build_from_table, require_at_least, require_positive

LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.IGNORECASE)


@dataclass(frozen=True)
class FederationConfig:
    """Which sites take part, where the server is, and how long it waits."""

    address: str = f"{LOOPBACK}:9443"
    """Where the sites reach the server: host and port."""
    sites: tuple[str, ...] = ()
    """Sites that train; the order gives them their numbers, so only add at the end."""
    late: tuple[str, ...] = ()
    """Sites that do not train and get their model at the end."""
    min_sites: int = 2
    """Usable answers a round needs: a mean of few reveals much about each of them."""
    deadline: float = 600.0
    """Seconds a site has to answer."""
    wait: float = 600.0
    """Seconds the server waits for enough sites before it ends the run."""
    retries: int = 2
    """How often a round with too few answers is repeated."""
    max_norm: float = 100.0
    """An answer is rejected if its norm exceeds this many times that of what was sent."""
    insecure: bool = False
    """No TLS and no node keys: for trials on one machine only."""

    def __post_init__(self) -> None:
        """Refuse values that no federation could use."""
        host, port = self.host_port
        names = [*self.sites, *self.late]
        if not self.sites:
            raise ConfigError("sites is empty; name at least one site")
        for name in names:
            refuse_name(name)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"site {twice!r} is named twice")
        require_at_least(1, min_sites=self.min_sites)
        require_at_least(0, retries=self.retries)
        require_positive(deadline=self.deadline, wait=self.wait, max_norm=self.max_norm)
        if self.min_sites > len(self.sites):
            raise ConfigError(
                f"min_sites={self.min_sites} is more than the {len(self.sites)} sites that train"
            )
        if self.insecure and host not in (LOOPBACK, "localhost"):
            raise ConfigError(
                f"insecure=true is for trials on one machine; address {host}:{port} is not "
                f"{LOOPBACK}: leave it out, and TLS and node keys are used"
            )

    @property
    def host_port(self) -> tuple[str, int]:
        """The address in two parts."""
        return host_and_port(self.address, "address")

    @classmethod
    def read(cls, path: Path) -> FederationConfig:
        """Read the file."""
        return build_from_table(cls, _table(path, "a federation's folder"), path.name)


@dataclass(frozen=True)
class SiteConfig:
    """One site: its name, where its data are, and how it reaches the server."""

    name: str
    data: str
    """CSV, Parquet or NPZ with the site's examples, or a folder of mapped arrays with one client;
    relative to this file."""
    server: str = f"{LOOPBACK}:9443"
    label: str = "label"
    """Name of the label column."""
    test_fraction: float = 0.2
    """Share of the examples that is held out for scoring."""
    split_seed: int = 0
    """Decides which examples are held out."""
    work: str = "work"
    """Where memory, models and the log are kept; relative to this file."""
    certificate: str = "ca.crt"
    """The authority that signed the server's certificate."""
    key: str = "site.key"
    """The site's private key; it never leaves the site."""
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse values that no site could use."""
        refuse_name(self.name)
        host, _ = host_and_port(self.server, "server")
        if not 0 < self.test_fraction < 1:
            raise ConfigError(f"test_fraction={self.test_fraction} must lie between 0 and 1")
        require_at_least(0, split_seed=self.split_seed)
        if self.insecure and host not in (LOOPBACK, "localhost"):
            raise ConfigError(f"insecure=true is only for a server at {LOOPBACK}, not {host}")

    @classmethod
    def read(cls, path: Path) -> SiteConfig:
        """Read the file; its paths become absolute."""
        config = build_from_table(cls, _table(path, "a site's file, site.toml"), path.name)
        here = path.absolute().parent
        return replace(
            config,
            data=str(here / config.data),
            work=str(here / config.work),
            certificate=str(here / config.certificate),
            key=str(here / config.key),
        )


def refuse_name(name: str) -> None:
    """Refuse a name that cannot name a folder."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"site name {name!r}: use letters, digits, '.', '-' and '_'")


def host_and_port(address: str, option: str) -> tuple[str, int]:
    """Return the two parts of an address."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{option}={address!r} is not HOST:PORT, as in {LOOPBACK}:9443")
    return host, int(port)


def as_toml(value: Any) -> str:
    """Return a value as TOML; texts, lists and numbers in JSON are also TOML."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _table(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; give {what}, as headstart federate init writes it"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
