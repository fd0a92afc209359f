"""How values show themselves in a notebook: small tables that suit light and dark pages.

Names and replies may come from data or from a model. They are escaped, and letters that cannot be
seen, or that turn the direction of others, are spelt out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape

LONGEST_SHOWN = 200
"""Characters of a text that a table shows."""
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""Unicode's categories of letters that are spelt out."""
_LINE = "border-bottom:1px solid rgba(128,128,128,.35);padding:.15em .7em;vertical-align:top"


def spelt(text: str, longest: int = LONGEST_SHOWN) -> str:
    """A text in one line of letters that can be seen; the others by number, such as ``⟨U+202E⟩``.

    A longer text is cut.
    """
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(map(_spelt_letter, short))


def notebook_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> str:
    """HTML of a table: a heading for every column, and the rows.

    The page's own colours are kept, so it reads on light and on dark.
    """
    head = "".join(_cell("th", name) for name in columns)
    body = "".join(f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows)
    foot = f'<div style="opacity:.7;font-size:.9em">{_html(note)}</div>' if note else ""
    return (
        f'<div style="margin:.3em 0"><div style="font-weight:600">{_html(title)}</div>'
        '<table style="border-collapse:collapse;background:transparent;color:inherit">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"
    )


def notebook_facts(title: str, facts: Mapping[str, str], note: str = "") -> str:
    """HTML of a table with a line for every fact."""
    return notebook_table(title, (), [(name, value) for name, value in facts.items()], note)


def _cell(tag: str, value: str) -> str:
    style = f"{_LINE};text-align:left;background:transparent"
    weight = ";font-weight:600" if tag == "th" else ""
    return f'<{tag} style="{style}{weight}">{_html(value)}</{tag}>'


def _html(text: str) -> str:
    return escape(spelt(text))


def _spelt_letter(letter: str) -> str:
    if unicodedata.category(letter) not in _UNSEEN:
        return letter
    return {"\n": "↵", "\t": "⇥"}.get(letter, f"⟨U+{ord(letter):04X}⟩")
