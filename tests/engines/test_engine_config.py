"""What a config may say of an engine, before a model is loaded or a server asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from symbiont_ecology.config import dump_config, load_config
from symbiont_ecology.engine.build import check
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.host.engines import engines

VLLM = "host.engine={kind: vllm, adapters_folder: published}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["host.engine=vlm"], "no engine 'vlm'; did you mean 'vllm'"),
        (["host.engine=vllm"], "engine 'vllm': missing key 'adapters_folder'"),
        (["host.engine={kind: kernel, url: x}"], "unknown key 'url'"),
        ([VLLM, "host.engine.url=127.0.0.1"], "url: expected such as http://127.0.0.1:8000"),
        ([VLLM, "host.engine.url='http://10.0.0.7:8000'"], "url: 10.0.0.7 is beyond this machine"),
        ([VLLM, "host.engine.timeout=0"], "timeout: expected"),
        ([VLLM, "host.slots=65"], r"host\.engine\.loaded: expected host\.slots=65 or more, got 64"),
    ],
)
def test_a_wrong_engine_is_one_line_before_a_model_is_loaded(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check(load_config("steady", words))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:8000", "https://127.0.0.1/behind/a/proxy", "http://[::1]:30000"]
)
def test_a_server_on_this_machine_needs_no_key(url: str) -> None:
    engines.build({"kind": "sglang", "url": url, "adapters_folder": "published"})


def test_the_kernel_answers_unless_a_config_says_otherwise_and_a_config_can_be_read_again(
    tmp_path: Path,
) -> None:
    assert load_config("steady").host.engine == "kernel"
    config = load_config("steady", [VLLM])
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    assert load_config(path) == config
