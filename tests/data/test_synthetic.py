"""Clients made by a formula: the law of every symbol, and the same clients in any portions."""

import dataclasses
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.data import StoreWriter, Synthetic, load, open_store
from headstart.data._dataset_options import build_dataset, resolve_data_options
from headstart.data.sources._synthetic import BLOCK, Block
from headstart.errors import ConfigError

ALPHA, BETA = 4.0, 9.0
"""Neither 0 nor 1, where a variance and a standard deviation are the same number."""


@pytest.fixture(scope="module")
def drawn() -> Block:
    """What was drawn for 10,240 clients."""
    made = Synthetic(features=8, classes=5, examples=12, alpha=ALPHA, beta=BETA)
    blocks = [made.block(number, seed=1) for number in range(40)]
    return Block(*(np.concatenate(arrays).astype(float) for arrays in zip(*blocks, strict=True)))


def near(sample: np.ndarray, variance: float) -> None:
    """Mean 0 and this variance, within five standard errors of what independent draws give."""
    n = sample.size
    assert abs(sample.mean()) < 5 * np.sqrt(variance / n)
    assert abs(sample.var() / variance - 1) < 5 * np.sqrt(2 / n)


def test_every_symbol_follows_its_law(drawn: Block) -> None:
    near(drawn.u, ALPHA)
    near(drawn.B, BETA)
    near(drawn.W - drawn.u[:, None, None], 1)
    near(drawn.b - drawn.u[:, None], 1)
    near(drawn.v - drawn.B[:, None], 1)
    for j in range(8):
        near((drawn.x - drawn.v[:, None, :])[..., j], (j + 1) ** -1.2)


def test_symbols_are_independent_of_one_another(drawn: Block) -> None:
    noise = drawn.x - drawn.v[:, None, :]
    residuals = [
        drawn.u, drawn.B, drawn.b[:, 0] - drawn.u, drawn.b[:, 1] - drawn.u,
        drawn.W[:, 0, 0] - drawn.u, drawn.W[:, 1, 0] - drawn.u, drawn.W[:, 0, 1] - drawn.u,
        drawn.v[:, 0] - drawn.B, drawn.v[:, 1] - drawn.B,
        noise[:, 0, 0], noise[:, 1, 0], noise[:, 0, 1],
    ]  # fmt: skip
    correlation = np.corrcoef(residuals) - np.eye(len(residuals))
    assert np.abs(correlation).max() < 5 / np.sqrt(len(drawn.u))


def test_labels_are_the_largest_score(drawn: Block) -> None:
    scores = np.einsum("icf,ief->iec", drawn.W, drawn.x) + drawn.b[:, None, :]
    best, label = scores.max(axis=2), np.take_along_axis(scores, drawn.y[..., None].astype(int), 2)
    assert (best - label[..., 0]).max() < 1e-3  # rounding of 32-bit numbers
    assert (scores.argmax(axis=2) == drawn.y).mean() > 0.9999


def test_alpha_changes_no_label() -> None:
    """As the docstring says: u_i adds the same to every class."""
    flat, wide = (Synthetic(alpha=a).block(0, seed=0).y for a in (0.0, 4.0))
    assert (flat == wide).mean() > 0.999


def test_a_client_is_the_same_whoever_else_there_is() -> None:
    few, many = (Synthetic(clients=n, features=3).dataset(seed=7) for n in (BLOCK + 44, 700))
    assert np.array_equal(few.x, many.x[: len(few.x)])
    assert np.array_equal(few.y, many.y[: len(few.y)])
    parts = list(Synthetic(clients=700, features=3).parts(seed=7))
    assert [p.clients for p in parts] == [BLOCK, BLOCK, 700 - 2 * BLOCK]
    assert np.array_equal(np.concatenate([p.x for p in parts]), many.x)
    assert np.array_equal(np.concatenate([p.y for p in parts]), many.y)


def test_clients_blocks_and_seeds_differ() -> None:
    made = Synthetic(clients=2 * BLOCK, features=3)
    data, other = made.dataset(seed=7), made.dataset(seed=8)
    assert len(np.unique(data.x[:, 0])) > 0.999 * len(data.x)
    assert not (data.x == other.x).any()
    again = made.dataset(seed=7)
    assert again.digest() == data.digest() != other.digest()


def test_splits_and_new_clients() -> None:
    data = Synthetic(clients=10, examples=7, features=2).dataset(
        seed=0, new_clients=3, test_fraction=0.3
    )
    assert data.known_clients == 7 and data.x.dtype == np.float32 and data.y.dtype == np.int32
    assert set(data.train_counts) == {5} and set(data.test_counts) == {2}
    assert data.description == "synthetic(1, 1)"


def test_writing_takes_no_more_memory_for_more_clients(tmp_path: Path) -> None:
    peaks = []
    for blocks in (2, 40):
        made = Synthetic(clients=blocks * BLOCK, features=4, examples=10)
        tracemalloc.start()
        with StoreWriter(tmp_path / str(blocks), made.schema, new_clients=9) as writer:
            for part in made.parts(seed=0):
                writer.add(part)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000 < 40 * BLOCK * 10 * 4 * 4
    data = open_store(tmp_path / "40")
    assert data.digest() == made.dataset(seed=0, new_clients=9).digest()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 1}, "clients=1 must be at least 2"),
        ({"examples": 1}, "examples=1 must be at least 2"),
        ({"features": 0}, "features=0 must be at least 1"),
        ({"classes": 1}, "classes=1 must be at least 2"),
        ({"alpha": -1.0}, "alpha=-1.0 must be a variance between 0"),
        ({"beta": float("nan")}, "beta=nan must be a variance"),
        ({"alpha": 1e300}, "alpha=1e[+]300 must be a variance"),
        ({"new_clients": 100}, "new_clients=100 must be at least 0 and less than .*clients=100"),
        ({"test_fraction": 1.0}, "test_fraction=1.0 must lie between"),
        (
            {"clients": 2_000_000},
            r"clients=2000000 .* take 9\.6 GB; .*headstart data synthetic",
        ),
        ({"clients": 10**12}, "clients=1000000000000 is too large"),
        ({"partition": "iid"}, "partition='iid' is not for data.source='synthetic'"),
        ({"min_examples": 3}, "min_examples=3 is not for data.source='synthetic'"),
        ({"standardize": True}, "standardize is for your own files"),
        ({"min_size": 3}, "min_size is not an option of partition 'natural'"),
        ({"feature": 3}, "feature is not an option; did you mean features"),
        ({"classes": "many"}, "classes='many' does not fit"),
    ],
)
def test_mistakes_name_their_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^data\.{message}") as error:
        build_dataset({"source": "synthetic", **options}, seed=0)
    assert "\n" not in str(error.value)


def test_its_options_are_not_for_others() -> None:
    with pytest.raises(ConfigError, match=r"data\.beta is an option of data\.source='synthetic'"):
        resolve_data_options({"source": "digits", "beta": 1.0})


def test_in_an_experiment_file() -> None:
    table = resolve_data_options(
        {"source": "synthetic", "clients": 12, "features": 5, "classes": 4}
    )
    assert table == {
        "source": "synthetic", "partition": "natural", "new_clients": 0, "test_fraction": 0.2,
        "own_labels": False, "clients": 12, "examples": 20, "features": 5, "classes": 4,
        "alpha": 1.0, "beta": 1.0,
    }  # fmt: skip
    assert resolve_data_options(table) == table
    data = build_dataset({**table, "new_clients": 2}, seed=3)
    made = Synthetic(clients=12, features=5, classes=4).dataset(seed=3, new_clients=2)
    assert data.digest() == made.digest()
    own = build_dataset({**table, "own_labels": True}, seed=3)
    assert np.array_equal(own.x, data.x) and not np.array_equal(own.y, data.y)


def test_as_a_pool_it_says_whose_examples_they_are() -> None:
    pool = load("synthetic")
    assert pool.split(seed=0).clients == 100 and pool.x.shape == (2000, 60)


def test_every_option_is_documented_with_its_default() -> None:
    text = (Path(__file__).parents[2] / "docs/data.md").read_text()
    for field in dataclasses.fields(Synthetic):
        shown = re.search(rf"^\| `{field.name}` \| (.*?) \|", text, flags=re.MULTILINE)
        assert shown and json.loads(shown[1]) == field.default, field.name
