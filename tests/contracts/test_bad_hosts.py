"""Hosts and calls that cannot work say so in one line."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from damage import WEIGHTS
from hosts import leave_torch_alone
from symbiont_ecology.base.errors import ConfigError, HostError
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER, check_is_here, lacks_chat_template
from symbiont_ecology.run.config import load_config


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "m"))


def written(path: Path, **changes: object) -> None:
    """Changes some fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder: Path, **knobs: object) -> str:
    """The one line with which a host is refused."""
    with pytest.raises(HostError, match=r"^expected [^\n]+$") as caught:
        HostKernel.from_pretrained(folder, **knobs)  # type: ignore[arg-type]
    return str(caught.value)


def test_slots_too_large_for_the_machine_are_refused(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_torch_alone(monkeypatch)  # others read adapters where they lie
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], rank=10**8)
    with pytest.raises(HostError, match="GB for 16 slots"):
        kernel.generate(["a"], 0)


def test_calls_of_the_wrong_shape_are_refused(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"])
    assert kernel.generate(["a", "b"], np.int64(-1)) == kernel.generate(["a", "b"], [-1, -1])  # type: ignore[arg-type]
    with pytest.raises(HostError, match="got one text"):
        kernel.generate("abc", -1)
    with pytest.raises(HostError, match="one slot for each of 2"):
        kernel.generate(["a", "b"], [0])
    with pytest.raises(HostError, match="a completion for each of 2"):
        kernel.score(["a", "b"], ["c"], -1)
    with pytest.raises(HostError, match="max_new_tokens >= 0"):
        kernel.generate(["a"], -1, max_new_tokens=-4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_key_value_heads": 1}, "k_proj"),
        ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"num_attention_heads": 8}, "q_proj"),
        ({"num_attention_heads": -4}, "num_attention_heads"),
        ({"num_attention_heads": 10**6}, "num_attention_heads"),
        ({"head_dim": 33}, "head_dim"),
        ({"head_dim": None, "hidden_size": 4}, "even size"),
        ({"hidden_size": 64}, "q_proj"),
        ({"hidden_size": "128"}, "hidden_size"),
        ({"intermediate_size": 383}, "gate_proj"),
        ({"vocab_size": 281}, "embed_tokens"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"num_hidden_layers": 6}, "num_hidden_layers"),
        ({"num_hidden_layers": 6, "layer_types": None}, "layers.5"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"sliding_window": -1}, "sliding_window"),
        ({"layer_types": 5}, "layer_types"),
        ({"model_type": ["qwen3"]}, "model_type"),
        ({"eos_token_id": "two"}, "eos_token_id"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_the_weights_is_refused(
    embedded: Path, changes: dict[str, object], says: str
) -> None:
    written(embedded / "config.json", **changes)
    assert says in refused(embedded)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.norm.weight", (0,)),
        ("model.norm.weight", (1,)),
        ("model.layers.1.input_layernorm.weight", (64,)),
        ("model.layers.0.self_attn.q_norm.weight", (16,)),
        ("model.layers.4.self_attn.k_norm.weight", (4, 32)),
        ("model.layers.0.self_attn.q_proj.weight", (64, 128)),
        ("model.layers.2.self_attn.o_proj.weight", (1, 128, 128)),
        ("model.layers.3.mlp.down_proj.weight", (384, 128)),
        ("model.embed_tokens.weight", (280,)),
        ("lm_head.weight", (128, 280)),
    ],
)
def test_a_tensor_of_another_size_is_refused(
    embedded: Path, name: str, shape: tuple[int, ...]
) -> None:
    tensors = load_file(embedded / WEIGHTS)
    tensors[name] = np.ones(shape, dtype=np.float32)
    save_file(tensors, embedded / WEIGHTS)
    line = refused(embedded)
    assert repr(name) in line
    assert str(shape) in line


def test_windows_of_no_token_are_refused(host_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(host_folders["sliding mistral"], tmp_path / "m"))
    written(folder / "config.json", sliding_window=0)
    assert "that transformers can compute" in refused(folder)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_weights_that_are_not_finite_are_refused(
    host_folders: dict[str, Path], tmp_path: Path, kind: str, number: float
) -> None:
    folder = Path(shutil.copytree(host_folders[kind], tmp_path / "m"))
    tensors = load_file(folder / WEIGHTS)
    name = next(name for name in sorted(tensors) if tensors[name].ndim == 2)
    tensors[name][0, 0] = number
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    assert "finite numbers" in refused(folder)


def test_weights_beyond_half_precision_are_refused_in_it_alone(embedded: Path) -> None:
    tensors = load_file(embedded / WEIGHTS)
    tensors["model.norm.weight"] = np.full(128, 1e5, dtype=np.float32)
    save_file(tensors, embedded / WEIGHTS)
    assert "use dtype=float32" in refused(embedded, dtype="float16")
    HostKernel.from_pretrained(embedded)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "[" * 100_000),
        ("config.json", "[]"),
        ("tokenizer.json", '{"model":' * 900 + "1" + "}" * 900),
        ("tokenizer.json", '"model"'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"eos_token": 5}'),
        ("tokenizer_config.json", '{"eos_token": {"content": 5}}'),
        ("tokenizer_config.json", '{"tokenizer_class": ["PreTrainedTokenizerFast"]}'),
        ("generation_config.json", "[]"),
        ("generation_config.json", '{"eos_token_id": "two"}'),
        ("generation_config.json", '{"eos_token_id": [2, null]}'),
    ],
)
def test_files_that_say_something_else_are_refused(embedded: Path, file: str, text: str) -> None:
    (embedded / file).write_text(text)
    assert file in refused(embedded)


def test_end_tokens_that_no_logit_stands_for_are_left_out(embedded: Path) -> None:
    written(embedded / "generation_config.json", eos_token_id=[-1, 10**30, 280])
    kernel = HostKernel.from_pretrained(embedded)
    assert kernel.codec.end_tokens[0] == 2
    assert kernel.codec.end_tokens == (2,)


class Marker:
    """What writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (self._path, "unpickled")


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_a_pickled_host_is_refused_and_not_executed(
    host_folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(host_folders[kind], tmp_path / "m"))
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Marker(tmp_path / "marker")))
    assert "can run code" in refused(folder)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("m-2.safetensors", "m-2.safetensors that model.safetensors.index.json names, found none"),
        ("m-1.safetensors", "tensor 'model.layers.0.input_layernorm.weight' in"),
        ("../m/m-1.safetensors", "names of files"),
        ("/m-1.safetensors", "names of files"),
        ("m-1.bin", "names of files"),
        (5, "weight_map"),
        (None, "weight_map"),
    ],
)
def test_an_index_names_files_of_the_folder_that_hold_its_tensors(
    embedded: Path, file: object, says: str
) -> None:
    tensors = load_file(embedded / WEIGHTS)
    name = "model.layers.0.input_layernorm.weight"
    files = dict.fromkeys(tensors, "m-1.safetensors") | {name: file}
    del tensors[name]
    save_file(tensors, embedded / "m-1.safetensors")
    (embedded / WEIGHTS).unlink()
    index = {"weight_map": files} if file is not None else {}
    (embedded / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    assert says in refused(embedded)


@pytest.mark.parametrize("name", ["consolidated", "model_old", "adapter_model", "model.fp16"])
def test_weights_of_another_name_alone_are_refused_by_name(embedded: Path, name: str) -> None:
    (embedded / WEIGHTS).rename(embedded / f"{name}.safetensors")
    assert f"found {name}.safetensors" in refused(embedded)


def test_weights_that_are_no_file_are_not_waited_for(embedded: Path) -> None:
    (embedded / WEIGHTS).unlink()
    os.mkfifo(embedded / WEIGHTS)
    assert "weights" in refused(embedded)


@pytest.mark.parametrize(
    "device", ["meta", "nowhere", "", "cpu:x", "cuda:" + "9" * 30, "xla", "hpu", "\0", "a" * 10_000]
)
def test_a_device_that_cannot_compute_is_refused(embedded: Path, device: str) -> None:
    line = refused(embedded, device=device)
    assert "a device that torch can use here" in line
    assert len(line) < 1000


@pytest.mark.parametrize("letters", ["a", "a/", "\0", "~", "\udcff"])
def test_a_name_of_any_length_is_refused_in_a_short_line(letters: str) -> None:
    name = letters * 10_000
    assert not lacks_chat_template(name)
    with pytest.raises(HostError) as caught:
        check_is_here(name)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "override",
    [
        "host.slots=1e9",
        "host.slots=1000000000",
        "host.slots=18446744073709551616",
        "host.threads=1000000",
        "host.threads=9223372036854775808",
        "host.memory_mb=.inf",
    ],
)
def test_numbers_that_no_machine_has_are_refused_before_a_host_is_loaded(override: str) -> None:
    with pytest.raises(ConfigError, match=override.partition("=")[0]):
        load_config("steady", [override])


def test_a_template_that_fails_is_refused_in_one_line(embedded: Path) -> None:
    for template in ("{{ 1 / 0 }}", "{{ messages() }}", "{% for"):
        written(embedded / "tokenizer_config.json", chat_template=template)
        assert "expected a chat template" in refused(embedded, is_chat=True)
        kernel = HostKernel.from_pretrained(embedded)
        kernel.codec.is_chat = True
        with pytest.raises(HostError, match=r"^expected a chat template [^\n]+$"):
            kernel.generate(["a"], -1)


@pytest.mark.parametrize("date", ["today", "2026-02-30", "", None])
def test_a_day_that_is_none_is_refused(embedded: Path, date: object) -> None:
    assert "a day such as" in refused(embedded, date=date)
    with pytest.raises(ConfigError, match=r"host\.date"):
        load_config("steady", [f"host.date={date}"])


def test_answers_that_the_host_cannot_read_are_refused(embedded: Path) -> None:
    kernel = HostKernel.from_pretrained(embedded)
    with pytest.raises(HostError, match="token ids from 0 to 279, got 5 to 280"):
        kernel.score(["a"], [[5, 280]], -1)
