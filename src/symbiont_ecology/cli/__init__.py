"""The command line, one function per command: ``symbiont --help``.

What a command needs it imports when it is called, so that help answers before torch could be
loaded. Data goes to stdout, everything else to stderr where the two could mix. Exit codes: 0 fine,
1 a run failed, 2 usage or config, 3 a missing package, 4 a calibration that is sick, 130
interrupted, 141 nobody read on.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from symbiont_ecology import __version__
from symbiont_ecology.base.errors import INTERRUPTED, EcologyError, EcologyWarning, RunError
from symbiont_ecology.base.extension import Command, commands
from symbiont_ecology.base.fence import blamed

UNREAD = 141
"""Exit code where whoever read the output went away, as in ``symbiont list | head``."""
MAX_MESSAGE_CHARS = 500
"""Characters of an error or a warning; a longer one is cut in its middle."""
_OURS = "symbiont_ecology.cli."
_COMMANDS = {
    "run": Command(f"{_OURS}run:run", panel="Run"),
    "resume": Command(f"{_OURS}run:resume_command", panel="Run"),
    "evaluate": Command(f"{_OURS}evaluate:evaluate", panel="Use"),
    "infer": Command(f"{_OURS}evaluate:infer", panel="Use"),
    "export": Command(f"{_OURS}evaluate:export", panel="Use"),
    "verify": Command(f"{_OURS}verify:verify", panel="Use"),
    "look": Command(f"{_OURS}look:look", panel="Look"),
    "list": Command(f"{_OURS}explain:list_names", panel="Look"),
    "explain": Command(f"{_OURS}explain:explain", panel="Look"),
    "doctor": Command(f"{_OURS}look:doctor", panel="Look"),
}
app = typer.Typer(
    name="symbiont",
    help="Populations of LoRA adapters that live, learn, breed and die on a frozen language model.",
    epilog="Start with: symbiont demo. Version: symbiont --version",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for _name, _entry in {**_COMMANDS, **commands()}.items():
    _added = _entry.load()
    if isinstance(_added, typer.Typer):
        app.add_typer(_added, name=_name, rich_help_panel=_entry.panel)
    else:
        _settings = {"ignore_unknown_options": _entry.passes_unknown_options}
        app.command(_name, rich_help_panel=_entry.panel, context_settings=_settings)(_added)


def main() -> None:
    """Run the command that was typed: a warning, and an error of ours or about a file, is one line;
    any other error keeps its traceback."""
    warnings.simplefilter("always", EcologyWarning)
    warnings.formatwarning = lambda message, *_: f"warning: {_one_line(message)}\n"
    if sys.argv[1:] == ["--version"]:
        print(f"symbiont {__version__}")
        return
    try:
        with blamed(RunError):
            app()
    except KeyboardInterrupt:  # before typer has built its commands; from then on it says so itself
        sys.exit(INTERRUPTED)
    except EcologyError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        fault = f"cannot use {error.filename}: {error.strerror}: choose another place"
        print(f"error: {_one_line(fault)}", file=sys.stderr)
        sys.exit(RunError.exit_code)
    except SystemExit as end:  # typer's own, also where it caught an error to end quietly
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(UNREAD)
        raise


def _one_line(message: object) -> str:
    """Return a message in one line. It may quote data, whose control characters must not reach the
    terminal."""
    from symbiont_ecology.base.transcripts import escaped

    text = escaped(" ".join(str(message).split()))
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    return f"{text[: MAX_MESSAGE_CHARS * 2 // 3]} […] {text[-MAX_MESSAGE_CHARS // 3 :]}"
