"""Where the final answer stands in a reply, whoever wrote it.

A reply is untrusted text: nothing here evaluates it, and every pattern runs in linear time. The
answer is the last offer: the last back-ticked span of the last line that says something, else that
line itself without a lead-in such as ``Answer:`` or ``The answer is``. Fences around code are not
content, nor is a lead-in on a line of its own.
"""

from __future__ import annotations

import re

_LEAD_IN = re.compile(
    r"(?:(?:so|thus|therefore),? )?(?:the )?(?:final )?(?:answer|result)(?: is)? ?:? ",
    re.IGNORECASE,
)
_TICKED = re.compile(r"`([^`]+)`")
LONGEST_REPLY = 10_000
"""Characters of a reply that are looked at; what comes after is ignored."""


def answer_lines(reply: str) -> list[str]:
    """Everything in a reply that could be meant as an answer, in order: lines and back-ticked
    spans."""
    offers: list[str] = []
    for line in reply[:LONGEST_REPLY].splitlines():
        text = line.strip()
        if not text or text.startswith("```") or _LEAD_IN.fullmatch(f"{text} "):
            continue
        ticked = [span.strip() for span in _TICKED.findall(text)]
        offers += ticked or [_without_lead_in(text)]
    return offers


def final_answer(reply: str) -> str:
    """The last offer of a reply, or an empty string."""
    offers = answer_lines(reply)
    return offers[-1] if offers else ""


def _without_lead_in(line: str) -> str:
    lead = _LEAD_IN.match(line)
    if lead is None:
        return line
    return line[lead.end() :].strip().removesuffix(".")
