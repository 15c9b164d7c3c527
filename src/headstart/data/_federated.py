"""Examples of many clients in flat arrays.

The examples are stored client by client, each client's training examples before its held-out ones,
like the rows of a compressed sparse matrix. Clients of different sizes need no padding, a million
clients cost a million integers, and the arrays may be memory-mapped.

    x, y      ┃ client 0: train │ held out ┃ client 1: train │ held out ┃ …
    offsets   0                            offsets[1]
    train_counts  ├── [0] ──┤              ├── [1] ──┤
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from headstart.data import _digest as digests
from headstart.data._rotation import draw_angle, rotate_images
from headstart.data._schema import Schema
from headstart.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's examples, as stored."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    is_new: bool


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """Many clients' examples. Clients kept out of training (*new clients*) come last."""

    x: Shaped[np.ndarray, "examples ..."]
    y: Shaped[np.ndarray, "examples ..."]
    """Class numbers (for a text, one per position); numbers if ``target="number"``; 0 and 1, of
    shape (examples, labels), if ``target="labels"``."""
    offsets: Int[np.ndarray, " clients+1"]
    train_counts: Int[np.ndarray, " clients"]
    schema: Schema
    new_clients: int = 0
    names: Sequence[str] | None = None
    description: str = ""
    validated: InitVar[bool] = False
    """Whether the values were already checked and need not be read; ``replace`` never keeps it."""
    stored_digest: str | None = field(default=None, init=False)
    """The fingerprint of data read in place (``open_store``); ``replace`` drops it."""

    def __post_init__(self, validated: bool) -> None:
        """Refuse data that no later step can use: empty clients, labels out of range, NaN."""
        for problem in find_misfits(self) or ([] if validated else find_bad_values(self)):
            raise DataError(problem)

    def __repr__(self) -> str:
        """Describe the data in one line."""
        new = f", {self.new_clients:,} of them new" if self.new_clients else ""
        what = self.description or "no description"
        return (
            f"FederatedDataset({what}: {self.clients:,} clients{new}, {len(self.y):,} examples "
            f"of shape {self.schema.shape})"
        )

    def _repr_html_(self) -> str:
        """Show the same line in a notebook."""
        return f"<pre>{html.escape(repr(self))}</pre>"

    @property
    def clients(self) -> int:
        """Number of clients, including new ones."""
        return len(self.offsets) - 1

    @property
    def known_clients(self) -> int:
        """Number of clients that take part in training; they are clients 0 … known_clients − 1."""
        return self.clients - self.new_clients

    @property
    def test_counts(self) -> Int[np.ndarray, " clients"]:
        """Number of held-out examples of each client."""
        return np.diff(self.offsets) - self.train_counts

    def name(self, client: int) -> str:
        """Return the client's name, or its number if it has no name."""
        return str(client) if self.names is None else str(self.names[client])

    def number_of(self, client: str | int) -> int:
        """Return the number of a client given by number or name; names take precedence."""
        names = list(self.names or [])
        if client in names:
            return names.index(str(client))
        text = str(client)
        if text.isdecimal() and int(text) < self.clients:
            return int(text)
        raise DataError(
            f"client {client} is not one of the {self.clients}: give 0 … {self.clients - 1}"
            + (f" or a name such as {names[0]}" if names else "")
        )

    def client(self, client: int) -> ClientData:
        """Return one client's examples."""
        if not 0 <= client < self.clients:
            raise DataError(f"client {client} does not exist; there are 0 … {self.clients - 1}")
        start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
        cut = start + int(self.train_counts[client])
        return ClientData(
            name=self.name(client),
            x_train=self.x[start:cut],
            y_train=self.y[start:cut],
            x_test=self.x[cut:stop],
            y_test=self.y[cut:stop],
            is_new=client >= self.known_clients,
        )

    def part(self, first: int, last: int) -> FederatedDataset:
        """Return clients first … last − 1 as a data set, none of them new; no copy is made.

        >>> client = ([[0.0], [1.0]], [0, 1], [[0.5]], [1])
        >>> from_clients([client] * 5, Schema(shape=(1,), classes=2)).part(1, 3).offsets.tolist()
        [0, 3, 6]
        """
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return replace(
            self,
            x=self.x[start:stop],
            y=self.y[start:stop],
            offsets=self.offsets[first : last + 1] - start,
            train_counts=self.train_counts[first:last],
            new_clients=0,
            names=None if self.names is None else self.names[first:last],
            validated=self.stored_digest is None,  # a file may have been edited meanwhile
        )

    def of(self, chosen: Sequence[int] | np.ndarray) -> FederatedDataset:
        """Return some clients as a data set, none of them new; their examples are copied.

        >>> client = ([[0.0], [1.0]], [0, 1], [[0.5]], [1])
        >>> two = from_clients([client] * 5, Schema(shape=(1,), classes=2)).of([0, 4])
        >>> two.clients, two.y.tolist()
        (2, [0, 1, 1, 0, 1, 1])
        """
        chosen = np.asarray(chosen)
        starts, sizes = self.offsets[chosen], np.diff(self.offsets)[chosen]
        ends = np.cumsum(sizes)
        rows = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            offsets=np.concatenate([[0], ends]),
            train_counts=np.asarray(self.train_counts)[chosen],
            new_clients=0,
            names=[self.name(int(client)) for client in chosen],
            validated=self.stored_digest is None,
        )

    def digest(self) -> str:
        """Return a fingerprint of all examples, of their clients and of the schema.

        Data opened from a store return its stored fingerprint without reading the arrays.
        """
        return self.stored_digest or digests.combine_digests(
            {name: digests.build_array_card(array) for name, array in self.arrays().items()},
            self.schema.to_table(),
            self.new_clients,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the four arrays by name, as they are fingerprinted and stored."""
        return {
            "x": self.x,
            "y": self.y,
            "offsets": np.asarray(self.offsets, np.int64),
            "train_counts": np.asarray(self.train_counts, np.int64),
        }

    def classes_of(self, client: int) -> Int[np.ndarray, " classes"]:
        """Count the client's labels of each class, in both splits together.

        The result is empty where labels are numbers.
        """
        labels = self.y[int(self.offsets[client]) : int(self.offsets[client + 1])]
        if self.schema.target == "number":
            return np.zeros(0, np.int64)
        if self.schema.target == "labels":
            return labels.astype(np.int64).sum(axis=0)
        return np.bincount(np.ravel(labels), minlength=self.schema.classes)

    def with_own_labels(self, seed: int = 0, *, share: float = 1.0) -> FederatedDataset:
        """Return the data with each client's classes renamed by a random permutation.

        With a share below 1 every client renames only that share of the classes, drawn at random,
        and permutes their names: from 0, where clients agree, to 1, where no single model can serve
        two of them and what they can share is how to learn from few examples.
        """
        if self.schema.target != "class":
            raise ConfigError("own_labels renames classes, which these data do not have")
        if not 0 <= share <= 1:
            raise ConfigError(f"own_labels: share={share} must be between 0 and 1")
        y = np.array(self.y)
        for client in range(self.clients):
            names = _own_names(self.schema.classes, share, np.random.default_rng([seed, client]))
            rows = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
            y[rows] = names[self.y[rows]]
        which = "" if share == 1 else f" for {100 * share:g} % of the classes"
        # A permutation of valid labels is valid: no need to check again.
        description = f"{self.description}, own labels{which}"
        return replace(self, y=y, description=description, validated=True)

    def with_own_rotation(self, seed: int = 0, *, degrees: float = 180.0) -> FederatedDataset:
        """Return the data with each client's images rotated by an angle of its own.

        The angle is uniform in [−degrees, degrees] and follows from the seed and the client's
        number alone. Pixels are interpolated bilinearly, and 0 where the image does not reach. The
        inputs are copied, so they must fit into memory.
        """
        if self.schema.vocabulary or len(self.schema.shape) not in (2, 3):
            kind = "text" if self.schema.vocabulary else f"examples of shape {self.schema.shape}"
            raise ConfigError(
                f"own_rotation rotates images, and these data are {kind}; use data of shape "
                "(height, width) or (height, width, channels)"
            )
        if not 0 <= degrees <= 180:
            raise ConfigError(f"own_rotation: degrees={degrees} must be between 0 and 180")
        x = np.empty(self.x.shape, self.x.dtype)
        for client in range(self.clients):
            start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
            angle = draw_angle(seed, client, degrees)
            for first, images in digests.iterate_pieces(self.x[start:stop]):
                x[start + first :][: len(images)] = rotate_images(images, angle)
        description = f"{self.description}, own rotation up to {degrees:g}°"
        return replace(self, x=x, description=description, validated=self.stored_digest is None)

    def for_tuning(
        self,
        *,
        test_fraction: float = 0.25,
        validation_clients: int | Sequence[int] = 0,
        seed: int = 0,
    ) -> FederatedDataset:
        """Return the training splits alone, split again: the data to tune settings on.

        Held-out examples and new clients are left out, so tuning cannot see them. *Validation
        clients* (their number, drawn with the seed, or which) are known clients that take the place
        of new ones: they come last and do not take part in training.

        >>> client = ([[0.0], [1.0]], [0, 1], [[0.5]], [1])
        >>> data = from_clients([client] * 5, Schema(shape=(1,), classes=2), new_clients=1)
        >>> tuning = data.for_tuning(validation_clients=[0])
        >>> tuning.known_clients, tuning.new_clients, tuning.name(3)
        (3, 1, '0')
        """
        validation = self._choose_validation(validation_clients, seed)
        known = np.arange(self.known_clients)
        order = np.concatenate([np.setdiff1d(known, validation), validation])
        sizes = np.asarray(self.train_counts)[order]
        ends = np.cumsum(sizes)
        held = np.clip(np.round(sizes * test_fraction).astype(int), 1, sizes - 1)
        shift = np.asarray(self.offsets)[order] - (ends - sizes)
        chosen = np.arange(ends[-1]) + np.repeat(shift, sizes)
        named = self.names is not None or len(validation) > 0
        return replace(
            self,
            x=self.x[chosen],
            y=self.y[chosen],
            offsets=np.concatenate([[0], ends]),
            train_counts=sizes - held,
            new_clients=len(validation),
            names=[self.name(int(client)) for client in order] if named else None,
            description=f"{self.description} (training splits only, for tuning)",
            validated=True,
        )

    def _choose_validation(
        self, wanted: int | Sequence[int], seed: int
    ) -> Int[np.ndarray, " validation"]:
        """Return the numbers of the validation clients, in order."""
        if isinstance(wanted, int):
            count = wanted
            draw = np.random.default_rng(seed).permutation(self.known_clients)
            clients = draw[: max(0, count)]
        else:
            clients = np.asarray(wanted, int)
            count = len(clients)
        if not 0 <= count < self.known_clients:
            raise ConfigError(
                f"validation_clients={count} of {self.known_clients} known clients leaves none to "
                f"train on; use at most {self.known_clients - 1}"
            )
        if not np.isin(clients, np.arange(self.known_clients)).all():
            raise ConfigError(
                f"validation_clients={clients.tolist()} must be known clients: "
                f"0 … {self.known_clients - 1}"
            )
        return np.unique(clients)


def _own_names(classes: int, share: float, rng: np.random.Generator) -> Int[np.ndarray, " classes"]:
    """Return a permutation that moves at most this share of the classes, drawn at random."""
    chosen = rng.permutation(classes)[: round(share * classes)]
    names = np.arange(classes)
    names[np.sort(chosen)] = chosen
    return names


def from_clients(
    clients: Sequence[tuple[Any, Any, Any, Any]],
    schema: Schema,
    *,
    new_clients: int = 0,
    names: Sequence[str] | None = None,
    description: str = "",
) -> FederatedDataset:
    """Build a data set from (x_train, y_train, x_test, y_test) per client, new clients last.

    >>> client = ([[0.0], [1.0]], [0, 1], [[0.5]], [1])
    >>> from_clients([client, client], Schema(shape=(1,), classes=2)).train_counts.tolist()
    [2, 2]
    """
    if not clients:
        raise DataError("there are no clients; give at least one")
    for number, client in enumerate(clients):
        name = str(number) if names is None or number >= len(names) else names[number]
        _refuse_misfit(name, client, schema)
    if names is not None and len(names) != len(clients):
        raise DataError(f"{len(names)} names for {len(clients)} clients; give one for each")
    parts = [[np.asarray(part) for part in client] for client in clients]
    x = np.concatenate([part for p in parts for part in (p[0], p[2]) if len(part)])
    y = np.concatenate([part for p in parts for part in (p[1], p[3]) if len(part)])
    sizes = np.array([len(p[0]) + len(p[2]) for p in parts])
    return FederatedDataset(
        x=x,
        y=y.astype(schema.label_type),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        train_counts=np.array([len(p[0]) for p in parts]),
        schema=schema,
        new_clients=new_clients,
        names=names,
        description=description,
    )


def _refuse_misfit(name: str, client: tuple[Any, Any, Any, Any], schema: Schema) -> None:
    """Refuse a client whose inputs and labels do not match each other or the schema."""
    for what, x, y in (("training", *client[:2]), ("held-out", *client[2:])):
        x, y = np.asarray(x), np.asarray(y)
        if len(x) != len(y):
            raise DataError(f"client {name} has {len(x)} {what} inputs and {len(y)} labels")
        if len(x) and x.shape[1:] != schema.shape:
            raise DataError(
                f"client {name}: examples have shape {x.shape[1:]}, the schema says {schema.shape}"
            )
        if len(y):
            _refuse_bad_labels(name, y, schema)


def _refuse_bad_labels(name: str, y: np.ndarray, schema: Schema) -> None:
    """Refuse labels that are not of the kind or shape that the schema declares."""
    words = y.dtype.kind not in "buif"
    if schema.target == "number" and words:
        raise DataError(f"client {name} has labels of type {y.dtype}; numbers are needed")
    if schema.target != "number" and (words or not np.all(y == np.floor(y))):
        raise DataError(
            f"client {name} has labels that are not whole numbers; to predict quantities use "
            'Schema(target="number")'
        )
    if not _label_shape_fits(y, schema):
        wanted = {"class": "class numbers", "number": f"{schema.targets} for each example"}
        raise DataError(
            f"client {name} has labels of shape {y.shape[1:]}; give "
            + wanted.get(schema.target, f"{schema.classes} for each example, 0 or 1")
        )


def _label_shape_fits(y: np.ndarray, schema: Schema) -> bool:
    if schema.target == "labels":
        return y.shape[1:] == (schema.classes,)
    if schema.target == "number":
        return y.shape[1:] == (schema.targets,) or (y.ndim == 1 and schema.targets == 1)
    return y.ndim == 1 or (y.ndim == 2 and schema.vocabulary > 0)


def find_problems(data: FederatedDataset) -> list[str]:
    """Return the problems that make the data unusable, each with its remedy."""
    return find_misfits(data) or find_bad_values(data)


def find_misfits(data: FederatedDataset) -> list[str]:
    """Return the sizes and shapes that contradict each other, without reading the examples."""
    if len(data.train_counts) != data.clients or data.offsets[0] != 0:
        return [
            f"{len(data.train_counts)} training counts and {len(data.offsets)} offsets from "
            f"{data.offsets[0]} on do not agree; offsets are 0 and the end of each client"
        ]
    problems = []
    for what, counts in (("training", data.train_counts), ("held-out", data.test_counts)):
        bad = np.flatnonzero(counts < 1)
        if len(bad):
            size = int(np.diff(data.offsets)[bad[0]])
            problems.append(
                f"client {data.name(int(bad[0]))} has {size} example{'s' * (size != 1)} and so no "
                f"{what} example; every client needs at least 2 "
                f"(leave smaller clients out with data.min_examples=2)"
            )
    if not 0 <= data.new_clients < data.clients:
        problems.append(
            f"new_clients={data.new_clients} of {data.clients} clients leaves none to train on; "
            f"use at most {data.clients - 1}"
        )
    if len(data.x) != len(data.y) or data.offsets[-1] != len(data.y):
        problems.append(
            f"{len(data.x)} inputs, {len(data.y)} labels and {data.offsets[-1]} examples "
            "do not agree"
        )
    if data.schema.target != "class" and not _label_shape_fits(data.y, data.schema):
        problems.append(f"labels have shape {data.y.shape[1:]}, the schema says {data.schema!r}")
    if data.x.shape[1:] != data.schema.shape:
        problems.append(
            f"examples have shape {data.x.shape[1:]}, the schema says {data.schema.shape}"
        )
    return problems


def find_bad_values(data: FederatedDataset) -> list[str]:
    """Return the labels and inputs that no model can use, reading all examples in pieces."""
    problems = find_bad_labels(data)
    bad = find_bad_row(data.x, data.schema)
    if bad is not None and data.schema.vocabulary:
        problems.append(
            f"client {_owner_name(data, bad)} has a token outside 0 … {data.schema.vocabulary - 1}"
        )
    elif bad is not None:
        problems.append(
            f"client {_owner_name(data, bad)} has a feature that is not a finite number "
            f"(its example {bad - int(data.offsets[_owner_number(data, bad)])}); "
            "fill or remove missing values first"
        )
    return problems


def find_bad_labels(data: FederatedDataset) -> list[str]:
    """Return the first label that is outside the classes, not finite, or neither 0 nor 1."""
    number = data.schema.target == "number"
    most = 1 if data.schema.target == "labels" else data.schema.classes - 1
    bad = _find_first_row(data.y, lambda y: ~np.isfinite(y) if number else (y < 0) | (y > most))
    if bad is None:
        return []
    owner = f"client {_owner_name(data, bad)} has"
    if number:
        return [f"{owner} a label that is not a finite number; fill or remove it first"]
    if data.schema.target == "labels":
        return [f"{owner} a label that is neither 0 nor 1"]
    return [
        f"{owner} label {np.ravel(data.y[bad])[0]}, outside 0 … {most}; "
        "renumber the labels or raise data.classes"
    ]


def find_bad_row(x: np.ndarray, schema: Schema) -> int | None:
    """Return the first row with a number that is not finite or an unknown token, or None."""
    if schema.vocabulary:
        return _find_first_row(x, lambda rows: (rows < 0) | (rows >= schema.vocabulary))
    if np.issubdtype(x.dtype, np.floating):
        return _find_first_row(x, lambda rows: ~np.isfinite(rows))
    return None


def _find_first_row(array: np.ndarray, wrong: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """Return the first row with a wrong value, searching piece by piece to bound memory."""
    for first, rows in digests.iterate_pieces(array):
        bad = np.flatnonzero(wrong(rows).reshape(len(rows), -1).any(axis=1))
        if len(bad):
            return first + int(bad[0])
    return None


def _owner_number(data: FederatedDataset, row: int) -> int:
    return int(np.searchsorted(data.offsets, row, side="right")) - 1


def _owner_name(data: FederatedDataset, row: int) -> str:
    return data.name(_owner_number(data, row))
