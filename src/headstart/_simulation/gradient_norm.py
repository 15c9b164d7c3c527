"""Measure how stationary the shared model is: ‖∇F(w)‖² over all known training data.

P Theorem 4.5 and G Theorem 8 bound its mean over all iterates w̄_{k,t} of the local steps. Remark
4.7 draws one of them in every round. The norm is measured at those, without batch noise.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from headstart._simulation.federation import Federation
from headstart.meta import MetaBatches, meta_gradient
from headstart.trees import Tree, add, dot, scale, zeros_like


@partial(jax.jit, static_argnames=("inner_steps", "most"))
def gradient_norm_squared(
    w: Tree,
    federation: Federation,
    clients: Int[Array, " clients"],
    *,
    inner_lr: Float[Array, ""],
    inner_steps: int,
    most: int,
) -> Float[Array, ""]:
    r"""Return ‖(1/n) Σ_i ∇F_i(w)‖² with F_i(w) = f_i after ν exact steps; ν = 0 is FedAvg's ‖∇f‖².

    α ↔ ``inner_lr``, ν ↔ ``inner_steps``; no client has more than ``most`` training examples.
    """

    def client_gradient(client: Int[Array, ""]) -> Tree:
        task = federation.training_task(client)
        place = jnp.arange(most)
        real = place < task.count
        rows = task.rows_at(jnp.where(real, place, 0))
        batch = jax.tree.map(lambda a: a[rows], task.examples)
        share = real / task.count

        def loss(w: Tree, batch: tuple[Array, Array]) -> Float[Array, ""]:
            return jnp.vdot(share, task.objective.losses(w, batch))

        inner = [batch] * inner_steps
        return meta_gradient(loss, w, MetaBatches(inner, batch, inner), inner_lr=inner_lr)

    def add_client(total: Tree, client: Int[Array, ""]) -> tuple[Tree, None]:
        return add(total, client_gradient(client)), None

    total, _ = jax.lax.scan(add_client, zeros_like(w), clients)
    mean = scale(total, 1 / len(clients))
    return dot(mean, mean)
