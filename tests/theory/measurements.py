"""How loose the bounds are, and at which rates things really shrink: for docs/theory.md.

``python tests/theory/measurements.py`` from the project's folder prints the tables and draws the
picture of that page.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from headstart.meta import MetaBatches, meta_gradient
from headstart.theory import Constants, bounds
from theory.problems import CLIENTS, EXAMPLES, PROBLEMS, Problem

DELTA = 0.05
METHODS: tuple[Any, ...] = ("exact", "first-order", "hessian-free")


@lru_cache
def constants(name: str) -> Constants:
    """Of a problem, once."""
    return PROBLEMS[name].constants()


def exact_meta_gradient(problem: Problem, i: Any, w: jax.Array, alpha: float, nu: int) -> Any:
    """∇F_i(w): all examples in every place."""
    whole = jax.tree.map(lambda leaf: leaf[i], problem.examples)
    batches = MetaBatches([whole] * nu, whole, [whole] * nu)
    return meta_gradient(problem.loss, w, batches, inner_lr=alpha)


@partial(jax.jit, static_argnames=("name", "method", "nu", "size", "draws"))
def draw(
    name: str, w: Any, key: Any, alpha: float, *, method: Any, nu: int, size: int, client: Any,
    draws: int, delta: float = DELTA,
) -> jax.Array:  # fmt: skip
    """Many independent stochastic meta-gradients of one client."""
    problem = PROBLEMS[name]
    whole = jax.tree.map(lambda leaf: leaf[client], problem.examples)

    def one(key: Any) -> jax.Array:
        rows = jax.random.randint(key, (2 * nu + 1, size), 0, EXAMPLES)
        parts = [jax.tree.map(lambda leaf, r=r: leaf[r], whole) for r in rows]
        batches = MetaBatches(parts[:nu], parts[nu], parts[nu + 1 :])
        return meta_gradient(problem.loss, w, batches, inner_lr=alpha, method=method, delta=delta)

    return jax.vmap(one)(jax.random.split(key, draws))


def errors_of(
    name: str, w: Any, key: Any, alpha: float, *, method: Any, nu: int, size: int, client: int,
    draws: int,
) -> np.ndarray:  # fmt: skip
    """Stochastic minus exact meta-gradients of one client."""
    found = draw(name, w, key, alpha, method=method, nu=nu, size=size, client=client, draws=draws)
    truth = exact_meta_gradient(PROBLEMS[name], client, w, alpha, nu)
    return np.asarray(found, float) - np.asarray(truth, float)


def hessian_free_errors(deltas: list[float]) -> list[float]:
    """‖difference to the exact meta-gradient‖ on whole data, the logistic problem, ν = 1."""
    problem, alpha, w = PROBLEMS["logistic"], 0.5 / constants("logistic").L, jnp.array([1.0, -0.5])
    whole = problem.client(0)
    batches = MetaBatches([whole], whole, [whole])
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), (w, batches))
        exact = meta_gradient(problem.loss, *wide, inner_lr=alpha)
        found = [
            meta_gradient(problem.loss, *wide, inner_lr=alpha, method="hessian-free", delta=d)
            for d in deltas
        ]
        return [float(jnp.linalg.norm(f - exact)) for f in found]


@partial(jax.jit, static_argnames=("size", "draws"))
def _mean_over_inner_batches(w: Any, alpha: float, key: Any, *, size: int, draws: int) -> jax.Array:
    """E∇̃F(w) of the network problem's client 0, ν = 1.

    The outer and the Hessian's batch enter linearly and independently: their means are exact, and
    only the batch of the adaptation step is drawn.
    """
    problem = PROBLEMS["network"]
    whole = problem.client(0)

    def one(key: Any) -> jax.Array:
        rows = jax.random.randint(key, (size,), 0, EXAMPLES)
        inner = jax.tree.map(lambda leaf: leaf[rows], whole)
        return meta_gradient(problem.loss, w, MetaBatches([inner], whole, [whole]), inner_lr=alpha)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, draws)), axis=0)


def biases(sizes: list[int], draws: int = 1_000_000) -> list[float]:
    """‖E∇̃F − ∇F‖ for batches of these sizes: the network problem, exact method, ν = 1."""
    alpha, w, pieces = 0.5 / constants("network").L, jnp.array(NETWORK_POINT), 20
    truth = np.asarray(exact_meta_gradient(PROBLEMS["network"], 0, w, alpha, 1), float)
    found = []
    for size in sizes:
        keys = jax.random.split(jax.random.key(size), pieces)
        means = [
            np.asarray(_mean_over_inner_batches(w, alpha, k, size=size, draws=draws // pieces))
            for k in keys
        ]
        found.append(float(np.linalg.norm(np.mean(means, axis=0, dtype=float) - truth)))
    return found


@partial(jax.jit, static_argnames=("local_steps", "rounds", "size"))
def trajectory(
    alpha: float, beta: float, key: Any, *, local_steps: int, rounds: int, size: int
) -> jax.Array:
    """‖∇F(w̄)‖² at every iterate of Per-FedAvg on the logistic problem, all clients."""
    problem = PROBLEMS["logistic"]
    clients = jnp.arange(CLIENTS)

    def mean_gradient(w: jax.Array) -> jax.Array:
        each = jax.vmap(lambda i: exact_meta_gradient(problem, i, w, alpha, 1))(clients)
        return jnp.mean(each, axis=0)

    def step(models: jax.Array, key: Any) -> tuple[jax.Array, jax.Array]:
        seen = jnp.sum(mean_gradient(jnp.mean(models, axis=0)) ** 2)

        def local(w: jax.Array, i: jax.Array, key: Any) -> jax.Array:
            d = draw("logistic", w, key, alpha, method="exact", nu=1, size=size, client=i, draws=1)
            return w - beta * d[0]

        return jax.vmap(local)(models, clients, jax.random.split(key, CLIENTS)), seen

    def round_(w: jax.Array, key: Any) -> tuple[jax.Array, jax.Array]:
        models = jnp.broadcast_to(w, (CLIENTS, *w.shape))
        models, seen = jax.lax.scan(step, models, jax.random.split(key, local_steps))
        return jnp.mean(models, axis=0), seen

    start = jnp.array([2.0, -2.0])
    return jax.lax.scan(round_, start, jax.random.split(key, rounds))[1]


def stationarity(
    local_steps: int, rounds: list[int], size: int = 4
) -> tuple[list[float], list[float]]:
    """Measured mean of ‖∇F‖² over all iterates of so many rounds, and the theorem's bound."""
    c, nu = constants("logistic"), 1
    alpha = 0.5 / c.L
    step: dict[str, Any] = {"inner_lr": alpha, "inner_steps": nu}
    beta = 1 / (10 * local_steps * bounds.one_step.smoothness(c, **step))
    seen = np.asarray(
        trajectory(alpha, beta, jax.random.key(0), local_steps=local_steps, rounds=max(rounds),
                   size=size), float,
    )  # fmt: skip
    promised = [
        bounds.sharpest.stationarity(
            c, local_lr=beta, local_steps=local_steps, rounds=k, participation=1.0,
            clients=CLIENTS, initial_gap=first_loss(alpha), batch_sizes=size, **step,
        ).total
        for k in rounds
    ]  # fmt: skip
    return [float(seen[:k].mean()) for k in rounds], promised


def first_loss(alpha: float) -> float:
    """F at the start of the trajectory; losses are positive."""
    problem, w = PROBLEMS["logistic"], jnp.array([2.0, -2.0])
    found = []
    for i in range(CLIENTS):
        whole = problem.client(i)
        found.append(problem.loss(w - alpha * jax.grad(problem.loss)(w, whole), whole))
    return float(jnp.mean(jnp.stack(found)))


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def looseness(name: str, method: Any, nu: int, size: int = 3) -> dict[str, tuple[float, float]]:
    """Measured (largest over points and clients) and bound, of bias and variance."""
    problem, c = PROBLEMS[name], constants(name)
    alpha = 0.5 / c.L
    options: dict[str, Any] = {
        "method": method, "inner_lr": alpha, "inner_steps": nu, "batch_sizes": size,
        "delta": DELTA,
    }  # fmt: skip
    bias, variance = 0.0, 0.0
    for number, start in enumerate(problem.starts):
        for client in range(CLIENTS):
            e = errors_of(name, jnp.array(start), jax.random.key(10 * number + client), alpha,
                          method=method, nu=nu, size=size, client=client, draws=20_000)  # fmt: skip
            bias = max(bias, float(np.linalg.norm(e.mean(axis=0))))
            variance = max(variance, float(np.mean(np.sum(e**2, axis=1))))
    return {
        "bias": (bias, bounds.sharpest.gradient_bias(c, **options)),
        "variance": (variance, bounds.sharpest.gradient_variance(c, **options)),
    }


def spread_and_smoothness(name: str, nu: int) -> dict[str, tuple[float, float]]:
    """Measured and bound, of γ_F² and L_F."""
    problem, c = PROBLEMS[name], constants(name)
    alpha = 0.5 / c.L
    step: dict[str, Any] = {"inner_lr": alpha, "inner_steps": nu}
    spread, steep = 0.0, 0.0
    for start in problem.starts:
        w = jnp.array(start)
        each = np.array([exact_meta_gradient(problem, i, w, alpha, nu) for i in range(CLIENTS)])
        spread = max(spread, float(np.mean(np.sum((each - each.mean(axis=0)) ** 2, axis=1))))
        for i in range(CLIENTS):
            hessian = jax.jacfwd(partial(exact_meta_gradient, problem, i, alpha=alpha, nu=nu))(w)
            steep = max(steep, float(jnp.linalg.norm(hessian, 2)))
    return {
        "γ_F²": (spread, bounds.sharpest.meta_similarity(c, **step)),
        "L_F": (steep, bounds.sharpest.smoothness(c, **step)),
    }


DELTAS = [0.8, 0.4, 0.2, 0.1, 0.05]
SIZES = [1, 2, 4, 8, 16]
NETWORK_POINT = (-0.5, 0.5, 1.0)
ROUNDS = [3, 10, 30, 100, 300, 1000, 3000, 10000]
LOCAL_STEPS = [1, 3, 10]


def _tables() -> str:
    names = " | ".join(METHODS)
    lines = [f"| problem | ν | bias: {names} | variance: {names} | γ_F² | L_F |"]
    lines.append("| --- " + "| ---: " * 9 + "|")
    for name in PROBLEMS:
        for nu in (1, 2):
            found = [looseness(name, method, nu) for method in METHODS]
            pairs = [f["bias"] for f in found] + [f["variance"] for f in found]
            pairs += list(spread_and_smoothness(name, nu).values())
            cells = ["exact" if m < 1e-5 and b < 1e-5 else _times(b / m) for m, b in pairs]
            lines.append(f"| {name} | {nu} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"


def _draw(path: Path) -> None:
    from headstart.report._charts import Axis, Line, Panel
    from headstart.report._matplotlib_backend import draw_figure, render_figure
    from headstart.report._palette import COLOURS, GREY, SeriesStyle

    c = constants("network")
    errors, size_errors = hessian_free_errors(DELTAS), biases(SIZES)
    sizes = [float(s) for s in SIZES]
    bias_bounds = [
        bounds.sharpest.gradient_bias(c, method="exact", inner_lr=0.5 / c.L, inner_steps=1,
                                      batch_sizes=s) for s in SIZES
    ]  # fmt: skip
    runs = []
    for colour, tau in zip(COLOURS, LOCAL_STEPS, strict=False):
        measured, guaranteed = stationarity(tau, ROUNDS)
        runs.append(Line(SeriesStyle("run", f"τ = {tau}", colour), ROUNDS, measured))
        runs.append(Line(SeriesStyle("bound", "", colour, "dash"), ROUNDS, guaranteed))
    measured_style = SeriesStyle("measured", "measured", COLOURS[0])
    panels = [
        Panel(
            Axis("δ", log=True), Axis("error of the meta-gradient", log=True),
            [Line(SeriesStyle("error", "", COLOURS[0]), DELTAS, errors)],
            f"Hessian-free: slope {slope(DELTAS, errors):.1f}",
        ),
        Panel(
            Axis("batch size D", log=True), Axis("bias", log=True),
            [Line(measured_style, sizes, size_errors),
             Line(SeriesStyle("bound", "bound", GREY, "dash"), sizes, bias_bounds)],
            f"Bias: slope {slope(sizes, size_errors):.1f}, bound −0.5",
        ),
        Panel(
            Axis("rounds K", log=True), Axis("mean of ‖∇F‖²", log=True), runs,
            "A run (solid), its bound (dashed)",
        ),
    ]  # fmt: skip
    path.write_bytes(render_figure(draw_figure(panels, width=10.5), "svg"))


if __name__ == "__main__":
    print(_tables())
    print("δ", hessian_free_errors(DELTAS), "bias", biases(SIZES))
    for tau in LOCAL_STEPS:
        print("τ", tau, stationarity(tau, ROUNDS))
    _draw(Path("docs/images/theory-rates.svg"))
