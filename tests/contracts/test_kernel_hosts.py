"""Kinds of hosts and of adapters, what is refused, and how rows become tiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hosts import PROMPTS, leave_torch_alone, make_host, random_weights
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import AdapterError, EcologyWarning, HostError
from symbiont_ecology.base.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.model.backend.lowrank import tile_rows
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.loading import load_decoder, read_model_config

SLOTS = (0, 1, HOST_SLOT, 3, 2, 2, 2, 0)  # one per prompt


def test_whatever_decides_an_answer_is_in_the_fingerprint(
    host_folders: dict[str, Path], tmp_path: Path
) -> None:
    def fingerprint(name: str, file: str = "config.json", **changes: object) -> str:
        folder = tmp_path / name
        shutil.copytree(host_folders["qwen3"], folder)
        facts = json.loads((folder / file).read_text(encoding="utf-8")) | changes
        (folder / file).write_text(json.dumps(facts), encoding="utf-8")
        return HostKernel.from_pretrained(folder, slots=1).fingerprint()

    same = fingerprint("copy")
    assert fingerprint("saved by another version", transformers_version="9.9.9") == same
    others = {
        fingerprint("norm", rms_norm_eps=0.01),
        fingerprint("ends", eos_token_id=5),
        fingerprint("tokenizer", "tokenizer.json", normalizer={"type": "NFC"}),
    }
    assert len(others | {same}) == 4


def with_strays(folder: Path, lied: Path) -> Path:
    """The folder, with all that may lie beside the weights of a host: other ones, an adapter."""
    for name in (
        "model_old",
        "consolidated",
        "model.fp16",
        "pytorch_model",
        "model-00001-of-00002",
    ):
        shutil.copy(lied / "model.safetensors", folder / f"{name}.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    bare = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adapted = get_peft_model(bare, LoraConfig(target_modules="all-linear", init_lora_weights=False))
    adapted.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_a_host_is_what_its_index_or_its_one_file_says_wherever_it_lies(
    host_folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    whole = host_folders[kind]
    other = make_host(tmp_path / "other", kind, seed=7)
    tensors = load_file(whole / "model.safetensors")
    shards = tmp_path / "shards"
    shutil.copytree(whole, shards)
    (shards / "model.safetensors").unlink()
    lied = load_file(other / "model.safetensors")
    names: dict[str, dict[str, torch.Tensor]] = {f"m-{index}.safetensors": {} for index in range(3)}
    files = list(names)
    index = {name: files[place % 3] for place, name in enumerate(tensors)}
    for place, name in enumerate(tensors):
        names[index[name]][name] = tensors[name]
        names[files[(place + 1) % 3]][name] = lied[name]  # which the index does not name
    for file, held in names.items():
        save_file(held, shards / file, metadata={"format": "pt"})
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    stray = with_strays(Path(shutil.copytree(whole, tmp_path / "stray")), other)
    with pytest.warns(EcologyWarning, match="consolidated.*model_old") as said:
        fingerprints = [
            HostKernel.from_pretrained(folder, slots=1, prefer_fused=is_fused).fingerprint()
            for folder in (whole, shards, stray, Path(shutil.copytree(stray, tmp_path / "copy")))
            for is_fused in (True, False)
        ]
    assert len(set(fingerprints)) == 1
    assert len([one for one in said if one.category is EcologyWarning]) == 4


def test_a_base_model_whose_head_is_tied_is_a_host(
    host_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(host_folders["qwen3"], tmp_path / "base"))
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    kernels = [
        HostKernel.from_pretrained(place, slots=1, prefer_fused=is_fused)
        for place, is_fused in ((host_folders["qwen3"], True), (folder, True), (folder, False))
    ]
    assert len({kernel.fingerprint() for kernel in kernels}) == 1


TURN = {"content": "<turn>", "normalized": False, "special": True}
TURN |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)


@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": {"259": TURN}},
        {"extra_special_tokens": ["<turn>"]},
        {"additional_special_tokens": ["<turn>"]},
        {"split_special_tokens": True},
        {"add_bos_token": False, "add_eos_token": True},
    ],
    ids=str,
)
def test_a_text_is_read_as_transformers_reads_it(
    host_folders: dict[str, Path], tmp_path: Path, settings: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(host_folders["qwen3"], tmp_path / "m"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    (ids,) = HostKernel.from_pretrained(folder, slots=1).encode(["a<turn>b<eos>"])
    assert ids.tolist() == AutoTokenizer.from_pretrained(folder)("a<turn>b<eos>")["input_ids"]


@pytest.mark.parametrize("prefer_fused", [True, False])
def test_a_fingerprint_is_kept_and_a_fresh_one_sees_a_changed_weight(
    host_folders: dict[str, Path], prefer_fused: bool
) -> None:
    folder = host_folders["qwen3"]
    config = read_model_config(folder)
    decoder = load_decoder(
        folder, config, torch.device("cpu"), torch.float32, prefer_fused=prefer_fused
    )
    kernel = HostKernel(decoder, TextCodec(folder, config), slots=1, rank=2)
    before = kernel.fingerprint()
    assert kernel.fingerprint(is_fresh=True) == before
    with torch.no_grad():
        decoder.weights()["model.norm.weight"][0] += 1
    assert kernel.fingerprint() == before
    assert kernel.fingerprint(is_fresh=True) != before


@pytest.mark.parametrize("prefer_fused", [True, False])
def test_a_half_precision_host_learns_in_single_precision(
    host_folders: dict[str, Path], prefer_fused: bool
) -> None:
    found = []
    for dtype in ("float32", "bfloat16"):
        kernel = HostKernel.from_pretrained(
            host_folders["qwen3"], slots=2, dtype=dtype, prefer_fused=prefer_fused
        )
        weights = random_weights(kernel.layout, 0)
        kernel.place(0, weights)
        batch = LearningBatch((Lesson("12+7=", (70, 71, 72), 0),), {0: 1e-3})
        learned, _, statistics = kernel.learn(batch, {0: weights}, {})
        assert learned[0].vector.dtype == np.float32
        assert len(kernel.generate(PROMPTS, 0, min_new_tokens=4)) == len(PROMPTS)
        found.append(statistics.loss[0])
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"use_rslora": True, "lora_alpha": 3},
        {"lora_alpha": 32, "r": 4, "lora_dropout": 0.1},
        {"rank_pattern": {"q_proj": 2, "c_attn": 2}, "alpha_pattern": {"down_proj": 5, "c_fc": 5}},
        {"layers_to_transform": [1]},
    ],
)
@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_adapters_made_by_peft_attach(
    host_folders: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(host_folders[kind], dtype=torch.float32)
    targets = ["c_attn", "c_proj", "c_fc"] if kind == "gpt2" else ["q_proj", "down_proj"]
    settings = {
        "r": 8,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
        "fan_in_fan_out": kind == "gpt2",
    }
    peft = get_peft_model(model, LoraConfig(**(settings | changes))).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, one in peft.named_parameters():
            if "lora_B" in name:
                one.normal_(std=0.05)
    peft.save_pretrained(tmp_path / "made")
    kernel = HostKernel.from_pretrained(host_folders[kind], slots=1, rank=8)
    slot = kernel.attach(tmp_path / "made")
    ids = torch.tensor([AutoTokenizer.from_pretrained(host_folders[kind])("12+7=19")["input_ids"]])
    ours = kernel.score(["1"], ["2+7=19"], slot)[0]
    with torch.no_grad():
        theirs = peft(input_ids=ids).logits[0].log_softmax(-1)
        with peft.disable_adapter():
            bare = peft(input_ids=ids).logits[0].log_softmax(-1)
    start = ids.shape[1] - len(ours)
    picked = ids[0, start:, None]
    torch.testing.assert_close(
        ours, theirs[start - 1 : -1].gather(1, picked)[:, 0], atol=1e-4, rtol=0
    )
    assert (ours - bare[start - 1 : -1].gather(1, picked)[:, 0]).abs().max() > 1e-3


def test_narrowed_targets_export_by_full_name_when_endings_are_ambiguous(
    host_folders: dict[str, Path], tmp_path: Path
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["gpt2"], slots=1, targets=["attn.c_proj"])
    kernel.place(0, random_weights(kernel.layout, 0))
    kernel.export(0, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(host_folders["gpt2"], dtype=torch.float32)
    peft = PeftModel.from_pretrained(model, tmp_path)
    adapted = [name for name, _ in peft.named_parameters() if "lora_A" in name]
    assert len(adapted) == len(kernel.layout.modules) == kernel.shape.layers
    assert all(".attn.c_proj." in name for name in adapted)


def test_narrowed_targets_compute_what_full_ones_compute(host_folders: dict[str, Path]) -> None:
    targets = ["k_proj", "up_proj", "o_proj"]
    narrow = HostKernel.from_pretrained(host_folders["qwen3"], slots=1, targets=targets)
    full = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    weights = random_weights(narrow.layout, 0)
    found = {name: (a, b) for name, a, b in weights.factors()}
    nothing = {
        name: (np.zeros((0, d_in)), np.zeros((d_out, 0)))
        for name, d_in, d_out in full.layout.modules
    }
    narrow.place(0, weights)
    full.place(0, AdapterWeights.from_factors(full.layout, 8, weights.scaling, nothing | found))
    assert narrow.generate(PROMPTS, 0) == full.generate(PROMPTS, 0)
    assert narrow.generate(PROMPTS, 0) != full.generate(PROMPTS, HOST_SLOT)


def test_slots_are_attached_listed_exported_and_freed(
    host_folders: dict[str, Path], tmp_path: Path
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=2)
    weights = random_weights(kernel.layout, 0, scaling=0.7)
    kernel.place(1, weights)
    assert kernel.weights_of(1) is weights
    kernel.export(1, tmp_path / "out")
    assert kernel.attach(tmp_path / "out") == 0
    np.testing.assert_array_equal(kernel.weights_of(0).vector, weights.vector)
    assert kernel.generate(PROMPTS, 0) == kernel.generate(PROMPTS, 1)
    with pytest.raises(AdapterError, match="free slot"):
        kernel.attach(tmp_path / "out")
    kernel.detach(0)
    with pytest.raises(HostError, match="found none"):
        kernel.weights_of(0)
    assert kernel.attach(tmp_path / "out") == 0


def test_adapters_that_do_not_fit_are_refused(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1, rank=4)
    large = random_weights(kernel.layout, 0, rank=8)
    with pytest.raises(AdapterError, match="rank at most 4"):
        kernel.place(0, large)
    with pytest.raises(AdapterError, match="rank at most 4"):
        kernel.learn(LearningBatch((Lesson("a", (5,), 0),), {0: 1e-3}), {0: large}, {})
    other = HostKernel.from_pretrained(host_folders["gpt2"], slots=1)
    with pytest.raises(AdapterError, match="modules"):
        kernel.place(0, random_weights(other.layout, 0, rank=2))


def test_impossible_calls_say_what_to_do(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    with pytest.raises(HostError, match="slot from 0 to 0"):
        kernel.generate(["a"], 3)
    with pytest.raises(HostError, match="at most 512 tokens"):
        kernel.generate(["a"], HOST_SLOT, max_new_tokens=600)
    with pytest.raises(ValueError, match="one generator"):
        kernel.rollout([Request("a")], None, Decoding(temperature=0.9))
    with pytest.raises(ValueError, match="learning rate"):
        kernel.learn(
            LearningBatch((Lesson("a", (5,), 0),), {}), {0: random_weights(kernel.layout, 0)}, {}
        )
    for wrong, says in (
        ({"targets": ["c_attn"]}, "targets among"),
        ({"device": "nowhere"}, "device"),
        ({"dtype": "int4"}, "dtype"),
        ({"slots": 0}, "slots=0"),
    ):
        with pytest.raises(HostError, match=says):
            HostKernel.from_pretrained(host_folders["qwen3"], **wrong)


@pytest.mark.parametrize(
    "slots", [[0], [3, 3, 1], [0, 1, 2, 3] * 4, [0] * 9 + [1, 2, 3], [5] * 8 + [4] * 7 + [-1]]
)
def test_tiles_hold_every_row_once_and_only_rows_of_their_slot(slots: list[int]) -> None:
    slots = sorted(slots)
    tiling = tile_rows(slots, torch.device("cpu"))
    rows = torch.arange(len(slots), dtype=torch.float32)[:, None]
    laid = tiling.laid(rows)[..., 0].long()
    for owner, tile in zip(tiling.slots, laid.tolist(), strict=True):
        assert {slots[row] for row in tile} == {owner}
    # What a row adds up in the tiles comes back to that row.
    sums = torch.zeros(len(slots), 1)
    tiling.add(sums, tiling.laid(rows), torch.ones(len(tiling.slots), 1, 1))
    torch.testing.assert_close(sums, rows)


def test_hosts_of_odd_sizes_are_computed_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"hidden_size": 36, "intermediate_size": 44, "head_dim": 6, "initializer_range": 0.2}
    folder = make_host(tmp_path, "qwen3", layers=2, **sizes)
    compiled = HostKernel.from_pretrained(folder, slots=2, rank=5)
    leave_torch_alone(monkeypatch)
    plain = HostKernel.from_pretrained(folder, slots=2, rank=5)
    for slot, rank in enumerate((5, 3)):
        for kernel in (compiled, plain):
            kernel.place(slot, random_weights(kernel.layout, slot, rank))
    prompts, slots = ["a", "abc 12", "abc 12", "x" * 40], [-1, 0, 1, 1]
    texts, scores = compiled.generate(prompts, slots), compiled.score(prompts, ["yes 1"] * 4, slots)
    assert texts == plain.generate(prompts, slots)
    for ours, theirs in zip(scores, plain.score(prompts, ["yes 1"] * 4, slots), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
