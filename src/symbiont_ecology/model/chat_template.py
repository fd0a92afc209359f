"""Whether a host has a chat template, told from its files: no weight is read, and no torch needed.

So a run that would ask it in a chat can be refused before a model is loaded.
"""

from __future__ import annotations

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.fields import read_json
from symbiont_ecology.model.locating import local_folder

TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""Where transformers keeps a template that is not in the tokenizer's own config."""


def has_chat_template(model: str) -> bool | None:
    """Whether the files of a local host hold a chat template; None where there are no such files,
    as for a name on the hub."""
    if (folder := local_folder(model)) is None:
        return None
    if any((folder / name).is_file() for name in TEMPLATE_FILES):
        return True
    path = folder / "tokenizer_config.json"
    try:
        return bool(read_json(path).get("chat_template")) if path.is_file() else None
    except HostError:
        return None  # loading says what is wrong with them
