"""From a [data] table to a data set: every default written out, every mistake one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.data._dataset_options import build_dataset, resolve_data_options
from headstart.data._partition import PARTITIONS
from headstart.data.sources import SOURCES
from headstart.errors import ConfigError, DataError, HeadstartError


def test_nothing_given_is_the_embedded_digits_with_new_clients() -> None:
    assert resolve_data_options({}) == {
        "source": "digits",
        "partition": "class-groups",
        "clients": 20,
        "different": False,
        "new_clients": 4,
        "test_fraction": 0.2,
        "own_labels": False,
    }
    data = build_dataset({}, seed=0)
    assert (data.clients, data.new_clients) == (20, 4)


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_a_default_partition(source: str) -> None:
    table = resolve_data_options({"source": source})
    natural = SOURCES[source].natural
    assert table["partition"] == ("natural" if natural else "class-groups")
    unknown = natural and SOURCES[source].maker is None
    assert table.get("new_clients") == (None if unknown else 4 if source == "digits" else 0)


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if p != "natural"])
def test_resolving_twice_changes_nothing_and_builds_the_same(partition: str) -> None:
    once = resolve_data_options({"source": "digits", "partition": partition, "clients": 8})
    assert resolve_data_options(once) == once
    first, again = (
        build_dataset({"partition": partition, "clients": 8}, seed=3),
        build_dataset(once, seed=3),
    )
    assert (first.x == again.x).all() and (first.offsets == again.offsets).all()
    other = build_dataset(once, seed=4)
    assert other.x.shape != first.x.shape or (other.x != first.x).any()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sauce": "digits"}, "data.sauce is not an option; did you mean source"),
        ({"source": "mnsit"}, "data.source='mnsit' is not known; did you mean mnist"),
        ({"source": 3}, "data.source=3 does not fit"),
        ({"source": "digits", "path": "x"}, "data.source='digits' and data.path='x' exclude"),
        ({"path": " "}, "data.path is empty"),
        ({"partition": "shard"}, "data.partition='shard' is not known; did you mean shards"),
        ({"partition": "natural"}, "data.partition='natural': digits does not name the client"),
        ({"partition": "iid", "alpha": 1.0}, "data.alpha is not an option of partition 'iid'"),
        ({"partition": "iid", "clints": 4}, "data.clints is not an option; did you mean client"),
        ({"clients": 1}, "data.clients=1 must be at least 2"),
        ({"clients": "many"}, "data.clients='many' does not fit"),
        ({"clients": 900}, "data.clients=900 is too many for 1797 examples"),
        ({"clients": 5, "new_clients": 5}, "data.new_clients=5 .* less than data.clients=5"),
        ({"new_clients": -1}, "data.new_clients=-1"),
        ({"test_fraction": 0}, "data.test_fraction=0.0"),
        ({"test_fraction": 1.5}, "data.test_fraction=1.5"),
        ({"min_examples": 1}, "data.min_examples=1"),
        ({"min_examples": 100_000}, "data.min_examples=100000 leaves no client"),
        ({"partition": "dirichlet", "alpha": 0}, "data.alpha=0"),
        ({"partition": "dirichlet", "alpha": float("inf")}, "data.alpha"),
        ({"partition": "dirichlet", "examples": 5000}, "data.examples=5000 per client"),
        ({"partition": "shards", "shards_per_client": 500}, "data.clients=20 is too many"),
        ({"a": 18}, "data.a=18 needs more images .* use at most 16"),
        ({"a": 3}, "data.a=3 must be an even number"),
        ({"a_test": 2}, "data.a_test=2 needs a source that has its own test examples"),
        ({"label": "y"}, "data.label is for your own files"),
        ({"classes": 1}, "data.classes=1 must be at least 2"),
        ({"standardize": True}, "data.standardize is for your own files"),
    ],
)
def test_mistakes_name_their_option(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        build_dataset(table, seed=0)
    assert str(error.value).startswith("data.") and "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["nowhere", "~nobody-of-this-name/x", "a\0b", "x" * 5000])
def test_paths_that_are_not_there(path: str) -> None:
    with pytest.raises(HeadstartError) as error:
        build_dataset({"path": path}, seed=0)
    assert "\n" not in str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six clients with a table each."""
    rng = np.random.default_rng(0)
    for client in range(6):
        lines = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in rng.normal(size=(9, 2))]
        (tmp_path / f"c{client}.csv").write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    return tmp_path


def test_own_files(folder: Path) -> None:
    table = {"path": str(folder), "label": "kind", "new_clients": 2, "standardize": True}
    assert resolve_data_options(table) == {
        "path": str(folder),
        "partition": "natural",
        "label": "kind",
        "client": "client",
        "new_clients": 2,
        "standardize": True,
        "test_fraction": 0.2,
        "own_labels": False,
    }
    data = build_dataset(table, seed=0)
    assert (data.clients, data.new_clients) == (6, 2)
    assert isinstance(data.schema.shift, tuple) and len(data.schema.shift) == 2
    dealt = build_dataset(
        {"path": str(folder), "label": "kind", "partition": "iid", "clients": 3}, seed=0
    )
    assert dealt.clients == 3 and len(dealt.y) == 54


def test_a_table_dealt_anew_needs_no_client_column(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i % 2}" for i in range(20))
    (tmp_path / "t.csv").write_text(f"a,label\n{rows}\n")
    table = {"path": str(tmp_path / "t.csv"), "partition": "iid", "clients": 4}
    assert build_dataset(table, seed=0).clients == 4
    with pytest.raises(DataError, match="no column 'client'"):
        build_dataset({"path": str(tmp_path / "t.csv")}, seed=0)
    (tmp_path / "t.csv").write_text(f"client,a,label\n{rows.replace(',', ',1,')}\n")
    assert build_dataset(table, seed=0).schema.feature_names == ("a",)


numbers = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([0.0, 0.2, 0.5, 0.99, 1.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")]),
    st.integers(-(10**30), 10**30),
)
anything = st.one_of(
    numbers, st.booleans(), st.text(max_size=5), st.none(), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip
sensible: dict[str, st.SearchStrategy[Any]] = {
    "partition": st.sampled_from(list(PARTITIONS)),
    "clients": st.integers(1, 60),
    "new_clients": st.integers(-1, 20),
    "test_fraction": st.floats(0, 1),
    "min_examples": st.integers(1, 40),
    "a": st.integers(0, 20),
    "a_test": st.integers(0, 4),
    "different": st.booleans(),
    "alpha": st.sampled_from([0.0, 1e-300, 0.01, 1.0, 1e300]),
    "examples": st.integers(1, 60),
    "min_size": st.integers(1, 20),
    "shards_per_client": st.integers(0, 5),
}
wild = dict.fromkeys(
    [*sensible, "source", "path", "label", "client", "classes", "standardize", "nonsense"], anything
)


def optional(choices: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(list(choices)), unique=True, max_size=5)
    return names.flatmap(lambda n: st.fixed_dictionaries({k: choices[k] for k in n}))


def survives(table: dict[str, Any], seed: int) -> None:
    """A data set, or one line: nothing else may come out."""
    try:
        data = build_dataset(table, seed=seed)
    except HeadstartError as error:
        assert str(error) and "\n" not in str(error) and error.exit_code == 2
    else:
        assert resolve_data_options(resolve_data_options(table)) == resolve_data_options(table)
        assert data.train_counts.min() >= 1 and data.test_counts.min() >= 1


@settings(max_examples=700)
@given(table=optional(sensible), seed=st.integers(0, 2**32 - 1))
def test_sensible_tables_build_or_say_why_not(table: dict[str, Any], seed: int) -> None:
    survives(table, seed)


@settings(max_examples=600)
@given(table=optional(wild), seed=st.integers(0, 9))
def test_wild_tables_build_or_say_why_not(table: dict[str, Any], seed: int) -> None:
    survives(table, seed)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=optional(
        {
            **sensible,
            "classes": anything,
            "standardize": st.booleans(),
            "label": st.sampled_from(["kind", "a", "z"]),
        }
    )
)
def test_tables_with_a_path_build_or_say_why_not(folder: Path, table: dict[str, Any]) -> None:
    survives({"label": "kind", **table, "path": str(folder)}, 0)
