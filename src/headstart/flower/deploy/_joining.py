"""``headstart federate join``: a site's resident worker, and Flower's node.

The worker keeps data and compiled programs ready. Flower's node starts a process for each message,
which only passes the order to the worker. When the node ends, for any reason, it is restarted after
a pause.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from headstart._atomic_files import write_text
from headstart.errors import ConfigError, DataError
from headstart.flower._federation_config import SiteConfig
from headstart.flower._federation_errors import WorkerError
from headstart.flower.deploy._certificates import make_site_key
from headstart.flower.deploy._flower_processes import Child, end, last_line, start_node
from headstart.flower.deploy._node_log import NodeLog
from headstart.flower.protocol._encoding import encode
from headstart.flower.protocol._messages import Order
from headstart.flower.site._error_log import append_exception
from headstart.flower.site._order_execution import Site, read_order
from headstart.flower.site._worker_socket import AnswerBytes, listen
from headstart.machine import use_compilation_cache

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
DOUBT_SECONDS = 20.0
STEADY_SECONDS = 120.0
"""A node that has run this long was able to start."""

Say = Callable[[str], None]


def join(site_file: Path, say: Say, *, until: threading.Event) -> None:
    """Take part as this site until the event is set."""
    config = SiteConfig.read(site_file)
    _refuse_unready(config, site_file, say)
    use_compilation_cache()
    log = Path(config.work) / "node.log"
    say(f"{config.name}: joining {config.server}; Flower's log is {log}")
    with listen(Path(config.work), answer_orders(Site(config), say)):
        _keep_node_alive(config, site_file, log, say, until)


def answer_orders(site: Site, say: Say) -> AnswerBytes:
    """Return the function with which the worker answers: encoded order to encoded answer."""
    name, work = site.config.name, Path(site.config.work)

    def answer(content: bytes) -> bytes:
        begin = time.monotonic()
        try:
            order = read_order(content)
            answer = encode(site.answer(order))
        except Exception as error:
            kind, path = type(error).__name__, append_exception(work)
            say(f"{name}: an order failed with {kind}; details: {path}")
            raise WorkerError(kind) from None
        if isinstance(order, Order):
            work_done = "trained" if order.train else "scored"
            say(f"{name}: round {order.round}: {work_done} in {time.monotonic() - begin:.1f} s")
        return answer

    return answer


def _keep_node_alive(
    config: SiteConfig, site_file: Path, path: Path, say: Say, until: threading.Event
) -> None:
    pause = FIRST_PAUSE
    while not until.is_set():
        log = NodeLog(path)
        node, began = start_node(config, site_file, path), time.monotonic()
        write_text(Path(config.work) / "node.pid", f"{node.pid}\n")
        try:
            _watch(config, node, log, say, until)
        finally:
            end([node])
        if until.is_set():
            return
        if time.monotonic() - began > STEADY_SECONDS:
            pause = FIRST_PAUSE
        say(f"{config.name}: {_why_ended(log)}; trying again in {pause:g} s")
        until.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _watch(config: SiteConfig, node: Child, log: NodeLog, say: Say, until: threading.Event) -> None:
    """Wait until the node ends or must stop; say once whether the server was reached."""
    doubtful = time.monotonic() + DOUBT_SECONDS
    connected, warned = False, False
    while node.poll() is None and not until.wait(0.2):
        if not connected and log.is_connected:
            say(f"{config.name}: connected to {config.server}, waiting for orders")
            connected = True
        if not connected and not warned and time.monotonic() > doubtful:
            warned = True
            say(
                f"{config.name}: {config.server} cannot be reached yet; is the server running, "
                f"its port open, and {config.certificate} its authority? Retrying"
            )


def _why_ended(log: NodeLog) -> str:
    """Return why Flower's node ended, and what to do."""
    if log.is_refused:
        return (
            "the server refused this site: its key is not registered there, or its last "
            "connection is not yet over (up to a minute)"
        )
    return f"the node ended, {last_line(log.path)}"


def _refuse_unready(config: SiteConfig, site_file: Path, say: Say) -> None:
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


def stop_on_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped
