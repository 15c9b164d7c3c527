"""The boundary around one site's answer: any exception rejects that answer and no other."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from logging import WARNING
from typing import ParamSpec

from flwr.common.logger import log

from headstart.errors import HeadstartError

LONGEST_REASON = 300
P = ParamSpec("P")


def reason_to_reject(handle: Callable[P, None], *args: P.args, **options: P.kwargs) -> str | None:
    """Handle one answer; return None if it can be used, else why not.

    ``handle`` parses and checks first, and changes what the server knows only as its last step.
    """
    try:
        handle(*args, **options)
    # An answer is bytes from another machine, and there is no complete list of what a parser may
    # raise on them (RecursionError and MemoryError are possible). One answer must not end the run
    # of all other sites: so here, and only here, every exception is caught.
    except Exception as error:
        if not isinstance(error, HeadstartError):
            log(WARNING, "An answer was rejected:\n%s", traceback.format_exc())
        return _short_line(error)
    return None


def _short_line(error: Exception) -> str:
    """Return one short printable line. Our own errors say why, but may quote what a site sent."""
    ours = isinstance(error, HeadstartError)
    text = str(error) if ours else f"its answer cannot be used ({type(error).__name__})"
    if len(text) > LONGEST_REASON:
        text = text[:LONGEST_REASON] + "…"
    return "".join(character if character.isprintable() else "?" for character in text)
