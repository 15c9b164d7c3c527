r"""How much of γ_G the clients' labels explain, and the bound they imply (P §4.1, (14a)).

If clients differ only in their labels, a class has the same distribution at every client. With
g_c = E[∇l(z; w) | class c], client i's label shares p_i and their mean p,

    ∇f_i − ∇f = Σ_c (p_i(c) − p(c)) g_c,    γ_G² ≤ 4B² · mean_i TV(p_i, p)²,

where ‖∇l(z; w)‖ ≤ B for **every example** z. A bound on the clients' mean gradients is not enough.

The premise can be tested. In data, ∇f_i − ∇f also has a part that label shares do not explain,

    r_i = Σ_c p_i(c) (g_ic − g_c),    g_ic: the mean gradient of client i's examples of class c.

Under the premise r_i is chance. Exchanging examples of the same class between clients then leaves
the distribution unchanged and shows how large mean_i ‖r_i‖² gets (a permutation test).

Everything follows from the inner products ⟨∇l_j, ∇l_k⟩ of the examples' gradients. γ_G, its parts
and B belong to one set of examples, so the bound holds for that set and that w. For all training
data B is a lower estimate.

There is no such bound on γ_H here. It would need the spectral norm of every example's Hessian, and
power iteration approaches norms from below: 2L · TV with such an L could be too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from headstart.data._federated import FederatedDataset
from headstart.heterogeneity import label_bound
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike, make_objective
from headstart.theory._estimation import Losses, example_losses, sample_clients
from headstart.trees import Tree

BLOCK = 32
"""Examples per block of gradients; two blocks are in memory at the same time."""
DRAWS = 200
LEVEL = 0.99
"""The share of the permutations that leave less unexplained than ``chance_G``."""
ROUNDING = 1e-5
"""Squares that differ by less than this times B² count as equal: gradients are float32."""


@dataclass(frozen=True)
class LabelPart:
    """γ_G of some examples of some clients, and the part that label shares explain."""

    gamma_G: float
    """Root of mean_i ‖∇f_i − ∇f‖²."""
    explained_G: float
    """Root of mean_i ‖Σ_c (p_i(c) − p(c)) g_c‖²: γ_G if clients differed only in labels."""
    unexplained_G: float
    """Root of mean_i ‖r_i‖²."""
    chance_G: float
    """The 99th percentile of ``unexplained_G`` if clients differ only in labels."""
    B: float
    """The largest ‖∇l(z; w)‖ of these examples."""
    bound_G: float
    """2B · √(mean TV²): the bound on γ_G if clients differ only in labels."""
    clients: int
    examples: int
    """The total over clients."""

    @property
    def gradients(self) -> int:
        """Gradients of single examples computed for the products of all blocks."""
        return self.examples * (math.ceil(self.examples / BLOCK) + 3) // 2

    @property
    def share_explained(self) -> float:
        """The share of γ_G² explained: 1 − mean_i ‖r_i‖² / γ_G², at least 0."""
        if self.gamma_G == 0:
            return 1.0
        return max(0.0, 1 - (self.unexplained_G / self.gamma_G) ** 2)

    @property
    def beyond_chance(self) -> bool:
        """Whether more is unexplained than chance allows: clients differ in more than labels."""
        return self._larger(self.unexplained_G, self.chance_G)

    @property
    def exceeds_bound(self) -> bool:
        """Whether γ_G is above the bound, so its premise is false for these examples."""
        return self._larger(self.gamma_G, self.bound_G)

    @property
    def bound_applies(self) -> bool:
        """Whether the data are consistent with the premise of the bound."""
        return not (self.beyond_chance or self.exceeds_bound)

    def _larger(self, a: float, b: float) -> bool:
        return a**2 > b**2 + ROUNDING * self.B**2


def measure_label_part(
    data: FederatedDataset,
    model: Model,
    w: Tree,
    *,
    clients: int,
    examples: int,
    seed: int = 0,
    objective: ObjectiveLike = None,
) -> LabelPart | None:
    """Measure the label part at w, on the examples ``estimate_constants`` uses for these arguments.

    Return None if an example does not have exactly one class: its label is a number, or it has
    several labels, as a text does.
    """
    if data.schema.target != "class":
        return None
    sample = sample_clients(data, clients=clients, examples=examples, seed=seed)
    used = np.asarray(sample.weights) > 0
    x, y = (np.asarray(part)[used] for part in sample.batch)
    if y.ndim > 1:
        return None
    losses = example_losses(make_objective(model, data.schema, objective))
    return compute_label_part(
        gradient_products(losses, w, (x, y)), np.nonzero(used)[0], y, seed=seed
    )


def compute_label_part(
    products: np.ndarray, whose: np.ndarray, labels: np.ndarray, *, seed: int = 0
) -> LabelPart:
    """Compute the label part from ⟨∇l_j, ∇l_k⟩, each example's client (0, 1, …) and its class."""
    weights = _membership(whose)
    weights /= weights.sum(axis=1, keepdims=True)
    of_class = _membership(np.unique(labels, return_inverse=True)[1])
    shares = weights @ of_class.T
    to_mean = shares - shares.mean(axis=0)
    class_means = of_class * weights.mean(axis=0) / shares.mean(axis=0)[:, None]
    explained = to_mean @ class_means
    gap = weights - weights.mean(axis=0)
    B = math.sqrt(float(np.max(np.diag(products))))
    permuted = _permute_examples(gap - explained, products, labels, np.random.default_rng(seed))
    return LabelPart(
        gamma_G=_root_mean_square(gap, products),
        explained_G=_root_mean_square(explained, products),
        unexplained_G=_root_mean_square(gap - explained, products),
        chance_G=float(np.quantile(permuted, LEVEL)),
        B=B,
        bound_G=label_bound(np.sum(np.abs(to_mean), axis=1) / 2, B=B),
        clients=len(weights),
        examples=len(labels),
    )


def _membership(groups: np.ndarray) -> np.ndarray:
    """Return (groups, examples): 1 where the example belongs to the group."""
    return (np.arange(np.max(groups) + 1)[:, None] == groups).astype(float)


def _root_mean_square(coefficients: np.ndarray, products: np.ndarray) -> float:
    """Return the root of mean_i ‖Σ_j coefficients_ij ∇l_j‖²."""
    squares = np.sum(coefficients * (coefficients @ products), axis=1)
    return math.sqrt(max(float(np.mean(squares)), 0.0))


def _permute_examples(
    coefficients: np.ndarray, products: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> list[float]:
    """Return the root mean square after each of ``DRAWS`` random exchanges within the classes."""
    norms = []
    members = [np.nonzero(labels == label)[0] for label in np.unique(labels)]
    for _ in range(DRAWS):
        order = np.arange(len(labels))
        for rows in members:
            order[rows] = rng.permutation(rows)
        norms.append(_root_mean_square(coefficients, products[np.ix_(order, order)]))
    return norms


def gradient_products(
    losses: Losses, w: Tree, batch: Any
) -> Float[np.ndarray, "examples examples"]:
    """Return ⟨∇l_j(w), ∇l_k(w)⟩ of all pairs of examples, two blocks of gradients at a time."""
    count = len(jax.tree.leaves(batch)[0])
    places = [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]
    parts = [jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), batch) for at in places]
    products = np.empty((count, count))
    for i, rows in enumerate(places):
        row_gradients = _gradients(losses, w, parts[i])
        for columns, part in zip(places[i:], parts[i:], strict=True):
            block = np.asarray(_products(row_gradients, _gradients(losses, w, part)), float)
            products[rows, columns], products[columns, rows] = block, block.T
    return products


@partial(jax.jit, static_argnames="losses")
def _gradients(losses: Losses, w: Tree, batch: Any) -> Float[Array, "examples weights"]:
    def one(example: Any) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], example)
        return ravel_pytree(jax.grad(lambda w: losses(w, single)[0])(w))[0]

    return jax.vmap(one)(batch)


@jax.jit
def _products(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b.T, precision="highest")
