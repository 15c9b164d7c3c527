"""``headstart``: the commands, and how errors reach the user."""

from __future__ import annotations

import os
import sys

import typer

from headstart.cli import compare, data, diagnose, personalize, plan, report, reproduce, run
from headstart.errors import HeadstartError, ProcessLostError
from headstart.machine import use_all_cores

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
app.command("diagnose")(diagnose.diagnose)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(data.app, name="data")


def main() -> None:
    """Entry point: 0 on success, 2 on bad input, 1 on failure; never a traceback for a mistake."""
    use_compilation_cache()
    use_all_cores()
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


def use_compilation_cache() -> None:
    """Keep compiled programs between commands, unless the user has said where or that not."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax
    from platformdirs import user_cache_path

    jax.config.update("jax_compilation_cache_dir", str(user_cache_path("headstart") / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


if __name__ == "__main__":
    main()
