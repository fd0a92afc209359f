"""Templates that somebody wrote, filled in without running code of theirs.

The language is Jinja in its sandbox, of which only a part is read: values, their parts, conditions,
a loop, and methods and filters of texts whose results cannot be much longer than what they are
given. Everything else is refused by name before a row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from symbiont_ecology.errors import DataError, lines_of

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_FILLED = 100_000
"""Characters that a template may make of one row."""
_PARTS = re.compile(
    "Template|Output|TemplateData|Name|Const|Getattr|Getitem|Slice|Filter|Call|Keyword|If|CondExpr|"
    "Compare|Operand|And|Or|Not|Add|Sub|Neg|Concat|List|Tuple|Test|For"
)
"""Kinds of nodes in a parsed template. Products, powers and formats are none of them: they make
long texts of short ones."""
_METHODS = re.compile(
    "strip|lstrip|rstrip|lower|upper|capitalize|title|split|splitlines|startswith|endswith|index|"
    "find|replace|join|get"
)
_FILTERS = re.compile(
    "trim|lower|upper|capitalize|title|first|last|length|string|int|list|replace|join"
)
_ALONE = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


@dataclass(frozen=True)
class RowTemplate:
    """A template that was checked, ready for rows."""

    fill: Callable[[Mapping[str, Any]], object]

    def __call__(self, row: Mapping[str, Any], where: str) -> object:
        """What it says of a row: a text, or the value itself, if it is one expression alone.

        Raises:
            DataError: a name or a part is missing, or the text would be too long; ``where`` begins
                the message.
        """
        import jinja2

        faults = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
        try:
            return self.fill(row)
        except (jinja2.TemplateError, *faults) as error:
            reason = " ".join(lines_of(error))
            raise DataError(f"{where}: cannot be filled in: {reason:.200}") from error


def template(source: str, where: str) -> RowTemplate:
    """A template, parsed and checked.

    Raises:
        DataError: it is no template, or does what is refused.
    """
    import jinja2
    from jinja2 import nodes

    environment = _environment()
    try:
        tree = environment.parse(source)
        for node in (tree, *tree.find_all(nodes.Node)):
            if refusal := _refusal(node):
                raise DataError(f"{where}: {refusal} is not supported in {source!r:.60}")
        match = _ALONE.fullmatch(source)
        if match and isinstance(tree.body[0], nodes.Output) and len(tree.body[0].nodes) == 1:
            value = environment.compile_expression(match[1], undefined_to_none=False)
            return RowTemplate(lambda row: _defined(value(dict(row))))
        filler = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise DataError(f"{where}: no template that can be read: {error!s:.200}") from error
    return RowTemplate(lambda row: _joined(filler.generate(dict(row))))


def _refusal(node: Any) -> str:
    """What is refused about a node of a parsed template; empty if nothing is."""
    from jinja2 import nodes

    kind = type(node).__name__
    if not _PARTS.fullmatch(kind):
        return kind
    if isinstance(node, nodes.Call):
        function = node.node
        if not isinstance(function, nodes.Getattr) or not _METHODS.fullmatch(function.attr):
            return f"calling {getattr(function, 'attr', getattr(function, 'name', 'this'))}"
    if isinstance(node, nodes.Filter) and not _FILTERS.fullmatch(node.name):
        return f"the filter {node.name}"
    if isinstance(node, nodes.For) and any(node is not loop for loop in node.find_all(nodes.For)):
        return "a loop in a loop"
    return ""


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    """The sandbox, whose methods and filters cannot make long texts."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """Checks the length of a result before it is made."""

        def call(self, context: Any, called: Any, /, *args: Any, **named: Any) -> Any:
            """The call of the sandbox, but for what could make a long text."""
            text, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
            if isinstance(text, str) and name == "replace":
                return _replaced(text, *args, **named)
            if isinstance(text, str) and name == "join":
                (values,) = args
                return _join(values, text)
            return super().call(context, called, *args, **named)

    environment = Sandbox(undefined=StrictUndefined)
    environment.filters |= {"replace": _replaced, "join": _join}
    return environment


def _replaced(text: object, old: str, new: str) -> str:
    string = str(text)
    _check(len(string) + string.count(old) * len(new))
    return string.replace(old, new)


def _join(values: Iterable[object], between: str = "") -> str:
    texts = [str(value) for value in values]
    _check(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _joined(pieces: Iterable[str]) -> str:
    texts, length = [], 0
    for piece in pieces:
        length += len(piece)
        _check(length)
        texts.append(piece)
    return "".join(texts)


def _check(length: int) -> None:
    if length > LONGEST_FILLED:
        raise ValueError(f"more than {LONGEST_FILLED} characters")


def _defined(value: object) -> object:
    """The value, or the error about a name that is missing."""
    from jinja2 import Undefined

    if isinstance(value, Undefined):
        str(value)  # which raises
    if isinstance(value, str):
        _check(len(value))
    return value
