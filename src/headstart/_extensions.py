"""Find algorithms, models and other components by name, inside and outside the package.

A name in an experiment file is looked up in this order:

    "fedavg"                    built in
    "fedprox"                   an entry point of an installed package
    "package.module:FedProx"    an object in a module that can be imported

Entry points have one group per kind (:data:`GROUPS`). They are read only for a name that is not
built in, and loaded only when they are named, so importing Headstart does not wait for them.

Python's own search path decides which modules can be imported. The command line appends the
current folder to it (:func:`search_modules_in`), and only if a named module is not found elsewhere:
a file in that folder never replaces an installed module. Nothing is ever imported from the folder
of a run or of a model file (:func:`forbid_imports_from`, :func:`refuse_imports_from`): a model file
from a stranger must not be able to contain the code that it names.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Requirement = Callable[[Any], str]
"""Returns what is wrong with an object, as words to follow its name; empty if nothing is."""

GROUPS = {
    "algorithm": "headstart.algorithms",
    "model": "headstart.models",
    "objective": "headstart.objectives",
    "source": "headstart.sources",
    "aggregation step": "headstart.aggregation",
    "aggregation rule": "headstart.rules",
}
"""The group of entry points for each kind of component."""

PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
LONGEST_REASON = 200

_searched: ContextVar[tuple[Path, ...]] = ContextVar("_searched", default=())
_forbidden: ContextVar[tuple[Path, ...]] = ContextVar("_forbidden", default=())


def find_extension(
    kind: str, name: str, builtin: Mapping[str, T], where: str, requirement: Requirement
) -> T:
    """Return the component of this name; ``where`` is the option that names it.

    >>> from headstart.algorithms import ALGORITHMS, Algorithm
    >>> fits = require_subclass(Algorithm)
    >>> find_extension("algorithm", "fedavg", ALGORITHMS, "algorithm.name", fits).__name__
    'FedAvg'
    """
    if name in builtin:
        return builtin[name]
    if ":" in name:
        component = load_object(name, where)
    else:
        component = _load(_entry_point(kind, name, builtin, where).value, f"{where}={name!r}")
    problem = requirement(component)
    if problem:
        raise ConfigError(f"{where}={name!r} {problem}")
    return component


def collect_builtin(package: str, requirement: Requirement) -> dict[str, Any]:
    """Return the named classes that the modules of a package define, sorted by name.

    A class counts if it meets the requirement and sets its own ``name``. So a new component of the
    package is a new file.
    """
    collected: dict[str, Any] = {}
    for info in pkgutil.iter_modules(sys.modules[package].__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for thing in vars(module).values():
            own = inspect.isclass(thing) and thing.__module__ == module.__name__
            name = thing.__dict__.get("name") if own else None
            if isinstance(name, str) and not requirement(thing):
                collected[name] = thing
    return dict(sorted(collected.items()))


def available_names(kind: str, builtin: Mapping[str, Any]) -> list[str]:
    """List every name that needs no module path: built in, then entry points."""
    offered = {point.name for point in _entry_points(kind)}
    return [*builtin, *sorted(offered - set(builtin))]


def load_object(path: str, where: str) -> Any:
    """Return the object at ``"package.module:name"``; a ConfigError says what is wrong.

    >>> load_object("math:tau", "here")
    6.283185307179586
    """
    return _load(path, f"{where}={path!r}")


def require_subclass(base: type) -> Requirement:
    """Require a class derived from the base, with every abstract method defined."""

    def problem(found: Any) -> str:
        if not (inspect.isclass(found) and issubclass(found, base)):
            return f"is {_describe(found)}; it must be a class derived from {_full_name(base)}"
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        return f"is abstract: it does not define {', '.join(missing)}" if missing else ""

    return problem


def require_instance(cls: type) -> Requirement:
    """Require an object of the class."""

    def problem(found: Any) -> str:
        fits = isinstance(found, cls)
        return "" if fits else f"is {_describe(found)}; it must be a {_full_name(cls)}"

    return problem


def require_methods(*methods: str) -> Requirement:
    """Require a class, or an object, that has these methods."""

    def problem(found: Any) -> str:
        missing = [name for name in methods if not callable(getattr(found, name, None))]
        if not missing:
            return ""
        lacking = f"method{'s' * (len(missing) > 1)} {' and '.join(missing)}"
        return f"is {_describe(found)} without the {lacking}"

    return problem


def search_modules_in(folder: Path) -> None:
    """Search this folder for modules that experiments name and that are not found elsewhere.

    Users expect this of the current folder, as with uvicorn or gunicorn. A federation does not call
    it: there the module must be installed at the server and at every site.
    """
    _searched.set((folder,))


def forbid_imports_from(folder: Path) -> None:
    """Refuse modules in this folder of a run, or below it, from now on."""
    _forbidden.set((*_forbidden.get(), folder.resolve()))


@contextmanager
def refuse_imports_from(*folders: Path) -> Iterator[None]:
    """Refuse modules in these folders or below them while they are read."""
    token = _forbidden.set((*_forbidden.get(), *(folder.resolve() for folder in folders)))
    try:
        yield
    finally:
        _forbidden.reset(token)


def _entry_points(kind: str) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUPS[kind]))


def _entry_point(kind: str, name: str, builtin: Mapping[str, Any], where: str) -> EntryPoint:
    points = {point.value: point for point in _entry_points(kind) if point.name == name}
    if not points:
        known = available_names(kind, builtin)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"{where}={name!r} is not known; {hint}use one of {', '.join(known)}, or "
            "package.module:Name"
        )
    if len(points) > 1:
        raise ConfigError(
            f"{where}={name!r} is offered by several packages; use one of "
            f"{', '.join(sorted(points))}"
        )
    return next(iter(points.values()))


def _load(path: str, said: str) -> Any:
    """Return the object at a path; ``said`` is the option and its value, for messages."""
    if not PATH.fullmatch(path):
        raise ConfigError(f"{said} is not a module and a name in it; use package.module:Name")
    module_name, _, names = path.partition(":")
    found: Any = _import(module_name, said)
    for name in names.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, _public_names(found), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{said}: {module_name} has no {name}{hint}")
        found = getattr(found, name)
    return found


def _import(name: str, said: str) -> Any:
    """Import a module, parent by parent, so that each is checked before its code runs."""
    parts = name.split(".")
    _search_for(parts[0])
    try:
        for last in range(1, len(parts) + 1):
            part = ".".join(parts[:last])
            if part not in sys.modules:
                _refuse_forbidden(part, said)
            module = importlib.import_module(part)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{said}: module {name} cannot be imported: {_reason(error)}{_advice(error, name)}"
        ) from error
    return module


def _search_for(package: str) -> None:
    """Add the searched folders to Python's path if the package is not found on it."""
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    for folder in _searched.get():
        whole = str(folder.resolve())
        if whole not in sys.path and not _is_forbidden(folder):
            sys.path.append(whole)
            importlib.invalidate_caches()


def _refuse_forbidden(module: str, said: str) -> None:
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.has_location and spec.origin and _is_forbidden(Path(spec.origin)):
        raise ConfigError(
            f"{said}: module {module} lies in the folder of the run or the model file, from which "
            "nothing is imported; if you trust it, install it or move it elsewhere"
        )


def _is_forbidden(path: Path) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in _forbidden.get())


def _reason(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:LONGEST_REASON].rstrip(" :")


def _advice(error: BaseException, name: str) -> str:
    """Return what to do if the named module itself is missing, not one that it imports."""
    if not isinstance(error, ModuleNotFoundError) or f"{name}.".find(f"{error.name}.") != 0:
        return ""
    searched = [folder for folder in _searched.get() if not _is_forbidden(folder)]
    return "; install it" + (", or run in the folder that holds it" if searched else "")


def _public_names(found: Any) -> Sequence[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def _describe(found: Any) -> str:
    if inspect.isclass(found):
        return f"the class {found.__name__}"
    article = "an" if type(found).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(found).__name__}"


def _full_name(cls: type) -> str:
    """Return the name under which a package's index offers the class."""
    public = [part for part in cls.__module__.split(".") if not part.startswith("_")]
    return ".".join([*public, cls.__qualname__])
