"""Check the arguments of a call from Python; every mistake gets a one-line message."""

from __future__ import annotations

import inspect

from headstart.algorithms import Algorithm
from headstart.data._example_pool import Pool
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DataError
from headstart.options import require_at_least


def check_arguments(data: object, model: object, algorithm: object, rounds: object) -> None:
    """Raise an error that says what to give instead if an argument cannot be used."""
    _check_data(data)
    _check_model(model)
    _check_algorithm(algorithm)
    if isinstance(rounds, bool) or not isinstance(rounds, int):
        raise ConfigError(f"rounds={rounds!r} is not a whole number")
    require_at_least(1, rounds=rounds)


def _check_data(data: object) -> None:
    if isinstance(data, FederatedDataset):
        return
    if isinstance(data, Pool):
        raise DataError(
            f"data is a pool of {len(data.y):,} examples that no client holds yet; give "
            "data.split(…), for example data.split(hs.data.iid(clients=20))"
        )
    raise DataError(
        f"data is {_describe_type(data)}; give a FederatedDataset, for example from "
        'hs.data.load("digits").split(…), hs.data.read_folder(…).split() or hs.data.from_clients(…)'
    )


def _check_model(model: object) -> None:
    origins = {base.__module__.split(".")[0] for base in type(model).__mro__}
    if isinstance(model, str):
        raise ConfigError(
            f"model={model!r} is a name; give a model, such as hs.models.mlp([80, 60])"
        )
    if "torch" in origins:
        raise ConfigError(
            "model is a PyTorch module; Headstart computes with JAX: write it for Equinox or Flax "
            "(hs.models.from_equinox, hs.models.from_flax) or as functions "
            "(hs.models.from_functions)"
        )
    if "flax" in origins:
        raise ConfigError("model is a Flax module; give hs.models.from_flax(model)")
    if "equinox" in origins:
        raise ConfigError(
            "model is an Equinox module with parameters in it; give hs.models.from_equinox(make), "
            "where make(key, examples) makes one"
        )
    if inspect.isclass(model) or not (hasattr(model, "init") and hasattr(model, "apply")):
        raise ConfigError(
            f"model is {_describe_type(model)}; give a model with init and apply, such as "
            "hs.models.mlp([80, 60])"
        )


def _check_algorithm(algorithm: object) -> None:
    if isinstance(algorithm, Algorithm):
        return
    if isinstance(algorithm, str):
        raise ConfigError(
            f"algorithm={algorithm!r} is a name; give an object, such as hs.PerFedAvg(inner_lr=0.1)"
        )
    if inspect.isclass(algorithm) and issubclass(algorithm, Algorithm):
        raise ConfigError(
            f"algorithm is the class {algorithm.__name__}; give {algorithm.__name__}()"
        )
    raise ConfigError(
        f"algorithm is {_describe_type(algorithm)}; give an algorithm, such as hs.PerFedAvg()"
    )


def _describe_type(value: object) -> str:
    kind = value if inspect.isclass(value) else type(value)
    article = "the class" if inspect.isclass(value) else "an object of type"
    return f"{article} {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
