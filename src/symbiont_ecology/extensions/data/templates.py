"""Templates of task files, in Jinja's sandbox: what a row says, without loops and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.nativetypes import NativeEnvironment
from jinja2.sandbox import SandboxedEnvironment

MAX_CHARS = 100_000
"""Of a text that a template makes."""
METHODS = {
    one.__name__: one for one in (str.strip, str.lower, str.upper, str.capitalize, str.title)
}
"""Methods and filters of templates. None makes a long text of a short one."""
SYNTAX = (
    *(nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.List, nodes.CondExpr),
    *(nodes.Getattr, nodes.Getitem, nodes.Call, nodes.Filter),
)
"""Parts of templates. Loops and arithmetic could take for ever, or fill the memory."""


class _Values(SandboxedEnvironment, NativeEnvironment):
    """Templates that know columns and ``METHODS``, and whose values stay what they are."""

    def is_safe_callable(self, obj: object) -> bool:
        return getattr(obj, "__name__", "") in {*METHODS, "index"}


_JINJA = _Values(undefined=StrictUndefined, finalize=lambda value: "" if value is None else value)
_JINJA.globals, _JINJA.filters = {}, METHODS | {"trim": str.strip}


@lru_cache(maxsize=64)
def _template(source: str) -> Template:
    for node in _JINJA.parse(source).find_all(nodes.Node):
        if not isinstance(node, SYNTAX):
            raise ValueError(f"{type(node).__name__} is not supported")
    return _JINJA.from_string(source)


def filled(source: str, row: Mapping[str, Any]) -> object:
    """Return what a template says of a row: a text, or the value itself of a template that is one
    expression alone.

    Raises:
        ValueError: it says something else, or too much.
        LookupError, TypeError, RecursionError: a value is not what the template makes of it.
    """
    pieces, length = list[object](), 0
    try:
        for piece in _template(source).generate(row):
            pieces.append(piece)
            length += len(piece) if isinstance(piece, str) else 0
            if length > MAX_CHARS:
                raise ValueError(f"more than {MAX_CHARS} characters")
        if len(pieces) > 1 and any(isinstance(piece, list | dict) for piece in pieces):
            raise ValueError("a list stands between texts")
        return pieces[0] if len(pieces) == 1 else "".join(map(str, pieces))
    except TemplateError as error:
        raise ValueError(str(error)) from error
