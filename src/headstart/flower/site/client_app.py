"""Flower's ClientApp: passes the bytes of an order to the site's worker and the answer back.

Flower starts a process for every message. This one does not import JAX: the worker has JAX, the
data and the compiled programs ready. Without a worker this process does the work itself. Only the
class of an exception and a code leave the site, because the text may quote data; the text goes to
``errors.log`` in the site's work folder.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from headstart.flower._federation_config import SiteConfig
from headstart.flower.protocol._error_codes import code_of
from headstart.flower.protocol._flower_records import from_records, to_records
from headstart.flower.site._error_log import log_exception
from headstart.flower.site._worker_socket import ask_worker

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer an order of a training round."""
    return respond(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Answer an order to score and keep the model."""
    return respond(message, context)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say which site this is."""
    return respond(message, context)


def respond(message: Message, context: Context) -> Message:
    """Return the site's answer, or the class of the exception."""
    site_file = Path(str(context.node_config["site"]))
    try:
        answer = answer_bytes(SiteConfig.read(site_file), from_records(message.content))
        return Message(to_records(answer), reply_to=message)
    except Exception as error:
        log_exception(site_file)
        kind = str(getattr(error, "kind", type(error).__name__))
        return Message(Error(code_of(kind), kind), reply_to=message)


def answer_bytes(config: SiteConfig, order: bytes) -> bytes:
    """Return the answer of the worker if there is one, else of this process."""
    answer = ask_worker(Path(config.work), order)
    if answer is not None:
        return answer
    from headstart.flower.site._order_execution import site_of

    return site_of(config).answer_bytes(order)
