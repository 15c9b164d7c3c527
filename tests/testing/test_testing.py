"""Algorithms and models that are wrong in one way each, and what the checks say about them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import subprocess
import sys
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart import models
from headstart.algorithms import Algorithm, FedAvg, PerFedAvg
from headstart.algorithms._averaging import Averaging
from headstart.algorithms._contract import Reply, Sent
from headstart.data import Schema
from headstart.errors import ConfigError
from headstart.testing import (
    ContractError,
    algorithm_problems,
    check_algorithm,
    check_model,
    model_problems,
)
from headstart.testing._problems import describe_difference
from headstart.trees import add

SMALL: dict[str, Any] = {**tiny.COMMON, "local_steps": 2}


class Right(Averaging):
    """FedAvg, to derive wrong ones from; only the tests do that."""

    name: ClassVar[str] = "right"

    @property
    def step_batches(self) -> list[int]:
        return [self.batch_sizes[1]]

    @property
    def gradients_per_direction(self) -> int:
        return 1

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        return jax.value_and_grad(context.task.loss)(params, batches[0])


@final
class GrowingMemory(Right):
    """Remembers more and more."""

    needs_memory: ClassVar[bool] = True

    def init_memory(self, state: Any) -> Any:
        return {"losses": jnp.zeros(1)}

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, _, info = super().client_update(sent, (), task, key)
        return reply, {"losses": jnp.append(memory["losses"], info["loss"])}, info


@final
class UndeclaredMemory(Right):
    """Keeps a number without saying so."""

    def init_memory(self, state: Any) -> Any:
        return jnp.zeros(())


@final
class DeclaredMemory(Right):
    """Says that it keeps something."""

    needs_memory: ClassVar[bool] = True


@final
class DriftingState(Right):
    """Counts rounds in another type."""

    def server_update(self, state: Any, cohort: Any, key: Any) -> Any:
        state, info = super().server_update(state, cohort, key)
        return state._replace(round=state.round * 1.0), info


@final
class StoredKey(Right):
    """Keeps a key in the state."""

    def init(self, params: Any) -> Any:
        return super().init(params)._replace(iterate=jax.random.key(0))


@final
class NoLoss(Right):
    """Reports nothing."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, _ = super().client_update(sent, memory, task, key)
        return reply, memory, {}


@final
class ManyLosses(Right):
    """Reports a vector."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        return reply, memory, {"loss": jnp.stack([info["loss"]] * 2)}


@final
class FlatUpdate(Right):
    """Replies with one long vector."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(reply.update)])
        return reply._replace(update=flat), memory, info


@final
class WideUpdate(Right):
    """Replies with a leaf of another shape."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        return reply._replace(update=jax.tree.map(lambda a: a[None], reply.update)), memory, info


@final
class PlainTuple(Right):
    """Replies with a tuple."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        return tuple(reply), memory, info


@final
class NoInfo(Right):
    """Returns two things."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        return super().client_update(sent, memory, task, key)[:2]


@final
class WeightPerExample(Right):
    """Replies with a vector of weights."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        return reply._replace(weight=jnp.ones(3)), memory, info


@final
class BoastfulWeight(Right):
    """Claims a weight of its own."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        reply, memory, info = super().client_update(sent, memory, task, key)
        return reply._replace(weight=reply.weight * 7), memory, info


@final
class BareModel(Right):
    """Broadcasts a tree."""

    def broadcast(self, state: Any, key: Any) -> Any:
        return state.params


@final
class SameKey(Right):
    """Always draws the same batches."""

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        return super().client_update(sent, memory, task, jax.random.key(0))


@final
class GlobalRandomness(Right):
    """Draws numbers that no key decides."""

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        loss, d = super().direction(params, batches, context)
        return loss, jax.tree.map(lambda leaf: leaf * np.random.default_rng().uniform(), d)


@final
class Curious(Right):
    """Looks at everybody's labels."""

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        everybody = jnp.mean(context.task.examples[1].astype(float))
        loss, d = super().direction(params, batches, context)
        return loss + everybody, d


@final
class CuriousAdaptation(Right):
    """Looks at everybody's labels when it adapts."""

    def personal_step(self, personal: Any, task: Any, key: Any) -> Any:
        everybody = jnp.mean(task.examples[1].astype(float))
        return jax.tree.map(
            lambda leaf: leaf + everybody, super().personal_step(personal, task, key)
        )


@final
class Idle(Right):
    """Does not adapt."""

    def personal_step(self, personal: Any, task: Any, key: Any) -> Any:
        jax.grad(task.loss)(personal, task.batch(key, 2))
        return personal


@final
class GrowingPersonal(Right):
    """Changes what a personal model is."""

    def personal_step(self, personal: Any, task: Any, key: Any) -> Any:
        return super().personal_step(personal, task, key), 1.0


@final
class OwnPersonalize(Right):
    """Takes other steps than the engines do."""

    def personalize(self, state: Any, memory: Any, task: Any, key: Any, steps: Any) -> Any:
        start = super().personalize(state, memory, task, key, steps)
        return jax.tree.map(lambda leaf: leaf * 1.5, start)


@final
class CheapUpdate(Right):
    """Declares half of its gradients."""

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        loss, d = super().direction(params, batches, context)
        return loss, add(d, jax.grad(context.task.loss)(params, batches[0]))


@final
class CheapStep(Right):
    """Adapts by two gradients and declares one."""

    def personal_step(self, personal: Any, task: Any, key: Any) -> Any:
        return super().personal_step(super().personal_step(personal, task, key), task, key)


@final
class CheapProduct(Right):
    """Declares a Hessian-vector product as one gradient."""

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        gradient = jax.grad(lambda w: context.task.loss(w, batches[0]))
        return jnp.zeros(()), jax.jvp(gradient, (params,), (params,))[1]


@final
class Overflowing(Right):
    """Gives infinite updates."""

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        loss, d = super().direction(params, batches, context)
        return loss, jax.tree.map(lambda leaf: leaf / 0.0, d)


@final
class Branching(Right):
    """Decides by a traced number."""

    def server_update(self, state: Any, cohort: Any, key: Any) -> Any:
        if cohort.answered > 1:
            return super().server_update(state, cohort, key)
        return state, {}


@final
class TextOption(Right):
    """Has an option that cannot be traced."""

    style: str = "plain"


@final
class TracedCount(Right):
    """Has a count that should be static."""

    repeats: int = 2


@final
class WrongAnnotation(Right):
    """Has an option of another type than it says."""

    share: int = eqx.field(static=True, default=0.5)


@final
class NeedsOption(Right):
    """Has an option without a default."""

    share: float = eqx.field(kw_only=True)


class NotFinal(Right):
    """May be derived from."""


@final
class Undocumented(Right):
    name: ClassVar[str] = "Not A Name"


CALLS = itertools.count(1)


@final
class CountsCalls(Right):
    """Depends on how often Python has called it."""

    def server_update(self, state: Any, cohort: Any, key: Any) -> Any:
        state, info = super().server_update(state, cohort, key)
        factor = 1 + next(CALLS)
        return state._replace(params=jax.tree.map(lambda a: a * factor, state.params)), info


@final
class KeepsOutside(Right):
    """Keeps a number outside of the state."""

    def server_update(self, state: Any, cohort: Any, key: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        calls = jax.pure_callback(lambda _: np.float32(next(CALLS)), shape, state.round)
        state, info = super().server_update(state, cohort, key)
        return state._replace(params=jax.tree.map(lambda a: a + calls, state.params)), info


@pytest.mark.parametrize(
    "cls, sentence",
    [
        (GrowingMemory, "the client's memory changes from round to round: leaf losses has shape "
         "(2,) instead of (1,); return the same structure"),
        (UndeclaredMemory, "needs_memory: is False, but a client's memory is not empty; write "
         "needs_memory: ClassVar[bool] = True"),
        (DeclaredMemory, "needs_memory: is True, but a client's memory is empty"),
        (DriftingState, "server_update: the state changes from round to round: leaf round has "
         "type float32 instead of int32"),
        (StoredKey, "init: the state holds a random key, iterate; use the keys that every"),
        (NoLoss, "client_update: info has no loss; add"),
        (ManyLosses, "client_update: info['loss'] has shape (2,); record scalars only"),
        (FlatUpdate, "client_update: the update does not have the structure of the model that was "
         "sent"),
        (WideUpdate, "leaf layers.0.weight has shape (1, 4, 4) instead of (4, 4); reply with the "
         "difference between the client's model and sent.params"),
        (PlainTuple, "client_update: replied with a tuple of 3; return Reply("),
        (NoInfo, "client_update: returned a tuple of 2; return a tuple (Reply, memory, info)"),
        (WeightPerExample, "client_update: the weight of the update has shape (3,)"),
        (BoastfulWeight, "client_update: the weight is 7, but weight_of(10) is 1"),
        (BareModel, "broadcast: returned a MLPParams; return Sent(params, extra)"),
        (SameKey, "client_update: another key gives the same reply and memory; draw batches with"),
        (GlobalRandomness, "client_update: two calls with the same arguments differ; take all"),
        (Curious, "client_update: the result changes with the rows of other clients; take"),
        (CuriousAdaptation, "personal_step: the result changes with the rows of other clients"),
        (Idle, "personal_step: adaptation does not change the model of a new client"),
        (GrowingPersonal, "personal_step: the client's model changes from round to round"),
        (OwnPersonalize, "personalize: it differs from personal_start followed by personal_step"),
        (CheapUpdate, "gradients_per_update(6): says 2, but client_update computed 4 (4 gradients"),
        (CheapStep, "gradients_per_step: says 1, but personal_step computed 2"),
        (CheapProduct, "says 2, but client_update computed 4 (0 gradients and 2 Hessian-vector "
         "products, which count 2 each)"),
        (Overflowing, "client_update: reply.update.layers.0.weight is not finite on small"),
        (Branching, "server_update: raised TracerBoolConversionError: Attempted boolean"),
        (Branching, "use jnp.where instead of if"),
        (TextOption, "options: style='plain' is not a number, and JAX cannot trace it; declare it "
         "with style: … = eqx.field(static=True"),
        (TracedCount, "options: repeats=2 is traced, so it cannot decide what is compiled"),
        (WrongAnnotation, "options: they are refused after being written to a file: "
         "ConfigError: algorithm.share=0.5 does not fit"),
        (NotFinal, "class: it is not final; write @final"),
        (Undocumented, "class: it has no docstring"),
        (Undocumented, "name: is 'Not A Name'; set name: ClassVar[str] to lower-case"),
        (CountsCalls, "rounds: the compiled engine and plain loops differ by"),
        (KeepsOutside, "rounds: 4 rounds in pieces of 1, 2, 1 differ from 4 rounds at once, so a "
         "run cannot be resumed; keep everything"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)  # fmt: skip
def test_a_wrong_algorithm_gets_the_right_sentence(cls: Any, sentence: str) -> None:
    found = describe_problems(cls)
    assert any(sentence in line for line in found), found
    assert all("\n" not in line for line in found)


@functools.cache
def describe_problems(cls: Any) -> list[str]:
    return [str(problem) for problem in algorithm_problems(cls(**SMALL))]


def test_what_is_not_an_algorithm_at_all() -> None:
    (problem,) = algorithm_problems(dict)  # type: ignore[arg-type]
    assert str(problem).startswith("class: dict is not an Algorithm; derive it from")
    (problem,) = algorithm_problems(Averaging)
    assert "does not define direction, gradients_per_direction, step_batches" in str(problem)
    (problem,) = algorithm_problems(NeedsOption)
    assert "options: raised TypeError" in str(problem) and "share" in str(problem)


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(ContractError) as caught:
        check_algorithm(Undocumented(**SMALL))
    assert isinstance(caught.value, AssertionError)
    assert len(caught.value.problems) == 2
    assert str(caught.value).splitlines()[0] == "Undocumented does not keep the contract:"
    assert str(caught.value).splitlines()[1].startswith("  1. class: it has no docstring; say")


@final
class AllRows(Right):
    """Uses every row in every step, so that keys change nothing."""

    name: ClassVar[str] = "all-rows"

    def client_update(self, sent: Sent, memory: Any, task: Any, key: Any) -> Any:
        rows = jnp.where(jnp.arange(task.most) < task.count, jnp.arange(task.most), 0)
        batch = task.take(task.start + rows, [task.most])[0]
        loss, d = jax.value_and_grad(task.loss)(sent.params, batch)
        update = jax.tree.map(lambda leaf: -self.local_lr * leaf, d)
        return Reply(update, self.weight_of(task.count)), memory, {"loss": loss}

    def gradients_per_update(self, examples: int) -> int:
        return 1


@final
class Through(Right):
    """MAML by differentiating through a gradient step; also takes a gradient under vmap."""

    name: ClassVar[str] = "through"

    @property
    def gradients_per_direction(self) -> int:
        return 2 + 2 + 3

    def direction(self, params: Any, batches: Any, context: Any) -> Any:
        def adapted(w: Any) -> Any:
            step = jax.grad(context.task.loss)(w, batches[0])
            return context.task.loss(add(w, step, -0.1), batches[0])

        three = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), params)
        several = jax.vmap(lambda w: jax.grad(context.task.loss)(w, batches[0]))(three)
        loss, d = jax.value_and_grad(adapted)(params)
        return loss, add(d, jax.tree.map(lambda leaf: 0.1 * jnp.mean(leaf, 0), several))


def test_right_algorithms_of_unusual_kinds_pass() -> None:
    assert "another key" in str(algorithm_problems(AllRows(**SMALL))[0])
    check_algorithm(AllRows(**SMALL), draws=False)
    check_algorithm(Through(**SMALL))


def test_a_class_is_tried_with_its_defaults() -> None:
    check_algorithm(FedAvg)


def test_it_can_be_tried_on_ones_own_data_and_model() -> None:
    check_algorithm(PerFedAvg(**SMALL), data=tiny.federation(), model=tiny.MODEL)
    (problem,) = algorithm_problems(FedAvg, data=tiny.federation())
    assert "set-up: raised ConfigError: algorithm.batch_size=40 is more than any" in str(problem)


def test_differences_of_trees_are_named() -> None:
    tree = {"a": jnp.zeros(2), "b": (jnp.zeros(()),)}
    assert describe_difference(tree, tree) == ""
    assert describe_difference(tree, {"a": jnp.zeros(2)}) == "leaf b.0 is missing"
    assert describe_difference({}, tree) == "leaf a should not be there"
    assert describe_difference(tree, {**tree, "a": jnp.zeros(2, int)}).endswith(
        "int32 instead of float32"
    )
    assert "its structure is" in describe_difference(tree, {**tree, "b": [jnp.zeros(())]})


@dataclasses.dataclass(frozen=True)
class Linear:
    """A right model, to change in one place."""

    def init(self, key: Any, examples: Any) -> Any:
        return {"w": 0.1 * jax.random.normal(key, (examples.shape[0], examples.outputs))}

    def apply(self, params: Any, x: Any) -> Any:
        return x @ params["w"]


class WithInt(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        return {**super().init(key, examples), "layers": jnp.int32(3)}


class WithNumber(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        return {**super().init(key, examples), "rate": 0.5}


class Empty(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        return {}


class Infinite(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        return {"w": super().init(key, examples)["w"] / 0.0}


class Unseeded(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        shape = (examples.shape[0], examples.outputs)
        return {"w": jnp.asarray(np.random.default_rng().normal(size=shape), jnp.float32)}


class Refusing(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        raise ConfigError("images only")


class Failing(Linear):
    def init(self, key: Any, examples: Any) -> Any:
        raise KeyError("height")


class Transposed(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        return (x @ params["w"]).T


class NotANumber(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        return super().apply(params, x) / 0.0


class BatchNorm(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        outputs = super().apply(params, x)
        return outputs - jnp.mean(outputs, axis=0, keepdims=True)


class PythonBranch(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        outputs = super().apply(params, x)
        return outputs if params["w"][0, 0] > -10 else -outputs


class Noisy(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        noise = np.random.default_rng().normal() if isinstance(x, jax.core.Tracer) else 0.0
        return super().apply(params, x) + noise


class Rounded(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        return jnp.round(super().apply(params, x))


class Root(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        return super().apply(params, x) + jnp.sqrt(jnp.sum(0 * params["w"]))


class Kinked(Linear):
    """|z|^1.5 at zero has a slope but no curvature."""

    def apply(self, params: Any, x: Any) -> Any:
        zero = jnp.sum(params["w"] - jax.lax.stop_gradient(params["w"]))
        return super().apply(params, x) + jnp.maximum(zero, 0.0) ** 1.5


class Unmapped(Linear):
    def apply(self, params: Any, x: Any) -> Any:
        batched = hasattr(params["w"], "batch_dim")
        return super().apply(params, x) + (1.0 if batched else 0.0)


@dataclasses.dataclass(frozen=True)
class Unhashable(Linear):
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1])


@dataclasses.dataclass(frozen=True, eq=False)
class Unequal:
    init, apply = Linear.init, Linear.apply


class NoDataclass:
    init, apply = Linear.init, Linear.apply


class NoApply:
    init = Linear.init


@pytest.mark.parametrize(
    "cls, sentence",
    [
        (WithInt, "init: parameter layers is an array of int32; parameters are arrays of floating"),
        (WithNumber, "init: parameter rate is a float; parameters are arrays"),
        (Empty, "init: it gives no parameters"),
        (Infinite, "init: parameter w is not finite"),
        (Unseeded, "init: equal keys give different parameters; take all randomness from the "
         "key"),
        (Refusing, "init: it refuses data of shape (6,), outputs 3, vocabulary 0: images only; "
         "call check_model(model, schema)"),
        (Failing, "init: raised KeyError: 'height'"),
        (Transposed, "apply: 4 examples of shape (6,) give (3, 4); return an array of shape "
         "(4, 3)"),
        (NotANumber, "apply: outputs of the initial parameters are not finite"),
        (BatchNorm, "apply: the output for an example depends on the others in its batch; use "
         "layer or group"),
        (PythonBranch, "apply under jax.jit: raised TracerBoolConversionError"),
        (Noisy, "apply under jax.jit: the compiled function gives different outputs"),
        (Unmapped, "apply under jax.vmap: several clients' models at once give different "
         "outputs"),
        (Rounded, "gradient: it is zero in every parameter"),
        (Root, "gradient: the gradient in w is not finite; look for square roots"),
        (Kinked, "second derivative: the Hessian-vector product in w is not finite"),
        (Unhashable, "class: the model is not hashable (unhashable type: 'list'); make the model "
         "a frozen dataclass with tuples"),
        (Unequal, "class: two models with equal options are not equal"),
        (NoDataclass, "class: the model is not a dataclass"),
        (NoApply, "apply: is missing"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_wrong_model_gets_the_right_sentence(cls: Any, sentence: str) -> None:
    found = [str(problem) for problem in model_problems(cls())]
    assert any(sentence in line for line in found), found


def test_right_models_pass() -> None:
    check_model(Linear)
    check_model(Linear())
    check_model(models.from_functions(Linear().init, Linear().apply))
    check_model(models.mlp([5]), Schema(shape=(3,), target="number", targets=2))
    check_model(models.cnn([2], hidden=[3]), Schema(shape=(8, 8, 1), classes=10))
    check_model(models.char_lstm(hidden=4), Schema(shape=(5,), classes=9, vocabulary=9))
    with pytest.raises(ContractError, match="WithInt does not keep the contract"):
        check_model(WithInt())


def test_checks_need_no_pytest() -> None:
    program = "import headstart.testing, sys; assert not {'pytest', '_pytest'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_derived_class_of_these_tests_is_right_itself() -> None:
    assert issubclass(Right, Algorithm)
    only = [str(problem) for problem in algorithm_problems(Right(**SMALL))]
    assert only == ["class: it is not final; write @final (from typing) before the class"]
