"""What the methods of an algorithm return, found out without computing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from headstart.algorithms._contract import Algorithm, GradientNormPoint, Part, Reply, Sent
from headstart.testing._bench import Bench, make_cohort
from headstart.testing._problems import (
    CheckStopped,
    Problem,
    describe_difference,
    report_errors_as_problems,
)

STRUCTURE_IS_KEPT = "return the same structure, shapes and types as before"


def structure_problems(bench: Bench) -> Iterator[Problem]:
    """Everything about structures, shapes and types."""
    algorithm, key = bench.algorithm, jax.random.key(0)
    yield from _traced_options(algorithm)
    yield from _numbers(algorithm)

    state = _shapes("init", algorithm, lambda a, *args: a.init(*args), bench.params)
    yield from _storable("init", "the state", state)
    yield from _models(algorithm, state, bench.params)

    memory = _shapes("init_memory", algorithm, lambda a, *args: a.init_memory(*args), state)
    yield from _storable("init_memory", "the memory", memory)
    yield from _declared_memory(algorithm, memory)

    sent = _shapes("broadcast", algorithm, lambda a, *args: a.broadcast(*args), state, key)
    if not isinstance(sent, Sent):
        raise CheckStopped(
            Problem("broadcast", f"returned {_kind(sent)}", "return Sent(params, extra)")
        )

    reply, after, info = _several(
        "client_update", "Reply, memory, info", 3,
        _shapes("client_update", algorithm, lambda a, *args: a.client_update(*args),
                sent, memory, bench.task(), key),
    )  # fmt: skip
    yield from _kept("client_update", "the client's memory", memory, after)
    yield from _info("client_update", info, needs_loss=True)
    wrong_reply = list(_reply(reply, sent))
    yield from wrong_reply
    if wrong_reply:
        return  # the server could not but fail with it

    def server_update(a: Algorithm, state: Any, reply: Reply, key: Any) -> Any:
        return a.server_update(state, make_cohort(a, reply), key)

    new_state, info = _several(
        "server_update", "state, info", 2,
        _shapes("server_update", algorithm, server_update, state, reply, key),
    )  # fmt: skip
    yield from _kept("server_update", "the state", state, new_state)
    yield from _info("server_update", info, needs_loss=False)
    yield from _personal(bench, state, memory, key)


def _personal(bench: Bench, state: Any, memory: Any, key: Any) -> Iterator[Problem]:
    algorithm, task = bench.algorithm, bench.task(bench.new_client)
    start = _shapes("personal_start", algorithm, lambda a, *args: a.personal_start(*args),
                    state, memory, task, key)  # fmt: skip
    after = _shapes("personal_step", algorithm, lambda a, *args: a.personal_step(*args),
                    start, task, key)  # fmt: skip
    yield from _kept("personal_step", "the client's model", start, after)
    model = _shapes("personal_model", algorithm, lambda a, *args: a.personal_model(*args), start)
    yield from _like_params("personal_model", model, bench.params)


def _models(algorithm: Algorithm, state: Any, params: Any) -> Iterator[Problem]:
    model = _shapes("model", algorithm, lambda a, *args: a.model(*args), state)
    yield from _like_params("model", model, params)
    other = _shapes("with_model", algorithm, lambda a, *args: a.with_model(*args), state, params)
    yield from _kept("with_model", "the state", state, other)
    if algorithm.measures_gradient_norm:
        point = _shapes(
            "gradient_norm_point", algorithm, lambda a, *args: a.gradient_norm_point(*args), state
        )
        if not isinstance(point, GradientNormPoint):
            yield Problem(
                "gradient_norm_point", f"returned {_kind(point)}", "return a GradientNormPoint"
            )


def _traced_options(algorithm: Algorithm) -> Iterator[Problem]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(algorithm):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if not isinstance(leaf, bool | int | float | complex | jax.Array) and not hasattr(
            leaf, "__array__"
        ):
            raise CheckStopped(
                Problem(
                    "options",
                    f"{name}={leaf!r} is not a number, and JAX cannot trace it",
                    f"declare it with {name}: … = eqx.field(static=True, default=…)",
                )
            )
        if isinstance(leaf, bool | int):
            yield Problem(
                "options",
                f"{name}={leaf!r} is traced, so it cannot decide what is compiled",
                f"declare it with {name}: … = eqx.field(static=True, default=…), or make it a "
                "float",
            )


def _numbers(algorithm: Algorithm) -> Iterator[Problem]:
    with report_errors_as_problems("gradients_per_update"):
        counts = [algorithm.gradients_per_update(6), algorithm.gradients_per_step]
    for where, count, least in (
        ("gradients_per_update", counts[0], 0),
        ("gradients_per_step", counts[1], 0),
        ("largest_batch", algorithm.largest_batch, 1),
    ):
        if not isinstance(count, int) or count < least:
            yield Problem(where, f"is {count!r}", f"return a whole number of at least {least}")


def _storable(where: str, what: str, tree: Any) -> Iterator[Problem]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            yield Problem(
                where,
                f"{what} holds a random key, {name}",
                "use the keys that every method is given: randomness is derived, never stored",
            )


def _declared_memory(algorithm: Algorithm, memory: Any) -> Iterator[Problem]:
    holds = bool(jax.tree.leaves(memory))
    if holds != algorithm.needs_memory:
        wanted = "needs_memory: ClassVar[bool] = True" if holds else "needs_memory = False"
        yield Problem(
            "needs_memory",
            f"is {algorithm.needs_memory}, but a client's memory is {'not ' * holds}empty",
            f"write {wanted}",
        )


def _reply(reply: Any, sent: Sent) -> Iterator[Problem]:
    if not isinstance(reply, Reply):
        raise CheckStopped(
            Problem(
                "client_update",
                f"replied with {_kind(reply)}",
                "return Reply(update, weight, parts)",
            )
        )
    gap = describe_difference(sent.params, reply.update)
    if gap and jax.tree.leaves(reply.update):
        yield Problem(
            "client_update",
            f"the update is not built like the model that was sent: {gap}",
            "reply with the difference between the client's model and sent.params, or with ()",
        )
    yield from _weight("the weight of the update", reply.weight)
    if not isinstance(reply.parts, Mapping):
        raise CheckStopped(
            Problem("client_update", f"the parts are {_kind(reply.parts)}", "use a dict of Part")
        )
    for name, part in reply.parts.items():
        if not isinstance(part, Part):
            raise CheckStopped(
                Problem(
                    "client_update", f"part {name!r} is {_kind(part)}", "use Part(value, weight)"
                )
            )
        yield from _weight(f"the weight of part {name!r}", part.weight)


def _weight(what: str, weight: Any) -> Iterator[Problem]:
    if jnp.shape(weight) != () or not jnp.issubdtype(jnp.result_type(weight), jnp.floating):
        yield Problem(
            "client_update",
            f"{what} has shape {jnp.shape(weight)} and type {jnp.result_type(weight)}",
            "use one floating-point number, self.weight_of(task.count)",
        )


def _info(where: str, info: Any, *, needs_loss: bool) -> Iterator[Problem]:
    if not isinstance(info, Mapping):
        raise CheckStopped(Problem(where, f"the info is {_kind(info)}", "return a dict of scalars"))
    if needs_loss and "loss" not in info:
        yield Problem(
            where, "info has no loss", 'add {"loss": the mean training loss the client saw}'
        )
    for name, value in info.items():
        if jnp.shape(value) != ():
            yield Problem(
                where, f"info[{name!r}] has shape {jnp.shape(value)}", "record scalars only"
            )


def _kept(where: str, what: str, before: Any, after: Any) -> Iterator[Problem]:
    gap = describe_difference(before, after)
    if gap:
        yield Problem(where, f"{what} changes from round to round: {gap}", STRUCTURE_IS_KEPT)


def _like_params(where: str, model: Any, params: Any) -> Iterator[Problem]:
    gap = describe_difference(params, model)
    if gap:
        yield Problem(
            where,
            f"the result is not built like the model's parameters: {gap}",
            "return parameters as init received them",
        )


def _shapes(where: str, algorithm: Algorithm, method: Any, *args: Any) -> Any:
    """What the method returns, as shapes; step sizes are traced as the engines trace them."""
    with report_errors_as_problems(where):
        return jax.eval_shape(method, algorithm, *args)


def _several(where: str, names: str, count: int, result: Any) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != count or hasattr(result, "_fields"):
        raise CheckStopped(Problem(where, f"returned {_kind(result)}", f"return a tuple ({names})"))
    return result


def _kind(thing: Any) -> str:
    if isinstance(thing, tuple) and not hasattr(thing, "_fields"):
        return f"a tuple of {len(thing)}"
    if isinstance(thing, jax.ShapeDtypeStruct):
        return f"an array of shape {thing.shape}"
    return f"a {type(thing).__name__}"
