"""Messages as bytes: what was sent is what arrives, and nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest
from flower.raw_messages import RawMessage
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from headstart.errors import ConfigError, DataError
from headstart.flower.protocol._encoding import ORDER_BOUNDS, decode, encode
from headstart.flower.protocol._flower_records import from_records, to_records
from headstart.flower.protocol._messages import (
    Answer,
    Assignment,
    Identity,
    IdentityRequest,
    Order,
    Scoring,
    TrainingReport,
)
from headstart.records._federation_events import SiteScores, SiteSizes

NUMBERS = arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=4))
SIZES = SiteSizes(train_examples=3, test_examples=2, classes=1)
ORDER = Order(
    assignment=Assignment(
        run="a1", client=0, known=True, seed=3, model={"name": "mlp", "hidden": (5,)},
        algorithm={"name": "é", "longest": float("inf")}, aggregation={}, parts={}, objective={},
        example_schema={},
    ),
    round=3, content="state", train=True, keep_steps=None,
    scoring=Scoring(steps=(0, 2), most_steps=2, adapt_on="train", choose_at_most=1),
)  # fmt: skip
ANSWER = Answer(
    round=3,
    sizes=SIZES,
    scores=SiteScores(sums=((0.5, 1.0),)),
    training=TrainingReport(weight=1.0, part_weights={"memory": 2.0}, loss=0.1),
)


@pytest.mark.parametrize("message", [ORDER, ANSWER], ids=["order", "answer"])
@given(tensors=st.dictionaries(st.text(min_size=1, max_size=5), NUMBERS, max_size=3))
def test_a_message_arrives_as_it_was_sent(
    message: Order | Answer, tensors: dict[str, np.ndarray]
) -> None:
    sent = message.model_copy(update={"tensors": tensors})
    content = from_records(to_records(encode(sent)))
    received = decode(content, ORDER_BOUNDS, type(message))
    assert received.model_dump() == message.model_dump()
    assert set(received.tensors) == set(tensors)
    for name, array in received.tensors.items():
        assert (array.dtype, array.shape) == (tensors[name].dtype, tensors[name].shape)
        np.testing.assert_array_equal(array, tensors[name])


def test_an_array_in_column_order_keeps_its_numbers() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    sent = Identity(name="a", tensors={"x": array, "y": array[:, 1]})
    received = decode(encode(sent), ORDER_BOUNDS, Identity)
    for name in ("x", "y"):
        np.testing.assert_array_equal(received.tensors[name], sent.tensors[name])


def test_nothing_pickled_is_sent_or_read() -> None:
    evil = np.array([print], dtype=object)
    with pytest.raises(Exception, match="object"):
        encode(Identity(name="a", tensors={"x": evil}))
    with pytest.raises(DataError, match="cannot be read"):
        decode(b"\x80\x04N.", ORDER_BOUNDS, Identity)


def test_another_protocol_is_named_with_what_to_do() -> None:
    content = RawMessage("order", {"unknown": 1}, protocol="2").to_bytes()
    with pytest.raises(ConfigError, match=r"protocol 2, .* 4; install the same version"):
        decode(content, ORDER_BOUNDS, Order)


def test_another_kind_of_message_is_refused() -> None:
    with pytest.raises(DataError, match="it is not order or identity-request"):
        decode(encode(ANSWER), ORDER_BOUNDS, Order, IdentityRequest)
    with pytest.raises(DataError, match="it has no record"):
        from_records(RecordDict())
