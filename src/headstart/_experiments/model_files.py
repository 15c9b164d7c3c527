"""Model files: named parameters, and everything needed to use them.

The header of the safetensors file says which model the parameters belong to, what examples look
like and what they are scored by. No pickle: a model file runs no code of
its own, but it may name a model class of an installed package.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import jax

from headstart._experiments.configuration import GIVEN, MODEL, Table, build_model, is_given
from headstart._experiments.description import describe_component, describe_objective
from headstart._experiments.finished_run import PersonalModel
from headstart._extensions import refuse_imports_from
from headstart.data._schema import Schema
from headstart.errors import CheckpointError, InputError
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike, make_objective
from headstart.records._tensor_files import named_arrays, read_tensors, restore, write_tensors
from headstart.trees import Tree

MODEL_FORMAT = "headstart-model-1"


def save_model(
    path: Path,
    params: Tree,
    model: Model,
    schema: Schema,
    objective: ObjectiveLike = None,
    *,
    algorithm: str = "",
) -> None:
    """Write a model's parameters and their meaning; equal models give equal files."""
    header = {
        "format": MODEL_FORMAT,
        "algorithm": algorithm,
        "model": describe_component(MODEL, model),
        "schema": asdict(schema),
        "objective": describe_objective(objective),
    }
    write_tensors(path, named_arrays(params), header)


def load_model(
    path: str | Path, *, model: Model | None = None, objective: ObjectiveLike = None
) -> PersonalModel:
    """Load a model from its file, ready to predict.

    ``path`` is a ``.safetensors`` file that a run, ``personalize`` or ``PersonalModel.save`` wrote.
    ``model`` and ``objective`` are needed only if they were given from Python and could not be
    written to the file.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; give a model file (.safetensors)")
    try:
        header, tensors = read_tensors(path)
    except CheckpointError:
        raise InputError(
            f"{path} is not a model file, or is damaged; give one that ends in .safetensors"
        ) from None
    if header.get("format") != MODEL_FORMAT:
        raise InputError(f"{path} is not a model that Headstart wrote")
    if "schema" not in header:
        raise InputError(
            f"{path} was written by an earlier version, which did not say what its examples look "
            "like; make it again with headstart personalize"
        )
    try:
        schema = Schema.from_table(header["schema"])
        stored = objective if objective is not None else _objective(header["objective"])
        with refuse_imports_from(path.parent, *_run_around(path)):
            used = model or build_model(header["model"])
            scored = make_objective(used, schema, stored)
        shapes = jax.eval_shape(lambda: used.init(jax.random.key(0), schema))
        params = restore(shapes, tensors, path)
    except CheckpointError as error:
        raise InputError(str(error)) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {type(error).__name__} {error}") from None
    return PersonalModel(params, used, schema, scored)


def _run_around(path: Path) -> list[Path]:
    """Return the folders around the file that hold a run."""
    return [folder for folder in path.resolve().parents if (folder / "config.toml").exists()]


def _objective(table: Table) -> Table:
    if is_given(table):
        raise InputError(
            f"the objective of this model was {GIVEN} from Python; give it again: "
            "hs.load_model(file, objective=…)"
        )
    return table
