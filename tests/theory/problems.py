"""Problems whose constants are known: small enough to take suprema over a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.theory import Constants

CLIENTS, EXAMPLES = 5, 12


@dataclass(frozen=True)
class Problem:
    """Clients' examples, a loss, and a region with constants that hold everywhere in it."""

    name: str
    examples: Any
    """Leading axes: clients, examples."""
    losses: Callable[[jax.Array, Any], jax.Array]
    """The loss of every example of a batch."""
    region: np.ndarray
    """Points of a fine grid over the region, (points, dimensions)."""
    starts: tuple[tuple[float, ...], ...]
    """Points well inside, from which adaptation does not leave the region."""

    def loss(self, w: jax.Array, batch: Any) -> jax.Array:
        """Mean over a batch."""
        return jnp.mean(self.losses(w, batch))

    def client(self, i: int) -> Any:
        """All examples of one client."""
        return jax.tree.map(lambda leaf: leaf[i], self.examples)

    def constants(self) -> Constants:
        """Suprema over the grid, of exact Hessians; ρ from the third derivative.

        Two percent more, for what lies between the points.
        """
        found = jax.jit(jax.vmap(self._at))(jnp.asarray(self.region, jnp.float32))
        top = {name: float(np.max(np.asarray(value))) for name, value in found.items()}
        for name in ("sigma_G", "sigma_H", "gamma_G", "gamma_H"):
            top[name] **= 0.5
        return Constants(**{name: 1.02 * value for name, value in top.items()})

    def _at(self, w: jax.Array) -> dict[str, jax.Array]:
        def single(w: jax.Array, example: Any) -> jax.Array:
            return self.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

        gradients = jax.vmap(jax.vmap(lambda e: jax.grad(single)(w, e)))(self.examples)
        hessians = jax.vmap(jax.vmap(lambda e: jax.hessian(single)(w, e)))(self.examples)
        third = jax.vmap(jax.vmap(lambda e: jax.jacfwd(jax.hessian(single))(w, e)))(self.examples)
        g, h = jnp.mean(gradients, 1), jnp.mean(hessians, 1)
        noise = jnp.linalg.norm(gradients - g[:, None], axis=-1)
        shake = _spectral(hessians - h[:, None])
        # ‖∇³f‖ as a map from a direction to a matrix is at most the Frobenius norm of its slices.
        steep = jnp.sqrt(jnp.sum(jnp.mean(third, 1) ** 2, axis=(-1, -2, -3)))
        return {
            "B": jnp.max(jnp.linalg.norm(g, axis=-1)),
            "L": jnp.max(_spectral(h)),
            "rho": jnp.max(steep),
            "sigma_G": jnp.max(jnp.mean(noise**2, 1)),
            "sigma_H": jnp.max(jnp.mean(shake**2, 1)),
            "kappa_G": jnp.max(jnp.mean(noise**4, 1)),
            "kappa_H": jnp.max(jnp.mean(shake**4, 1)),
            "gamma_G": jnp.mean(jnp.sum((g - jnp.mean(g, 0, keepdims=True)) ** 2, -1)),
            "gamma_H": jnp.mean(_spectral(h - jnp.mean(h, 0, keepdims=True)) ** 2),
        }


def _spectral(matrices: jax.Array) -> jax.Array:
    """At least the spectral norm: Frobenius', which for two or three dimensions is near."""
    return jnp.sqrt(jnp.sum(matrices**2, axis=(-1, -2)))


def _box(reach: float, dimensions: int, points: int) -> np.ndarray:
    axes = np.meshgrid(*[np.linspace(-reach, reach, points)] * dimensions)
    return np.stack([axis.ravel() for axis in axes], axis=-1)


def logistic() -> Problem:
    """Regularised logistic regression in two dimensions."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(CLIENTS, EXAMPLES, 2)) + rng.normal(size=(CLIENTS, 1, 2))
    y = np.sign(rng.normal(size=(CLIENTS, EXAMPLES)) + x[..., 0])

    def losses(w: jax.Array, batch: Any) -> jax.Array:
        x, y = batch
        return jax.nn.softplus(-y * (x @ w)) + 0.05 * jnp.sum(w**2)

    examples = (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    starts = ((0.0, 0.0), (1.0, -0.5), (-1.5, 1.0))
    return Problem("logistic", examples, losses, _box(4.0, 2, 41), starts)


def network() -> Problem:
    """One hidden tanh unit with two weights and a factor, on a bounded set."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(CLIENTS, EXAMPLES, 2))
    y = np.tanh(x @ rng.normal(size=(2,))) + 0.3 * rng.normal(size=(CLIENTS, 1))

    def losses(w: jax.Array, batch: Any) -> jax.Array:
        x, y = batch
        return 0.5 * (w[2] * jnp.tanh(x @ w[:2]) - y) ** 2

    examples = (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    starts = ((0.1, 0.2, 0.5), (-0.5, 0.5, 1.0))
    return Problem("network", examples, losses, _box(2.0, 3, 17), starts)


def quadratic() -> Problem:
    """½ wᵀAw − bᵀw with an A and b of its own for every example."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(CLIENTS, EXAMPLES, 2, 2))
    own = 1 + 0.3 * rng.normal(size=(CLIENTS, 1, 1, 1))
    a = 0.3 * (root + root.swapaxes(-1, -2)) + own * np.eye(2)
    b = rng.normal(size=(CLIENTS, EXAMPLES, 2)) + rng.normal(size=(CLIENTS, 1, 2))

    def losses(w: jax.Array, batch: Any) -> jax.Array:
        a, b = batch
        return 0.5 * jnp.einsum("i,nij,j->n", w, a, w) - b @ w

    examples = (jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
    return Problem("quadratic", examples, losses, _box(3.0, 2, 13), ((0.0, 0.0), (1.0, -1.0)))


PROBLEMS = {problem.name: problem for problem in (logistic(), network(), quadratic())}
