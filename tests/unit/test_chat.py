from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts import make_host
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.kernel import HostKernel

TEMPLATE = (
    "{% for m in messages %}<bos>[{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


def test_a_chat_host_is_asked_through_its_template(tmp_path: Path) -> None:
    folder = make_host(tmp_path / "host", layers=1)
    with pytest.raises(HostError, match="expected a chat template"):
        HostKernel.from_pretrained(folder, is_chat=True).generate(["12+7"], slots=-1)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | {"chat_template": TEMPLATE})
    )
    chat, plain = (
        HostKernel.from_pretrained(folder, is_chat=True),
        HostKernel.from_pretrained(folder),
    )
    assert chat.encode(["12+7"])[0].tolist() == plain.encode(["[12+7]>"])[0].tolist()
    assert plain.encode(["12+7"])[0].tolist() != chat.encode(["12+7"])[0].tolist()
