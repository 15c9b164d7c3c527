"""Check what the methods of an algorithm return, without computing anything."""

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

KEEP_STRUCTURE = "return the same structure, shapes and types as before"


def structure_problems(bench: Bench) -> Iterator[Problem]:
    """Check structures, shapes and types."""
    algorithm, key = bench.algorithm, jax.random.key(0)
    yield from _check_traced_options(algorithm)
    yield from _check_numbers(algorithm)

    state = _trace_shapes("init", algorithm, lambda a, *args: a.init(*args), bench.params)
    yield from _check_storable("init", "the state", state)
    yield from _check_models(algorithm, state, bench.params)

    memory = _trace_shapes("init_memory", algorithm, lambda a, *args: a.init_memory(*args), state)
    yield from _check_storable("init_memory", "the memory", memory)
    yield from _check_declared_memory(algorithm, memory)

    sent = _trace_shapes("broadcast", algorithm, lambda a, *args: a.broadcast(*args), state, key)
    if not isinstance(sent, Sent):
        raise CheckStopped(
            Problem("broadcast", f"returned {_describe_kind(sent)}", "return Sent(params, extra)")
        )

    reply, after, info = _require_tuple(
        "client_update", "Reply, memory, info", 3,
        _trace_shapes("client_update", algorithm, lambda a, *args: a.client_update(*args),
                sent, memory, bench.task(), key),
    )  # fmt: skip
    yield from _check_unchanged("client_update", "the client's memory", memory, after)
    yield from _check_info("client_update", info, needs_loss=True)
    reply_problems = list(_check_reply(reply, sent))
    yield from reply_problems
    if reply_problems:
        return  # the server would fail with it

    def server_update(a: Algorithm, state: Any, reply: Reply, key: Any) -> Any:
        return a.server_update(state, make_cohort(a, reply), key)

    new_state, info = _require_tuple(
        "server_update", "state, info", 2,
        _trace_shapes("server_update", algorithm, server_update, state, reply, key),
    )  # fmt: skip
    yield from _check_unchanged("server_update", "the state", state, new_state)
    yield from _check_info("server_update", info, needs_loss=False)
    yield from _check_personal(bench, state, memory, key)


def _check_personal(bench: Bench, state: Any, memory: Any, key: Any) -> Iterator[Problem]:
    algorithm, task = bench.algorithm, bench.task(bench.new_client)
    start = _trace_shapes("personal_start", algorithm, lambda a, *args: a.personal_start(*args),
                    state, memory, task, key)  # fmt: skip
    after = _trace_shapes("personal_step", algorithm, lambda a, *args: a.personal_step(*args),
                    start, task, key)  # fmt: skip
    yield from _check_unchanged("personal_step", "the client's model", start, after)
    model = _trace_shapes(
        "personal_model", algorithm, lambda a, *args: a.personal_model(*args), start
    )
    yield from _check_like_params("personal_model", model, bench.params)


def _check_models(algorithm: Algorithm, state: Any, params: Any) -> Iterator[Problem]:
    model = _trace_shapes("model", algorithm, lambda a, *args: a.model(*args), state)
    yield from _check_like_params("model", model, params)
    other = _trace_shapes(
        "with_model", algorithm, lambda a, *args: a.with_model(*args), state, params
    )
    yield from _check_unchanged("with_model", "the state", state, other)
    if algorithm.measures_gradient_norm:
        point = _trace_shapes(
            "gradient_norm_point", algorithm, lambda a, *args: a.gradient_norm_point(*args), state
        )
        if not isinstance(point, GradientNormPoint):
            yield Problem(
                "gradient_norm_point",
                f"returned {_describe_kind(point)}",
                "return a GradientNormPoint",
            )


def _check_traced_options(algorithm: Algorithm) -> Iterator[Problem]:
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


def _check_numbers(algorithm: Algorithm) -> Iterator[Problem]:
    with report_errors_as_problems("gradients_per_update"):
        counts = [algorithm.gradients_per_update(6), algorithm.gradients_per_step]
    for where, count, least in (
        ("gradients_per_update", counts[0], 0),
        ("gradients_per_step", counts[1], 0),
        ("largest_batch", algorithm.largest_batch, 1),
    ):
        if not isinstance(count, int) or count < least:
            yield Problem(where, f"is {count!r}", f"return a whole number of at least {least}")


def _check_storable(where: str, what: str, tree: Any) -> Iterator[Problem]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            yield Problem(
                where,
                f"{what} holds a random key, {name}",
                "use the keys that every method is given: randomness is derived, never stored",
            )


def _check_declared_memory(algorithm: Algorithm, memory: Any) -> Iterator[Problem]:
    holds = bool(jax.tree.leaves(memory))
    if holds != algorithm.needs_memory:
        declaration = "needs_memory: ClassVar[bool] = True" if holds else "needs_memory = False"
        yield Problem(
            "needs_memory",
            f"is {algorithm.needs_memory}, but a client's memory is {'not ' * holds}empty",
            f"write {declaration}",
        )


def _check_reply(reply: Any, sent: Sent) -> Iterator[Problem]:
    if not isinstance(reply, Reply):
        raise CheckStopped(
            Problem(
                "client_update",
                f"replied with {_describe_kind(reply)}",
                "return Reply(update, weight, parts)",
            )
        )
    gap = describe_difference(sent.params, reply.update)
    if gap and jax.tree.leaves(reply.update):
        yield Problem(
            "client_update",
            f"the update does not have the structure of the model that was sent: {gap}",
            "reply with the difference between the client's model and sent.params, or with ()",
        )
    yield from _check_weight("the weight of the update", reply.weight)
    if not isinstance(reply.parts, Mapping):
        raise CheckStopped(
            Problem(
                "client_update",
                f"the parts are {_describe_kind(reply.parts)}",
                "use a dict of Part",
            )
        )
    for name, part in reply.parts.items():
        if not isinstance(part, Part):
            raise CheckStopped(
                Problem(
                    "client_update",
                    f"part {name!r} is {_describe_kind(part)}",
                    "use Part(value, weight)",
                )
            )
        yield from _check_weight(f"the weight of part {name!r}", part.weight)


def _check_weight(what: str, weight: Any) -> Iterator[Problem]:
    if jnp.shape(weight) != () or not jnp.issubdtype(jnp.result_type(weight), jnp.floating):
        yield Problem(
            "client_update",
            f"{what} has shape {jnp.shape(weight)} and type {jnp.result_type(weight)}",
            "use one floating-point number, self.weight_of(task.count)",
        )


def _check_info(where: str, info: Any, *, needs_loss: bool) -> Iterator[Problem]:
    if not isinstance(info, Mapping):
        raise CheckStopped(
            Problem(where, f"the info is {_describe_kind(info)}", "return a dict of scalars")
        )
    if needs_loss and "loss" not in info:
        yield Problem(
            where, "info has no loss", 'add {"loss": the mean training loss the client saw}'
        )
    for name, value in info.items():
        if jnp.shape(value) != ():
            yield Problem(
                where, f"info[{name!r}] has shape {jnp.shape(value)}", "record scalars only"
            )


def _check_unchanged(where: str, what: str, before: Any, after: Any) -> Iterator[Problem]:
    gap = describe_difference(before, after)
    if gap:
        yield Problem(where, f"{what} changes from round to round: {gap}", KEEP_STRUCTURE)


def _check_like_params(where: str, model: Any, params: Any) -> Iterator[Problem]:
    gap = describe_difference(params, model)
    if gap:
        yield Problem(
            where,
            f"the result does not have the structure of the model's parameters: {gap}",
            "return parameters of the form that init received",
        )


def _trace_shapes(where: str, algorithm: Algorithm, method: Any, *args: Any) -> Any:
    """Return the shapes of the method's result; trace step sizes as the engines do."""
    with report_errors_as_problems(where):
        return jax.eval_shape(method, algorithm, *args)


def _require_tuple(where: str, names: str, count: int, result: Any) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != count or hasattr(result, "_fields"):
        raise CheckStopped(
            Problem(where, f"returned {_describe_kind(result)}", f"return a tuple ({names})")
        )
    return result


def _describe_kind(value: Any) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"a tuple of {len(value)}"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"an array of shape {value.shape}"
    return f"a {type(value).__name__}"
