"""Other people's networks as models: plain functions, Equinox modules, Flax modules.

Every adapter looks at the parameters and at the shape of the output once, in ``init``, so that
what cannot be trained is refused there with one clear line and not deep inside a compiled program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from headstart.errors import ConfigError
from headstart.models._model import Examples, Model
from headstart.trees import Tree, leaf_names

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class FromFunctions:
    """A pair of functions as a model; equal when both functions are the same objects."""

    initialise: Callable[..., Tree]
    forward: Callable[[Tree, Array], Array]

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """What the first function gives, checked."""
        return _checked(self, _call(self.initialise, key, examples), examples, "from_functions")

    def apply(self, params: Tree, x: Array) -> Array:
        """What the second function gives."""
        return self.forward(params, x)


def from_functions(
    init: Callable[..., Tree], apply: Callable[[Tree, Array], Array]
) -> FromFunctions:
    """A model from ``init(key, examples)`` or ``init(key)``, and ``apply(params, x)`` on batches.

    Parameters are any tree of floating-point arrays. ``examples`` tells the shape of one example,
    the number of classes and the vocabulary. Define both functions once, at the top of a module:
    a function defined again is another model and is compiled again.

    >>> import jax.numpy as jnp
    >>> def init(key, examples):
    ...     return jnp.zeros((examples.shape[0], examples.outputs))
    >>> def apply(weights, x):
    ...     return x @ weights
    >>> model = from_functions(init, apply)
    """
    return FromFunctions(_function(init, "init"), _function(apply, "apply"))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Static:
    """Something that is not trained, as a part of the tree's structure and not a leaf."""

    value: Any


@dataclass(frozen=True)
class FromEquinox:
    """Equinox modules as a model. Parameters are the module, non-arrays wrapped in Static."""

    make: Callable[..., eqx.Module]
    batched: bool = False

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """The module made for these examples, checked; its leaves are the trained arrays."""
        module = _call(self.make, key, examples)
        _require_stateless(module)
        return _checked(self, jax.tree.map(_frozen, module), examples, "from_equinox")

    def apply(self, params: Tree, x: Array) -> Array:
        """The module called on each example, or on the batch if it is ``batched``."""
        module: Any = jax.tree.map(_thawed, params, is_leaf=lambda v: isinstance(v, Static))
        return module(x) if self.batched else jax.vmap(module)(x)


def from_equinox(make: Callable[..., eqx.Module], *, batched: bool = False) -> FromEquinox:
    """A model from ``make(key, examples)`` or ``make(key)``, which returns an Equinox module.

    The module is called on one example and vmapped here; with ``batched`` it is called on a whole
    batch. Floating-point arrays are trained; functions, numbers and the like are fixed. Modules
    with state (batch normalisation) are refused.

    >>> import equinox as eqx
    >>> def make(key, examples):
    ...     return eqx.nn.MLP(examples.shape[0], examples.outputs, width_size=16, depth=1, key=key)
    >>> model = from_equinox(make)
    """
    return FromEquinox(_function(make, "make"), batched)


@dataclass(frozen=True)
class FromLinen:
    """A flax.linen module as a model. Parameters are its ``params`` collection."""

    module: linen.Module

    def __hash__(self) -> int:
        """By type: modules compare by their fields, but a list among these has no hash."""
        return hash(type(self.module))

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """The module's parameters for a batch of these examples, checked."""
        variables = self.module.init(key, _blank(examples))
        _require_only_parameters([name for name in variables if name != "params"])
        return _checked(self, variables.get("params", {}), examples, "from_flax")

    def apply(self, params: Tree, x: Array) -> Array:
        """The module's output for a batch."""
        return self.module.apply({"params": params}, x)  # type: ignore[return-value]


@dataclass(frozen=True)
class FromNNX:
    """flax.nnx modules as a model. Parameters are the module's, the graph beside them."""

    make: Callable[..., Any]

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """The parameters of the module made for these examples, checked."""
        from flax import nnx

        module = _call(self.make, nnx.Rngs(key), examples)
        graph, params, *others = nnx.split(module, nnx.Param, ...)
        _require_only_parameters([type(v).__name__ for _, v in nnx.to_flat_state(others[0])])
        tree = {"graph": Static(graph), "params": nnx.to_pure_dict(params)}
        return _checked(self, tree, examples, "from_flax")

    def apply(self, params: Tree, x: Array) -> Array:
        """The module's output for a batch."""
        from flax import nnx

        return nnx.merge(params["graph"].value, nnx.State(params["params"]))(x)


def from_flax(module: Any) -> FromLinen | FromNNX:
    """A model from a flax.linen module, or from a function that makes a flax.nnx module.

    The function is ``make(rngs, examples)`` or ``make(rngs)``: an nnx module already made would
    bring its own seed. Both kinds are called on batches. Variables beside the parameters (batch
    statistics, dropout's counters) are refused.

    >>> from flax import linen
    >>> model = from_flax(linen.Sequential([linen.Dense(16), linen.elu, linen.Dense(10)]))
    """
    try:
        from flax import linen, nnx
    except ImportError:
        raise ConfigError("from_flax needs flax; install it with headstart[flax]") from None
    if isinstance(module, linen.Module):
        return FromLinen(module)
    if isinstance(module, nnx.Module) or not callable(module):
        raise ConfigError(
            f"from_flax takes a flax.linen module or a function of rngs that makes a flax.nnx "
            f"module, not {_described(module)}; use from_flax(lambda rngs: Net(rngs=rngs))"
        )
    return FromNNX(_function(module, "make"))


def _call(function: Callable[..., Any], key: Any, examples: Examples) -> Any:
    """The function of (key, examples) or of (key) alone, whichever it is."""
    try:
        after_key = _positional(function)[1:]
    except ValueError:  # some built-in functions do not tell
        return function(key, examples)
    wanted = any(p.default is p.empty or p.name == "examples" for p in after_key)
    return function(key, examples) if wanted else function(key)


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that may be given by position; for a class, those of its ``__init__``."""
    made = inspect.isclass(function)  # a metaclass may hide what its classes take
    signature = inspect.signature(function.__init__ if made else function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in signature.parameters.values() if p.kind in kinds]
    return found[1:] if made else found


def _checked(model: Model, params: Tree, examples: Examples, where: str) -> Tree:
    """The parameters as arrays, if all can be trained and a batch gives one logit per class."""
    if not jax.tree.leaves(params):
        raise ConfigError(f"{where}: the model has no parameters, so there is nothing to train")
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        if not _trainable(leaf):
            raise ConfigError(
                f"{where}: parameter {name} is {_described(leaf)}; only arrays of floating-point "
                "numbers can be trained, keep others out of the parameters"
            )
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), params)
    _require_logits(model, params, examples, where)
    return params


def _trainable(leaf: Any) -> bool:
    numbers = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)
    return numbers or isinstance(leaf, float)


def _require_logits(model: Model, params: Tree, examples: Examples, where: str) -> None:
    x = _blank(examples)
    shape = jax.eval_shape(model.apply, params, x).shape
    if len(shape) < 2 or shape[0] != len(x) or shape[-1] != examples.outputs:
        raise ConfigError(
            f"{where}: {len(x)} examples of shape {tuple(examples.shape)} give an output of shape "
            f"{shape}; it must be ({len(x)}, {examples.outputs}), or with sequences "
            f"({len(x)}, length, {examples.outputs})"
        )


def _blank(examples: Examples) -> Array:
    """A small batch of zeros as the model will see it: tokens as whole numbers."""
    if examples.vocabulary == 0:
        kind = jnp.result_type(float)
    else:
        kind = jnp.dtype("uint8" if examples.vocabulary <= 256 else "int32")
    return jnp.zeros((2, *examples.shape), kind)


def _hashable(thing: Any, name: str) -> Any:
    """The thing, if equal models can share one compiled program by it."""
    try:
        hash(thing)
    except TypeError:
        raise ConfigError(
            f"{name} must be hashable, but is {_described(thing)}; use a plain function, "
            "and tuples instead of lists or arrays in fields"
        ) from None
    return thing


def _function(thing: Any, name: str) -> Any:
    if not callable(thing):
        raise ConfigError(f"{name} must be a function, not {_described(thing)}")
    return _hashable(thing, name)


def _frozen(leaf: Any) -> Any:
    """Floating-point arrays as they are, all else as structure."""
    if eqx.is_inexact_array(leaf):
        return leaf
    return Static(_hashable(leaf, "from_equinox: what the module holds beside its parameters"))


def _thawed(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _require_stateless(module: Any) -> None:
    """Refuse modules whose calls change something: averaging parameters would lose it."""
    kinds = (eqx.nn.State, eqx.nn.StateIndex)
    leaves = jax.tree.leaves(module, is_leaf=lambda v: isinstance(v, kinds))
    if any(isinstance(leaf, kinds) for leaf in leaves):
        raise ConfigError(
            "from_equinox: the module keeps state (as eqx.nn.BatchNorm does), which a federated "
            "average of parameters cannot carry; use eqx.nn.LayerNorm or eqx.nn.GroupNorm"
        )
    if not isinstance(module, eqx.Module):
        raise ConfigError(f"from_equinox: make gave {_described(module)}, not an Equinox module")


def _require_only_parameters(others: list[str]) -> None:
    if others:
        raise ConfigError(
            f"from_flax: the module keeps {', '.join(sorted(set(others)))} beside its parameters, "
            "which a federated average of parameters cannot carry; use LayerNorm or GroupNorm "
            "instead of BatchNorm, and no dropout"
        )


def _described(value: Any) -> str:
    if eqx.is_array(value):
        return f"an array of {value.dtype} and shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
