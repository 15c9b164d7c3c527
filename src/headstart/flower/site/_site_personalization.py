"""A site's own model, made at the site from the shared start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from headstart._experiments.adaptation import choose_for_task
from headstart._experiments.finished_run import PersonalModel
from headstart._experiments.personalization import primary_metric, score_change
from headstart.algorithms._contract import Task
from headstart.errors import DivergedError, OutputError
from headstart.flower._federation_config import SiteConfig
from headstart.flower.site._kept_start import PERSONAL_FILE, KeptStart
from headstart.flower.site._site_data import read_site_data
from headstart.flower.site._site_setup import SiteSetup
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
    require_at_least(0, **{"--steps": steps or 0})
    model_file = out or start.path.with_name(PERSONAL_FILE)
    if model_file.suffix != ".safetensors":
        raise OutputError(f"--out {model_file} must end in .safetensors")
    setup = SiteSetup.from_assignment(start.assignment)
    own = read_site_data(config, setup.schema).client(0)
    examples = (jnp.asarray(own.x_train), jnp.asarray(own.y_train))
    count = len(own.y_train)
    task = Task(setup.objective, examples, jnp.int32(0), jnp.int32(count), count, setup.parts)
    key = setup.keys.adaptation(start.assignment.client)
    personalize = jax.jit(setup.algorithm.personalize)
    chosen = None
    if steps is None and start.steps > 0 and start.chooses:
        common = (setup.algorithm, setup.objective, start.state, start.memory, task, key)
        chosen = choose_for_task(*common, start.steps)
        steps = chosen.steps
    steps = start.steps if steps is None else steps

    def adapt(steps: int) -> PersonalModel:
        params = merge_frozen(personalize(start.state, start.memory, task, key, steps), setup.parts)
        return PersonalModel(params, setup.model, setup.schema, setup.objective)

    before, after = adapt(0), adapt(steps)
    if not all_finite(after.params):
        raise DivergedError(f"the model is not finite after {steps} steps; use fewer")
    scores = score_change(before, after, np.asarray(own.x_test), own.y_test)
    after.save(model_file, algorithm=setup.algorithm.name)
    return PersonalResult(
        site=config.name,
        run=start.assignment.run,
        steps=steps,
        chosen=chosen,
        train_examples=count,
        test_examples=len(own.y_test),
        metric=primary_metric(after),
        scores=scores,
        model=str(model_file),
    )
