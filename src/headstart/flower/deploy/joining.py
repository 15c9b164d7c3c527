"""A site's resident part: keeps data and compiled programs ready, and Flower's node alive.

Flower starts a process for each message; that one only passes the order on to here (see
client_app). When the node ends, for whatever reason, it is started again after a pause.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from headstart.atomic_files import write_text
from headstart.errors import ConfigError, DataError
from headstart.flower.deploy.certificates import make_site_key
from headstart.flower.deploy.flower_processes import Child, end, last_line, start_node
from headstart.flower.federation_config import SiteConfig
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.site.orders import Site
from headstart.flower.site.worker_socket import listening
from headstart.machine import use_compilation_cache

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
DOUBT_SECONDS = 20.0
CONNECTED = "SuperNode ID"
"""What Flower's node writes once the server has taken it in."""
STEADY_SECONDS = 120.0
"""A node that has lived so long is not one that cannot start."""


def join(site_file: Path, say: Callable[[str], None], *, until: threading.Event) -> None:
    """Take part as this site until the event is set."""
    config = SiteConfig.read(site_file)
    _refuse_unready(config, site_file, say)
    use_compilation_cache()
    site, work = Site(config), Path(config.work)
    log = work / "node.log"
    say(f"{config.name}: joining {config.server}; Flower's log is {log}")

    def answer(order: Parcel) -> Parcel:
        begin = time.monotonic()
        try:
            found = site.answer(order)
        except Exception as error:
            with (work / "errors.log").open("a", encoding="utf-8") as file:
                file.write(traceback.format_exc() + "\n")
            kind = type(error).__name__
            say(f"{config.name}: an order failed with {kind}; details: {work / 'errors.log'}")
            return wire.parcel({"failed": kind}, {})
        what = "trained" if order.text.get("train") else "scored"
        number = order.text.get("round", 0)
        say(f"{config.name}: round {number}: {what} in {time.monotonic() - begin:.1f} s")
        return found

    with listening(work, answer):
        _keep_alive(config, site_file, log, say, until)


def _keep_alive(
    config: SiteConfig, site_file: Path, log: Path, say: Callable[[str], None],
    until: threading.Event,
) -> None:  # fmt: skip
    pause = FIRST_PAUSE
    while not until.is_set():
        begin = log.stat().st_size if log.exists() else 0
        node, began = start_node(config, site_file, log), time.monotonic()
        write_text(Path(config.work) / "node.pid", f"{node.pid}\n")
        try:
            _watch(config, node, log, begin, say, until)
        finally:
            end([node])
        if until.is_set():
            return
        if time.monotonic() - began > STEADY_SECONDS:
            pause = FIRST_PAUSE
        say(f"{config.name}: {_why_ended(log, begin)}; again in {pause:g} s")
        until.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _watch(
    config: SiteConfig, node: Child, log: Path, begin: int, say: Callable[[str], None],
    until: threading.Event,
) -> None:  # fmt: skip
    """Until the node ends or we are to stop; say once whether the server was reached."""
    doubtful = time.monotonic() + DOUBT_SECONDS
    open_question, warned = True, False
    while node.poll() is None and not until.wait(0.2):
        if open_question and CONNECTED in _since(log, begin):
            say(f"{config.name}: connected to {config.server}, waiting for orders")
            open_question = False
        if open_question and not warned and time.monotonic() > doubtful:
            warned = True
            say(
                f"{config.name}: {config.server} cannot be reached yet; is the server running, "
                f"its port open, and {config.certificate} its authority? Trying on"
            )


def _why_ended(log: Path, begin: int) -> str:
    """What Flower's node said before it ended, in words that help."""
    if "Failed to activate" in _since(log, begin):
        return (
            "the server refused this site: its key is not registered there, or its last "
            "connection is not yet over (up to a minute)"
        )
    return f"the node ended, {last_line(log)}"


def _since(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def _refuse_unready(config: SiteConfig, site_file: Path, say: Callable[[str], None]) -> None:
    if not Path(config.data).exists():
        raise DataError(f"{config.data} does not exist; set data in {site_file} to your file")
    if config.insecure:
        return
    if not Path(config.certificate).exists():
        raise ConfigError(
            f"{config.certificate} does not exist; get it from the server (server/ca.crt there)"
        )
    if not Path(config.key).exists():
        public = make_site_key(Path(config.key))
        say(
            f"made a key for {config.name}; send {public} to the server's operator, who keeps it "
            f"as server/sites/{config.name}.pub; until then the server refuses this site"
        )


def until_stopped() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped
