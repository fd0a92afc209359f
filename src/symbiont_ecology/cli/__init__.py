"""The command line, one function per command: ``symbiont --help``.

What a command needs it imports when it is called, so that help answers before torch could be
loaded. Data goes to stdout, everything else to stderr where the two could mix. Exit codes: 0 fine,
1 a run failed, 2 usage or config, 3 a missing package, 4 a calibration that is sick, 130
interrupted, or waiting for people, 141 nobody read on.
"""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from symbiont_ecology import __version__
from symbiont_ecology.cli.calibrate import calibrate
from symbiont_ecology.cli.controls import remember_interrupts
from symbiont_ecology.cli.data import data
from symbiont_ecology.cli.datasets import datasets
from symbiont_ecology.cli.deploy import export, infer, phylogeny
from symbiont_ecology.cli.doctor import doctor
from symbiont_ecology.cli.evaluate import evaluate, transfer
from symbiont_ecology.cli.evolve import evolve
from symbiont_ecology.cli.evoscope import evoscope
from symbiont_ecology.cli.explain import explain, list_names
from symbiont_ecology.cli.fetch import fetch_command
from symbiont_ecology.cli.host import host
from symbiont_ecology.cli.judge import judge_command
from symbiont_ecology.cli.learn_from import learn_from
from symbiont_ecology.cli.lm_eval import lm_eval
from symbiont_ecology.cli.look import look_command
from symbiont_ecology.cli.machine import bench
from symbiont_ecology.cli.options import at_home, unfolded
from symbiont_ecology.cli.publish import publish
from symbiont_ecology.cli.report import diff, report_command
from symbiont_ecology.cli.run import resume_command, run
from symbiont_ecology.cli.runs import runs
from symbiont_ecology.cli.serve import key_command, serve
from symbiont_ecology.cli.show import show
from symbiont_ecology.cli.verify import verify
from symbiont_ecology.errors import (
    INTERRUPTED,
    ConfigError,
    EcologyError,
    EcologyWarning,
    RunError,
    WaitingError,
)
from symbiont_ecology.extension import commands
from symbiont_ecology.fence import blamed

app = typer.Typer(
    name="symbiont",
    help="Populations of LoRA adapters that live, learn, breed and die on a frozen language model.",
    epilog="Start with: symbiont demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
UNREAD = 141
"""Exit code where whoever read the output went away, as in ``symbiont list | head``."""
LONGEST_MESSAGE = 500
"""Characters of an error or a warning; a longer one is cut in its middle."""
_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "resume": resume_command,
    "judge": judge_command,
    "learn-from": learn_from,
    "serve": serve,
    "key": key_command,
    "look": look_command,
    "calibrate": calibrate,
    "data": data,
    "fetch": fetch_command,
    "evaluate": evaluate,
    "transfer": transfer,
    "evolve": evolve,
    "runs": runs,
    "verify": verify,
    "infer": infer,
    "export": export,
    "publish": publish,
    "show": show,
    "report": report_command,
    "evoscope": evoscope,
    "diff": diff,
    "phylogeny": phylogeny,
    "list": list_names,
    "explain": explain,
    "bench": bench,
    "doctor": doctor,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
app.command("lm-eval", context_settings={"ignore_unknown_options": True})(lm_eval)
app.add_typer(host, name="host")
app.add_typer(datasets, name="datasets")
_groups = [host, datasets]
for _name, _entry in commands().items():
    _added = _entry.load()
    if isinstance(_added, typer.Typer):
        app.add_typer(_added, name=_name, rich_help_panel=_entry.panel)
        _groups.append(_added)
    else:
        _settings = {"ignore_unknown_options": True} if _entry.passes_unknown_options else None
        app.command(_name, rich_help_panel=_entry.panel, context_settings=_settings)(_added)
for _known in (app, *_groups):
    for _typed in _known.registered_commands:  # line ends of a docstring are none of the help
        _typed.help = unfolded((_typed.callback and _typed.callback.__doc__) or "")


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"symbiont {__version__}")
        raise typer.Exit


@app.callback()
def _before_commands(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """What comes before the name of a command; its help is that of the whole."""


def main() -> None:
    """Entry point: an error or warning of ours is one line, any other error keeps its traceback."""
    warnings.simplefilter("always", EcologyWarning)
    default_format = warnings.formatwarning

    def one_line(message: Warning | str, category: type[Warning], *place: Any) -> str:
        """A warning of ours without the place in the code."""
        if issubclass(category, EcologyWarning):
            return f"warning: {_one_line(message)}\n"
        return default_format(message, category, *place)

    warnings.formatwarning = one_line  # type: ignore[assignment]
    remember_interrupts()
    sys.argv[1:] = map(at_home, sys.argv[1:])
    try:
        with blamed(RunError):
            app()
    except KeyboardInterrupt:  # before typer has built its commands; from then on it says so itself
        sys.exit(INTERRUPTED)
    except WaitingError as waiting:
        print(_one_line(waiting), file=sys.stderr)
        sys.exit(waiting.exit_code)
    except EcologyError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        name = f"{error.filename or ''!s}"
        print(f"error: {_one_line(f'expected a shorter name, got {name}')}", file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    except SystemExit as end:  # typer's own, also where it caught an error to end quietly
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(UNREAD)
        raise


def _one_line(message: object) -> str:
    """A message in one line. It may quote data, whose control characters must not reach the
    terminal."""
    from symbiont_ecology.transcripts import escaped

    text = escaped(" ".join(str(message).split()))
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[: LONGEST_MESSAGE * 2 // 3]} […] {text[-LONGEST_MESSAGE // 3 :]}"
