"""Whether a host has a chat template, told from its files: no weight is read, and no torch needed.

So a run that would ask it in a chat can be refused before a model is loaded.
"""

from __future__ import annotations

import json

from symbiont_ecology.host.locating import local_folder

TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""Where transformers keeps a template that is not in the tokenizer's own config."""


def has_chat_template(model: str) -> bool | None:
    """Whether the files of a local host hold a chat template; None where there are no such files,
    as for a name on the hub."""
    if (folder := local_folder(model)) is None:
        return None
    if any((folder / name).is_file() for name in TEMPLATE_FILES):
        return True
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # loading says what is wrong with them
    return bool(isinstance(config, dict) and config.get("chat_template"))
