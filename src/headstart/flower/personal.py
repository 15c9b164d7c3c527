"""A site's own model, made at the site from the start it was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.contract import Task
from headstart.errors import DivergedError, OutputError
from headstart.flower.settings import SiteConfig
from headstart.flower.site import PERSONAL, KeptStart, read_site_data
from headstart.keys import Keys
from headstart.models.objective import Classification
from headstart.options import require_at_least
from headstart.runs.checkpoint import save_model
from headstart.runs.run import PersonalModel
from headstart.trees import all_finite


def personalize_site(
    site_file: Path,
    *,
    steps: int | None = None,
    data: Path | None = None,
    out: Path | None = None,
    run: str | None = None,
) -> dict[str, Any]:
    """Adapt to the training part of the site's data, score on the rest, write the model."""
    config = SiteConfig.read(site_file)
    if data is not None:
        config = replace(config, data=str(data.absolute()))
    start = KeptStart.newest(config, run)
    steps = start.steps if steps is None else steps
    require_at_least(0, **{"--steps": steps})
    model_file = out or start.path.with_name(PERSONAL)
    if model_file.suffix != ".safetensors":
        raise OutputError(f"--out {model_file} must end in .safetensors")
    model, algorithm, schema = start.assignment.build()
    mine = read_site_data(config, schema).client(0)
    task = Task(
        Classification(model, schema),
        (jnp.asarray(mine.x_train), jnp.asarray(mine.y_train)),
        jnp.int32(0),
        jnp.int32(len(mine.y_train)),
    )
    keys = Keys.from_seed(start.assignment.seed)
    key = keys.adaptation(start.assignment.client)
    adapt = jax.jit(algorithm.personalize)
    before, after = (
        PersonalModel(adapt(start.state, start.memory, task, key, n), model, schema)
        for n in (0, steps)
    )
    if not all_finite(after.params):
        raise DivergedError(f"the model is not finite after {steps} steps; use fewer")
    accuracies = [m.accuracy(np.asarray(mine.x_test), mine.y_test) for m in (before, after)]
    save_model(model_file, after.params, algorithm.name)
    return {
        "site": config.name,
        "run": start.assignment.run,
        "steps": steps,
        "train_examples": len(mine.y_train),
        "test_examples": len(mine.y_test),
        "accuracy_before": accuracies[0],
        "accuracy_after": accuracies[1],
        "model": str(model_file),
    }
