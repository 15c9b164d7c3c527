"""``headstart``: the commands, and how errors are shown to the user."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import typer

from headstart._cli import (
    compare,
    data,
    diagnose,
    federate,
    personalize,
    plan,
    predict,
    report,
    reproduce,
    run,
)
from headstart._extensions import search_modules_in
from headstart.errors import DataWarning, HeadstartError
from headstart.machine import shares_run, use_all_cores, use_compilation_cache

app = typer.Typer(
    name="headstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Personalised federated learning by meta-learning. Start with: headstart run",
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("personalize")(personalize.personalize)
app.command("predict")(predict.predict)
app.command("diagnose")(diagnose.diagnose)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(federate.app, name="federate")


def main() -> None:
    """Run the command line: exit with 0 on success, 2 on bad input, 1 on failure.

    A mistake of the user never shows a traceback.
    """
    if sys.argv[1:] not in ([], ["--help"]):  # help need not wait for JAX
        use_compilation_cache()
        use_all_cores()
    if sys.argv[1:2] != ["federate"]:  # a server must not make a site import its local files
        search_modules_in(Path())
    warnings.showwarning = _show_warning
    try:
        app()
    except HeadstartError as error:
        print(f"headstart: {error}", file=sys.stderr)
        _exit(error.exit_code)
    except KeyboardInterrupt:
        print("headstart: interrupted", file=sys.stderr)
        _exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _exit(1)
    except SystemExit as end:
        if end.code not in (None, 0):
            _exit(end.code)
        raise
    except Exception as error:
        if _too_large(error):
            reason = (str(error) or "out of memory").splitlines()[0]
            print(f"headstart: too large for this machine: {reason}", file=sys.stderr)
        elif shares_run():
            traceback.print_exc()
        else:
            raise
        _exit(1)


def _too_large(error: Exception) -> bool:
    exhausted = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    return exhausted or isinstance(error, MemoryError | OverflowError)


def _exit(code: int | str | None) -> NoReturn:
    """Exit after a failure, immediately if other processes share the run.

    On an ordinary exit JAX waits minutes for every process to sign off. After a failure the others
    are gone, or are waiting for this one.
    """
    if shares_run():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print our warnings as one line on standard error, and others as Python does."""
    if issubclass(category, DataWarning):
        print(f"headstart: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)
