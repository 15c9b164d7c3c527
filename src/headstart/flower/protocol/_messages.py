"""The records that server and site exchange: typed, checked strictly, without JAX.

A message is one record and named arrays. The arrays are a field of the record (``tensors``) that
is not part of its JSON; :mod:`headstart.flower.protocol._encoding` turns both into bytes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, NonNegativeInt

from headstart.options import to_json
from headstart.records._evaluation import AdaptOn
from headstart.records._federation_events import SiteScores, SiteSizes

PROTOCOL = 4
"""Increases when orders, answers or their encoding change; server and sites must agree."""

OptionTable = Annotated[dict[str, JsonValue], BeforeValidator(to_json)]
"""A table of an experiment file; which keys it has depends on the model, algorithm … it names."""


class _Strict(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        populate_by_name=True,
        serialize_by_alias=True,
    )


class WireMessage(_Strict):
    """A record with arrays."""

    KIND: ClassVar[str]
    """Its name in a message."""
    tensors: dict[str, np.ndarray] = Field(default_factory=dict, exclude=True, repr=False)


class Assignment(_Strict):
    """What every order of a run repeats, so that a site need not remember earlier ones."""

    run: str
    client: NonNegativeInt
    """The site's number: with the round it decides which batches are drawn."""
    known: bool
    """Whether the site takes part in training."""
    seed: int
    model: OptionTable
    algorithm: OptionTable
    aggregation: OptionTable
    parts: OptionTable
    objective: OptionTable
    example_schema: OptionTable = Field(alias="schema")


class Scoring(_Strict):
    """Which scores a site is asked for."""

    steps: tuple[NonNegativeInt, ...]
    """Numbers of adaptation steps to score after."""
    most_steps: NonNegativeInt
    """The most steps any evaluation of the run scores: one compiled program serves all."""
    adapt_on: AdaptOn
    choose_at_most: NonNegativeInt | None
    """Choose a number of steps by cross-validation, at most this; None: choose nothing."""


class Order(WireMessage):
    """What a site is asked to do; ``tensors`` is the server's state or its broadcast."""

    KIND = "order"
    assignment: Assignment
    round: NonNegativeInt
    content: Literal["state", "broadcast"]
    """Training needs the broadcast only; to score or keep a model a site needs the state."""
    train: bool
    scoring: Scoring | None
    keep_steps: NonNegativeInt | None
    """Store the start, and the site's own model after this many steps, or after as many as it
    chose; None: store nothing."""


class TrainingReport(_Strict):
    """The numbers of a training update."""

    weight: float
    part_weights: dict[str, float]
    """The weights of the reply's further parts."""
    loss: float


class Answer(WireMessage):
    """Everything that leaves a site; ``tensors`` is the reply of ``client_update``."""

    KIND = "answer"
    round: int
    sizes: SiteSizes
    scores: SiteScores | None
    """Sums over the held-out examples, from which loss and metrics are computed."""
    training: TrainingReport | None


class IdentityRequest(WireMessage):
    """Asks a node which site it is; only federations without node keys need it."""

    KIND = "identity-request"


class Identity(WireMessage):
    """The name of the site."""

    KIND = "identity"
    name: str
