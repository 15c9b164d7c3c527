r"""Shakespeare's roles: predict the next character of what one role says.

The file is JSON, ``{"users": ["play/ROLE", …], "user_data": {"play/ROLE": {"raw": [speech, …]}}}``
(the form of LEAF's intermediate file). A role's text is its speeches in order, each followed by a
line break. Roles of at least 2,000 characters are clients.

Text t_0 t_1 … is cut into windows that do not overlap: example k is x = t_{80k} … t_{80k+79} with
one label per position, y = t_{80k+1} … t_{80k+80}. A client's last windows are held out.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import DataError

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare task; token 80 stands for any other."""
WINDOW = 80
LEAST = 2000
FILES = (DataFile("shakespeare", "shakespeare_by_role.json"),)

_TOKENS = np.full(256, len(CHARACTERS), np.uint8)
_TOKENS[[ord(c) for c in CHARACTERS]] = np.arange(len(CHARACTERS))


def load() -> Pool:
    """Return windows of 80 characters from 447 roles."""
    texts = {
        role: text for role, text in parse(downloads.read(FILES)[0]).items() if len(text) >= LEAST
    }
    if not texts:
        raise DataError(f"{FILES[0].name} has no role of {LEAST} characters; get the whole file")
    cut = [windows(text) for text in texts.values()]
    tokens = len(CHARACTERS) + 1
    return Pool(
        name="shakespeare",
        x=np.concatenate([x for x, _ in cut]),
        y=np.concatenate([y for _, y in cut]).astype(np.int32),
        schema=Schema(
            shape=(WINDOW,),
            classes=tokens,
            vocabulary=tokens,
            class_names=(*CHARACTERS, "unknown"),
        ),
        owner=np.repeat(np.arange(len(cut)), [len(x) for x, _ in cut]),
        owner_names=list(texts),
        ordered=True,
    )


def parse(content: bytes) -> dict[str, str]:
    """Return each role's text."""
    try:
        table: Any = json.loads(content)
        raw = {role: table["user_data"][role]["raw"] for role in table["users"]}
        return {str(role): "".join(f"{speech}\n" for speech in raw[role]) for role in raw}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f'{FILES[0].name} is not JSON of the form {{"users": […], "user_data": {{user: '
            '{"raw": [speech, …]}}}; docs/data.md describes it'
        ) from None


def windows(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the text's windows as tokens, and the same windows shifted by one character."""
    points = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    tokens = np.where(points < 256, _TOKENS[np.minimum(points, 255)], len(CHARACTERS))
    count = (len(tokens) - 1) // WINDOW
    x = tokens[: count * WINDOW].reshape(count, WINDOW)
    y = tokens[1 : count * WINDOW + 1].reshape(count, WINDOW)
    return x.astype(np.uint8), y.astype(np.uint8)


SOURCE = Source(
    name="shakespeare",
    summary="next-character prediction, windows of 80 characters, 81 tokens",
    clients="447 roles (play and character) of at least 2,000 characters",
    licence="public domain",
    citation="Text: Moby Shakespeare; task: Caldas et al.: LEAF, arXiv 1812.01097, 2018",
    home="https://github.com/TheMITTech/shakespeare",
    load=load,
    files=FILES,
    natural=True,
)
