r"""Estimate the constants of the theory from data, at some points of a training trajectory.

The theorems need suprema over all w. Data show the largest value at the points examined, so every
number here is a **lower estimate** and states its number of points, clients and examples. No
Hessian is formed: spectral norms come from power iteration on Hessian-vector products, which
approaches a norm from below. Gradients of single examples are computed block by block, so memory
does not grow with their number.

    B     max_i ‖∇f_i‖
    L     max_i ‖∇²f_i‖
    ρ     max_i ‖∇²f_i(w) − ∇²f_i(u)‖ / ‖w − u‖, with u one adaptation step from w
    σ_G²  max_i mean_j ‖∇l_j − ∇f_i‖²        σ_H²  max_i mean_j ‖∇²l_j − ∇²f_i‖²
    κ_G   max_i mean_j ‖∇l_j − ∇f_i‖⁴        κ_H   max_i mean_j ‖∇²l_j − ∇²f_i‖⁴
    γ_G²  mean_i ‖∇f_i − ∇f‖²                γ_H²  mean_i ‖∇²f_i − ∇²f‖²

and, for P §4.1, the Lipschitz constants of one example's gradient and Hessian in the example z:

    L_Z   max ‖∇l(w, z) − ∇l(w, z′)‖ / ‖z − z′‖        ρ_Z   the same for ∇²l
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError
from headstart.heterogeneity import as_points, draw_training_rows
from headstart.models._model import Model
from headstart.models.objectives import Objective, ObjectiveLike, make_objective
from headstart.options import require_at_least, require_positive
from headstart.theory._assumptions import Constants
from headstart.trees import Tree, add, norm, scale, subtract

Losses = Callable[[Tree, Any], Float[Array, " batch"]]
"""The loss of every example of a batch."""
BLOCK = 16
"""Examples whose gradients are in memory at the same time."""
Z95 = 1.96


class Sample(NamedTuple):
    """Some examples of some clients; a client with fewer examples has weight 0 on the rest."""

    batch: PyTree
    """Leading axes: clients, examples."""
    weights: Float[Array, "clients examples"]
    """Each client's weights sum to 1."""


class Range(NamedTuple):
    """A 95 % confidence interval for the sampling error of an estimate.

    It says nothing about points that were not examined.
    """

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """Estimated constants, their confidence intervals, and the cost of the estimation."""

    constants: Constants
    """Lower estimates: the largest values at the points examined."""
    ranges: dict[str, Range]
    points: int
    clients: int
    examples: int
    """The largest number used of one client."""
    gradients: int
    """Gradients of one example; a Hessian-vector product counts as two."""
    chance_G: float
    """The γ_G that clients with the same distribution would show because their samples are finite:
    the root of mean_i σ_i²/D_i, at the point where γ_G is largest."""

    def describe(self) -> str:
        """Return one sentence that says what the numbers are."""
        return (
            f"lower estimates: the largest values at {self.points} "
            f"point{'s' * (self.points != 1)} of the trajectory, over "
            f"{self.clients} clients and at most {self.examples} examples of each; ranges are 95 % "
            "confidence for the sampling of examples, not for points elsewhere"
        )


def estimate_constants(
    data: FederatedDataset,
    model: Model,
    points: Sequence[Tree],
    *,
    inner_lr: float,
    clients: int = 50,
    examples: int = 64,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    objective: ObjectiveLike = None,
) -> Estimate:
    """Estimate the constants of a model on a federated data set at these parameters."""
    objective = make_objective(model, data.schema, objective)
    sample = sample_clients(data, clients=clients, examples=examples, seed=seed)
    return estimate_at_points(
        example_losses(objective), sample, points, inner_lr=inner_lr, seed=seed, progress=progress
    )


def compute_mean_loss(
    data: FederatedDataset,
    model: Model,
    w: Tree,
    *,
    clients: int = 50,
    examples: int = 64,
    seed: int = 0,
    objective: ObjectiveLike = None,
) -> float:
    """Return the mean loss of some clients: at the start an upper bound of F(w_0) − F*."""
    losses = example_losses(make_objective(model, data.schema, objective))
    sample = sample_clients(data, clients=clients, examples=examples, seed=seed)

    def client(batch: Any, weights: Array) -> Array:
        return jnp.vdot(weights, losses(w, batch))

    return float(jnp.mean(jax.jit(jax.vmap(client))(*sample)))


def sample_clients(data: FederatedDataset, *, clients: int, examples: int, seed: int = 0) -> Sample:
    """Draw at most ``clients`` known clients and ``examples`` training examples of each."""
    require_at_least(2, clients=clients, examples=examples)
    rng = np.random.default_rng(seed)
    known = data.known_clients
    chosen = np.sort(rng.permutation(known)[:clients])
    most = int(min(examples, np.max(np.asarray(data.train_counts)[chosen])))
    rows = np.zeros((len(chosen), most), np.int64)
    weights = np.zeros((len(chosen), most), np.float32)
    for place, client in enumerate(chosen):
        count = int(data.train_counts[client])
        drawn = rng.permutation(count)[:most]
        rows[place, : len(drawn)] = int(data.offsets[client]) + drawn
        rows[place, len(drawn) :] = rows[place, 0]
        weights[place, : len(drawn)] = 1 / len(drawn)
    return Sample((jnp.asarray(data.x[rows]), jnp.asarray(data.y[rows])), jnp.asarray(weights))


def estimate_at_points(
    losses: Losses,
    sample: Sample,
    points: Sequence[Tree],
    *,
    inner_lr: float,
    iterations: int = 8,
    probes: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Estimate:
    """Return the largest values at the given points.

    Power iteration takes ``iterations`` steps from random vectors. ``probes`` is the number of
    examples of each client whose Hessians are examined.
    """
    require_positive(inner_lr=inner_lr)
    require_at_least(1, iterations=iterations, probes=probes)
    if not points:
        raise ConfigError("points is empty; give at least the initial parameters")
    count, examples = sample.weights.shape
    probes = min(probes, examples)
    values_at = []
    for number, w in enumerate(points):
        progress(number, len(points))
        key = jax.random.fold_in(jax.random.key(seed), number)
        values_at.append(_evaluate_point(losses, sample, w, inner_lr, key, iterations, probes))
    progress(len(points), len(points))
    values, ranges, chance = _take_largest(
        [jax.device_get(values) for values in values_at], np.asarray(sample.weights), probes
    )
    work = count * examples * (2 + 1 + 2 * iterations * (1 + 2 + count))
    work += count * probes * 2 * iterations * (examples + 1)
    return Estimate(
        Constants(**values), ranges, len(points), count, examples, len(points) * work, chance
    )


class Sensitivity(NamedTuple):
    """Lipschitz constants of the loss's derivatives in the example; lower estimates."""

    L_z: float
    rho_z: float


def estimate_sensitivity(
    data: FederatedDataset,
    model: Model,
    points: Sequence[Tree],
    *,
    pairs: int = 64,
    iterations: int = 8,
    seed: int = 0,
    objective: ObjectiveLike = None,
) -> Sensitivity:
    """Estimate L_Z and ρ_Z from pairs of training examples of random clients."""
    require_at_least(1, pairs=pairs, iterations=iterations)
    rng = np.random.default_rng(seed)
    rows = [draw_training_rows(data, rng, pairs) for _ in range(2)]
    one, other = (as_points(data, some, seed=seed) for some in rows)
    apart = np.linalg.norm(one - other, axis=1)
    losses = example_losses(make_objective(model, data.schema, objective))
    batches = [(jnp.asarray(data.x[some]), jnp.asarray(data.y[some])) for some in rows]
    differences = [
        _pair_differences(losses, w, batches, jax.random.key(seed), iterations) for w in points
    ]
    distinct = apart > 0
    if not np.any(distinct):
        return Sensitivity(0.0, 0.0)
    rates = np.array(jax.device_get(differences))[:, :, distinct] / apart[distinct]
    return Sensitivity(*map(float, np.max(rates, axis=(0, 2))))


@partial(jax.jit, static_argnames=("losses", "iterations"))
def _pair_differences(
    losses: Losses, w: Tree, batches: Any, key: Any, iterations: int
) -> tuple[Array, Array]:
    """Return ‖∇l(z) − ∇l(z′)‖ and ‖∇²l(z) − ∇²l(z′)‖ of every pair."""

    def one(pair: tuple[Any, Any, Array]) -> tuple[Array, Array]:
        first, second, number = pair

        def difference(w: Tree) -> Array:
            a, b = (jax.tree.map(lambda leaf: leaf[None], z) for z in (first, second))
            return losses(w, a)[0] - losses(w, b)[0]

        curvature = _spectral_norm(
            lambda v: _product(difference, w, v),
            shape=w, key=jax.random.fold_in(key, number), iterations=iterations,
        )  # fmt: skip
        return norm(jax.grad(difference)(w)), curvature

    count = len(jax.tree.leaves(batches[0])[0])
    return jax.lax.map(one, (*batches, jnp.arange(count)))


class _PointValues(NamedTuple):
    """The values of every client at one point."""

    gradient: Float[Array, " clients"]
    curvature: Float[Array, " clients"]
    curvature_change: Float[Array, " clients"]
    gradient_errors: Float[Array, "clients examples"]
    """‖∇l_j − ∇f_i‖."""
    hessian_errors: Float[Array, "clients probes"]
    """‖∇²l_j − ∇²f_i‖."""
    gradient_gap: Float[Array, " clients"]
    """‖∇f_i − ∇f‖."""
    hessian_gap: Float[Array, " clients"]


@partial(jax.jit, static_argnames=("losses", "iterations", "probes"))
def _evaluate_point(
    losses: Losses,
    sample: Sample,
    w: Tree,
    inner_lr: Float[Array, ""],
    key: Any,
    iterations: int,
    probes: int,
) -> _PointValues:
    def client_loss(w: Tree, batch: Any, weights: Array) -> Array:
        return jnp.vdot(weights, losses(w, batch))

    def mean_client_loss(w: Tree) -> Array:
        """f: the mean of the clients' losses."""
        each = jax.vmap(client_loss, in_axes=(None, 0, 0))(w, *sample)
        return jnp.mean(each)

    mean_gradient = jax.grad(mean_client_loss)(w)
    spectral = partial(_spectral_norm, shape=w, iterations=iterations)

    def one(at: tuple[Any, Array, Int[Array, ""]]) -> _PointValues:
        batch, weights, number = at
        keys = jax.random.split(jax.random.fold_in(key, number), 4)
        f = partial(client_loss, batch=batch, weights=weights)
        g = jax.grad(f)(w)
        u = add(w, g, -inner_lr)
        apart = jnp.maximum(norm(subtract(u, w)), jnp.finfo(jnp.float32).tiny)

        def change(v: Tree) -> Tree:
            return subtract(_product(f, u, v), _product(f, w, v))

        def probe(place: Int[Array, ""]) -> Array:
            single = jax.tree.map(lambda leaf: leaf[place][None], batch)
            alone = lambda w: losses(w, single)[0]  # noqa: E731
            return spectral(
                lambda v: subtract(_product(alone, w, v), _product(f, w, v)),
                key=jax.random.fold_in(keys[2], place),
            )

        return _PointValues(
            norm(g),
            spectral(lambda v: _product(f, w, v), key=keys[0]),
            spectral(change, key=keys[1]) / apart,
            _example_errors(losses, w, batch, g),
            jax.lax.map(probe, jnp.arange(probes)),
            norm(subtract(g, mean_gradient)),
            spectral(
                lambda v: subtract(_product(f, w, v), _product(mean_client_loss, w, v)), key=keys[3]
            ),
        )

    return jax.lax.map(one, (*sample, jnp.arange(len(sample.weights))))


def _product(f: Callable[[Tree], Array], w: Tree, v: Tree) -> Tree:
    """Return ∇²f(w) v."""
    return jax.jvp(jax.grad(f), (w,), (v,))[1]


def _spectral_norm(
    operator: Callable[[Tree], Tree], *, shape: Tree, key: Any, iterations: int
) -> Float[Array, ""]:
    """Return ‖Av‖ ≤ ‖A‖ of a symmetric A, for the unit vector v that power iteration reaches."""
    leaves, structure = jax.tree.flatten(shape)
    keys = jax.random.split(key, len(leaves))
    random = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    tiny = jnp.finfo(leaves[0].dtype).tiny

    def unit(v: Tree) -> Tree:
        return scale(v, 1 / jnp.maximum(norm(v), tiny))

    def turn(_: Any, v: Tree) -> Tree:
        return unit(operator(v))

    start = unit(jax.tree.unflatten(structure, random))
    return norm(operator(jax.lax.fori_loop(0, iterations - 1, turn, start)))


def _example_errors(losses: Losses, w: Tree, batch: Any, mean: Tree) -> Float[Array, " examples"]:
    """Return ‖∇l_j − ∇f_i‖ of every example, a block of gradients at a time."""

    def one(example: Any) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], example)
        return norm(subtract(jax.grad(lambda w: losses(w, single)[0])(w), mean))

    return jax.lax.map(one, batch, batch_size=BLOCK)


def _take_largest(
    points: Sequence[_PointValues], weights: np.ndarray, probes: int
) -> tuple[dict[str, float], dict[str, Range], float]:
    """Return the largest values over points and clients, their ranges, and γ_G by chance."""
    values: dict[str, float] = {}
    ranges: dict[str, Range] = {}

    def keep(name: str, value: float, error: float, root: bool) -> None:
        low, high = max(value - Z95 * error, 0.0), value + Z95 * error
        turn = np.sqrt if root else float
        values[name] = float(turn(value))
        ranges[name] = Range(float(turn(low)), float(turn(high)))

    def largest_moment(name: str, errors: list[np.ndarray], w: np.ndarray, power: int) -> None:
        means = [np.sum(w * e**power, axis=1) for e in errors]
        point = int(np.argmax([m.max() for m in means]))
        client = int(np.argmax(means[point]))
        terms, share = errors[point][client] ** power, w[client]
        mean = float(means[point][client])
        spread = float(np.sum(share * (terms - mean) ** 2))
        used = max(int(np.count_nonzero(share)) - 1, 1)
        keep(name, mean, np.sqrt(spread / used), root=power == 2)

    for name, attribute in (("B", "gradient"), ("L", "curvature"), ("rho", "curvature_change")):
        top = max(float(np.max(getattr(values_at, attribute))) for values_at in points)
        values[name], ranges[name] = top, Range(top, top)
    gradient_errors = [np.asarray(f.gradient_errors, float) for f in points]
    hessian_errors = [np.asarray(f.hessian_errors, float) for f in points]
    alike = weights[:, :probes] / np.sum(weights[:, :probes], axis=1, keepdims=True)
    for power, prefix in ((2, "sigma"), (4, "kappa")):
        largest_moment(f"{prefix}_G", gradient_errors, weights.astype(float), power)
        largest_moment(f"{prefix}_H", hessian_errors, alike.astype(float), power)
    for name, attribute in (("gamma_G", "gradient_gap"), ("gamma_H", "hessian_gap")):
        squares = [np.asarray(getattr(f, attribute), float) ** 2 for f in points]
        chosen = max(squares, key=np.mean)
        keep(name, float(np.mean(chosen)), float(np.std(chosen) / np.sqrt(len(chosen))), root=True)
    where = int(np.argmax([np.mean(np.asarray(f.gradient_gap, float) ** 2) for f in points]))
    share = weights.astype(float)
    noise = np.sum(share**2 * gradient_errors[where] ** 2, axis=1)
    chance = float(np.sqrt(np.mean(noise)))
    return {field.name: values[field.name] for field in fields(Constants)}, ranges, chance


def example_losses(objective: Objective) -> Losses:
    """Return the per-example losses of an objective; equal objectives give equal functions."""
    return _ExampleLosses(objective)


@dataclass(frozen=True)
class _ExampleLosses:
    """Hashable, so that equal objectives share one compiled program."""

    objective: Objective

    def __call__(self, w: Tree, batch: Any) -> Array:
        return self.objective.losses(w, batch)
