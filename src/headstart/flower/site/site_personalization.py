"""A site's own model, made at the site from the start it was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.contract import Task
from headstart.errors import DivergedError, OutputError
from headstart.experiments.personalization import primary_metric, score_change
from headstart.experiments.run import PersonalModel
from headstart.flower.federation_config import SiteConfig
from headstart.flower.site.orders import PERSONAL, KeptStart, read_site_data
from headstart.keys import Keys
from headstart.options import require_at_least
from headstart.parts import merge_frozen
from headstart.records import PersonalResult
from headstart.trees import all_finite


def personalize_site(
    site_file: Path,
    *,
    steps: int | None = None,
    data: Path | None = None,
    out: Path | None = None,
    run: str | None = None,
) -> PersonalResult:
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
    model, (algorithm, _, parts), schema = start.assignment.build()
    mine = read_site_data(config, schema).client(0)
    objective = start.assignment.build_objective(model, schema)
    task = Task(
        objective,
        (jnp.asarray(mine.x_train), jnp.asarray(mine.y_train)),
        jnp.int32(0),
        jnp.int32(len(mine.y_train)),
        len(mine.y_train),
        parts,
    )
    keys = Keys.from_seed(start.assignment.seed)
    key = keys.adaptation(start.assignment.client)
    adapt = jax.jit(algorithm.personalize)
    before, after = (
        PersonalModel(
            merge_frozen(adapt(start.state, start.memory, task, key, n), parts),
            model,
            schema,
            objective,
        )
        for n in (0, steps)
    )
    if not all_finite(after.params):
        raise DivergedError(f"the model is not finite after {steps} steps; use fewer")
    scores = score_change(before, after, np.asarray(mine.x_test), mine.y_test)
    after.save(model_file, algorithm=algorithm.name)
    return PersonalResult(
        site=config.name,
        run=start.assignment.run,
        steps=steps,
        train_examples=len(mine.y_train),
        test_examples=len(mine.y_test),
        metric=primary_metric(after),
        scores=scores,
        model=str(model_file),
    )
