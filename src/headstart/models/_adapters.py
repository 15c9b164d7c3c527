"""Models from other libraries' networks: plain functions, Equinox modules, Flax modules.

Every adapter checks the parameters and the shape of the output once, in ``init``. A network that
cannot be trained is refused there in one line, not deep inside a compiled program.
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
    """A model made of two functions; equal if both functions are the same objects."""

    initialise: Callable[..., Tree]
    forward: Callable[[Tree, Array], Array]

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Return the parameters that ``initialise`` gives, checked."""
        return _check_parameters(
            self, _call(self.initialise, key, examples), examples, "from_functions"
        )

    def apply(self, params: Tree, x: Array) -> Array:
        """Return the outputs that ``forward`` gives."""
        return self.forward(params, x)


def from_functions(
    init: Callable[..., Tree], apply: Callable[[Tree, Array], Array]
) -> FromFunctions:
    """Make a model of ``init(key, examples)`` or ``init(key)`` and ``apply(params, batch)``.

    Parameters are any tree of floating-point arrays. ``examples`` gives the shape of one example,
    the number of classes and the vocabulary. Define both functions once, at the top of a module:
    a function that is defined again makes a different model, which is compiled again.

    >>> import jax.numpy as jnp
    >>> def init(key, examples):
    ...     return jnp.zeros((examples.shape[0], examples.outputs))
    >>> def apply(weights, x):
    ...     return x @ weights
    >>> model = from_functions(init, apply)
    """
    return FromFunctions(_require_function(init, "init"), _require_function(apply, "apply"))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Static:
    """A value that is not trained: part of the tree's structure, not a leaf."""

    value: Any


@dataclass(frozen=True)
class FromEquinox:
    """A model of Equinox modules. Parameters are the module, with non-arrays wrapped in Static."""

    make: Callable[..., eqx.Module]
    batched: bool = False

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Make the module for these examples and check it; its leaves are the trained arrays."""
        module = _call(self.make, key, examples)
        _require_stateless(module)
        return _check_parameters(self, jax.tree.map(_freeze, module), examples, "from_equinox")

    def apply(self, params: Tree, x: Array) -> Array:
        """Call the module on each example, or on the whole batch if it is ``batched``."""
        module: Any = jax.tree.map(_thaw, params, is_leaf=lambda v: isinstance(v, Static))
        return module(x) if self.batched else jax.vmap(module)(x)


def from_equinox(make: Callable[..., eqx.Module], *, batched: bool = False) -> FromEquinox:
    """Make a model of ``make(key, examples)`` or ``make(key)``, which returns an Equinox module.

    The module takes one example, and the model vmaps it; with ``batched`` it takes a whole batch.
    Floating-point arrays are trained; functions, numbers and other values are fixed. Modules with
    state (batch normalisation) are refused.

    >>> import equinox as eqx
    >>> def make(key, examples):
    ...     return eqx.nn.MLP(examples.shape[0], examples.outputs, width_size=16, depth=1, key=key)
    >>> model = from_equinox(make)
    """
    return FromEquinox(_require_function(make, "make"), batched)


@dataclass(frozen=True)
class FromLinen:
    """A model of a flax.linen module. Parameters are its ``params`` collection."""

    module: linen.Module

    def __hash__(self) -> int:
        """Hash the type only: a field of the module may be a list, which has no hash."""
        return hash(type(self.module))

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Return the module's parameters for these examples, checked."""
        variables = self.module.init(key, _make_zero_batch(examples))
        _require_only_parameters([name for name in variables if name != "params"])
        return _check_parameters(self, variables.get("params", {}), examples, "from_flax")

    def apply(self, params: Tree, x: Array) -> Array:
        """Return the module's outputs for a batch."""
        return self.module.apply({"params": params}, x)  # type: ignore[return-value]


@dataclass(frozen=True)
class FromNNX:
    """A model of flax.nnx modules. Parameters are the module's, next to its graph."""

    make: Callable[..., Any]

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Make the module for these examples and return its parameters, checked."""
        from flax import nnx

        module = _call(self.make, nnx.Rngs(key), examples)
        graph, params, *others = nnx.split(module, nnx.Param, ...)
        _require_only_parameters([type(v).__name__ for _, v in nnx.to_flat_state(others[0])])
        tree = {"graph": Static(graph), "params": nnx.to_pure_dict(params)}
        return _check_parameters(self, tree, examples, "from_flax")

    def apply(self, params: Tree, x: Array) -> Array:
        """Return the module's outputs for a batch."""
        from flax import nnx

        return nnx.merge(params["graph"].value, nnx.State(params["params"]))(x)


def from_flax(module: Any) -> FromLinen | FromNNX:
    """Make a model of a flax.linen module, or of a function that makes a flax.nnx module.

    The function is ``make(rngs, examples)`` or ``make(rngs)``, because an existing nnx module has
    its own seed. Both kinds take batches. Variables other than parameters (batch statistics,
    dropout's counters) are refused.

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
            f"module, not {_describe_value(module)}; use from_flax(lambda rngs: Net(rngs=rngs))"
        )
    return FromNNX(_require_function(module, "make"))


def _call(function: Callable[..., Any], key: Any, examples: Examples) -> Any:
    """Call a function of (key, examples) or of (key) alone."""
    try:
        after_key = _list_positional(function)[1:]
    except ValueError:  # some built-in functions have no signature
        return function(key, examples)
    takes_examples = any(p.default is p.empty or p.name == "examples" for p in after_key)
    return function(key, examples) if takes_examples else function(key)


def _list_positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the positional parameters of a function, or of the ``__init__`` of a class."""
    is_class = inspect.isclass(function)  # a metaclass may hide the signature of its classes
    signature = inspect.signature(function.__init__ if is_class else function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in signature.parameters.values() if p.kind in kinds]
    return parameters[1:] if is_class else parameters


def _check_parameters(model: Model, params: Tree, examples: Examples, where: str) -> Tree:
    """Return the parameters as arrays; refuse untrainable ones and outputs of the wrong shape."""
    if not jax.tree.leaves(params):
        raise ConfigError(f"{where}: the model has no parameters, so there is nothing to train")
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        if not _is_trainable(leaf):
            raise ConfigError(
                f"{where}: parameter {name} is {_describe_value(leaf)}; only arrays of "
                "floating-point numbers can be trained, keep others out of the parameters"
            )
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), params)
    _require_logits(model, params, examples, where)
    return params


def _is_trainable(leaf: Any) -> bool:
    is_float_array = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)
    return is_float_array or isinstance(leaf, float)


def _require_logits(model: Model, params: Tree, examples: Examples, where: str) -> None:
    x = _make_zero_batch(examples)
    shape = jax.eval_shape(model.apply, params, x).shape
    if len(shape) < 2 or shape[0] != len(x) or shape[-1] != examples.outputs:
        raise ConfigError(
            f"{where}: {len(x)} examples of shape {tuple(examples.shape)} give an output of shape "
            f"{shape}; it must be ({len(x)}, {examples.outputs}), or with sequences "
            f"({len(x)}, length, {examples.outputs})"
        )


def _make_zero_batch(examples: Examples) -> Array:
    """Return a small batch of zeros as the model sees it: tokens as whole numbers."""
    if examples.vocabulary == 0:
        kind = jnp.result_type(float)
    else:
        kind = jnp.dtype("uint8" if examples.vocabulary <= 256 else "int32")
    return jnp.zeros((2, *examples.shape), kind)


def _require_hashable(value: Any, name: str) -> Any:
    """Return the value; refuse it if it has no hash, which compiled programs are shared by."""
    try:
        hash(value)
    except TypeError:
        raise ConfigError(
            f"{name} must be hashable, but is {_describe_value(value)}; use a plain function, "
            "and tuples instead of lists or arrays in fields"
        ) from None
    return value


def _require_function(value: Any, name: str) -> Any:
    if not callable(value):
        raise ConfigError(f"{name} must be a function, not {_describe_value(value)}")
    return _require_hashable(value, name)


def _freeze(leaf: Any) -> Any:
    """Return a floating-point array unchanged; wrap any other value in Static."""
    if eqx.is_inexact_array(leaf):
        return leaf
    return Static(
        _require_hashable(leaf, "from_equinox: what the module holds besides its parameters")
    )


def _thaw(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _require_stateless(module: Any) -> None:
    """Refuse modules with state, which averaging parameters would lose."""
    kinds = (eqx.nn.State, eqx.nn.StateIndex)
    leaves = jax.tree.leaves(module, is_leaf=lambda v: isinstance(v, kinds))
    if any(isinstance(leaf, kinds) for leaf in leaves):
        raise ConfigError(
            "from_equinox: the module keeps state (as eqx.nn.BatchNorm does), which a federated "
            "average of parameters cannot carry; use eqx.nn.LayerNorm or eqx.nn.GroupNorm"
        )
    if not isinstance(module, eqx.Module):
        raise ConfigError(
            f"from_equinox: make gave {_describe_value(module)}, not an Equinox module"
        )


def _require_only_parameters(others: list[str]) -> None:
    if others:
        raise ConfigError(
            f"from_flax: the module keeps {', '.join(sorted(set(others)))} besides its parameters, "
            "which a federated average of parameters cannot carry; use LayerNorm or GroupNorm "
            "instead of BatchNorm, and no dropout"
        )


def _describe_value(value: Any) -> str:
    if eqx.is_array(value):
        return f"an array of {value.dtype} and shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
