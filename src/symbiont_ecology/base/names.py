"""Names of users, with the same limits wherever one comes from: tables, requests, keys, commands.

A name is one line of text in any script. It is kept in one normal form, so that two spellings that
look alike are the same user: composed letters (Unicode's NFC), plain spaces, and no marks of
direction or width. Joiners stay, since they part words in Persian and join emoji.
"""

from __future__ import annotations

import re
import unicodedata

MAX_USER_CHARS = 200
_UNSEEN = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202c\u2060\u2066-\u2069\ufeff]")
"""Marks of direction and of possible breaks: nobody sees or types them."""
_REVERSED = re.compile("[\u202d\u202e]")
"""Marks that show letters in another order than they are in: no name has them."""


def user_name(text: str) -> str:
    """Return the normal form of a user's name.

    Raises:
        ValueError: it is empty, too long, or more than a line of text.
    """
    plain = _UNSEEN.sub("", unicodedata.normalize("NFC", text))
    name = "".join(" " if unicodedata.category(c) == "Zs" else c for c in plain).strip(" ")
    odd = {unicodedata.category(letter) for letter in name} & {"Cc", "Cs", "Zl", "Zp"}
    if odd or _REVERSED.search(name) or not 0 < len(name) <= MAX_USER_CHARS:
        raise ValueError(
            f"expected a line of 1 to {MAX_USER_CHARS} characters that show, got {text!a:.60}"
        )
    return name
