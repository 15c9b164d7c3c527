"""``headstart``: the commands, and how errors reach the user."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from headstart.cli import (
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
from headstart.errors import DataWarning, HeadstartError, ProcessLostError
from headstart.extensions import search_modules_in
from headstart.machine import use_all_cores, use_compilation_cache

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
    """Entry point: 0 on success, 2 on bad input, 1 on failure; never a traceback for a mistake."""
    use_compilation_cache()
    use_all_cores()
    if sys.argv[1:2] != ["federate"]:  # there a server's word must not import a site's own files
        search_modules_in(Path())
    warnings.showwarning = _show_warning
    try:
        app()
    except HeadstartError as error:
        print(f"headstart: {error}", file=sys.stderr)
        if isinstance(error, ProcessLostError):
            # On an ordinary exit JAX would wait minutes for the lost process to say goodbye.
            sys.stderr.flush()
            os._exit(error.exit_code)
        sys.exit(error.exit_code)
    except (MemoryError, OverflowError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = (str(error) or "out of memory").splitlines()[0]
        print(f"headstart: too large for this machine: {reason}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("headstart: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """One line on standard error; what is not ours looks as Python shows it."""
    if issubclass(category, DataWarning):
        print(f"headstart: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)


if __name__ == "__main__":
    main()
