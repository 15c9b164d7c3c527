"""Flower's ClientApp: passes an order to the site and its answer back, and nothing else.

Flower starts a process for every message. This one stays light: it hands the order to the site's
worker, which has JAX, the data and the compiled programs ready; without a worker it does the work
itself. Of an exception only its class and a code leave the site: its text may quote data. The
text goes to ``errors.log`` in the site's work folder.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.protocol.error_codes import code_of
from headstart.flower.site.worker_socket import ask_worker

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """An order of a training round."""
    return respond(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """An order to score and keep the model."""
    return respond(message, context)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Who are you?"""
    return respond(message, context)


def respond(message: Message, context: Context) -> Message:
    """The site's answer, or the class of what went wrong."""
    try:
        order = wire.from_records(message.content)
        answer = answer_of(str(context.node_config["site"]), order)
        return Message(wire.to_records(answer), reply_to=message)
    except Exception as error:
        _log(context)
        kind = str(getattr(error, "kind", type(error).__name__))
        return Message(Error(code_of(kind), kind), reply_to=message)


def answer_of(site_file: str, order: Parcel) -> Parcel:
    """From the worker if there is one, else from a site made here."""
    from headstart.flower.federation_config import SiteConfig

    config = SiteConfig.read(Path(site_file))
    answer = ask_worker(Path(config.work), order)
    if answer is not None:
        return answer
    return _sites(config).answer(order)


_made: dict[Any, Any] = {}


def _sites(config: Any) -> Any:
    """One site per configuration, so that its data are read once in a process."""
    if config not in _made:
        from headstart.flower.site.orders import Site
        from headstart.machine import use_compilation_cache

        use_compilation_cache()
        _made[config] = Site(config)
    return _made[config]


def _log(context: Context) -> None:
    """For the site's own eyes; if even that fails, there is nothing more to do."""
    try:
        from headstart.flower.federation_config import SiteConfig

        work = Path(SiteConfig.read(Path(str(context.node_config["site"]))).work)
        work.mkdir(parents=True, exist_ok=True)
        with (work / "errors.log").open("a", encoding="utf-8") as file:
            file.write(traceback.format_exc() + "\n")
    except Exception:
        return
