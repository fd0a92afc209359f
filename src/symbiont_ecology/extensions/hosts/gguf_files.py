"""GGUF files as host folders: weights in float32, tokenizer and chat template beside them.

A file is read for the architectures in ``ARCHITECTURES``, whose answers were compared with those
of transformers: every field and every tensor of it, or it is refused by the name of what is not
read. transformers has the models, gguf names their tensors and dequantises them. What llama.cpp's
converter changes is undone: interleaved queries and keys, norms with one added, turned matrices.
Angles and special cases are those of llama.cpp. The folder has ``config.json``,
``model.safetensors`` and the tokenizer (``gguf_tokenizers``), as any other host.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.extensions.hosts.gguf_tokenizers import (
    AGAIN,
    CONTROL,
    OWN,
    SPECIAL,
    read_tokenizer,
)
from symbiont_ecology.extensions.hosts.packages import FACTS_FILE, made_once, sha256_of
from symbiont_ecology.model.locating import MAX_LAYERS, Tell, expect, expected, host_sources

if TYPE_CHECKING:
    from torch import Tensor

_VERSION = 2
"""In names of folders in the cache: what was converted otherwise is not used again."""
_TEXT, _LIST = 8, 9
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Kinds of values in a header: texts, lists, and the bytes of all others."""


@dataclass(frozen=True)
class _Architecture:
    """Rules for reading the files of one architecture.

    ``fields`` are those of a file with their names in a config of transformers; the ``optional``
    ones may be missing. Matrices that are ``turned`` are transposed. A model with ``divided``
    layers scales its scores by hidden size ÷ heads, which no field says.
    """

    fields: Mapping[str, str]
    optional: tuple[str, ...] = ("attention.head_count_kv", "attention.key_length")
    has_angles: bool = True
    is_interleaved: bool = False
    norm_offset: float = 0.0
    turned: tuple[str, ...] = ()
    divided: int | None = None


_WINDOW = {"attention.sliding_window": "sliding_window"}
_CAP = {"final_logit_softcapping": "final_logit_softcapping"}
_SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
_LLAMA = _SIZES | {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
_WIDE = _LLAMA | {"attention.key_length": "head_dim"}
ARCHITECTURES = {
    "llama": _Architecture(_WIDE, is_interleaved=True),
    "qwen2": _Architecture(_LLAMA),
    "qwen3": _Architecture(_WIDE),
    "gemma2": _Architecture(
        _WIDE | _WINDOW | _CAP | {"attn_logit_softcapping": "attn_logit_softcapping"},
        optional=(),
        norm_offset=1.0,
        divided=46,
    ),
    "gemma3": _Architecture(
        _WIDE | _WINDOW | _CAP, optional=(*_WINDOW, *_CAP), norm_offset=1.0, divided=62
    ),
    "phi3": _Architecture(_LLAMA | _WINDOW),
    "starcoder2": _Architecture(_SIZES | {"attention.layer_norm_epsilon": "norm_epsilon"}),
    "gpt2": _Architecture(
        {
            "context_length": "n_positions",
            "block_count": "n_layer",
            "embedding_length": "n_embd",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        has_angles=False,
        turned=("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"),
    ),
}
_BIASES = {"blk.0.attn_output.bias": "attention_bias", "blk.0.ffn_down.bias": "mlp_bias"}
"""Tensors by which it is known that a Llama or a Qwen3 has biases."""
_SAID_TWICE = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned"}
"""Fields that nothing is read from."""
_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")
"""Control tokens that end a turn, also where a file names the end of a text."""
_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of what angles are divided by."""


@host_sources.register("gguf")
@dataclass(frozen=True)
class GgufFiles:
    """GGUF files by path, converted when they are first used, once for equal files."""

    names = ()

    def knows(self, name: str) -> bool:
        return name.endswith(".gguf")

    def missing(self, name: str) -> str:
        is_here = Path(name).expanduser().is_file()
        return "" if is_here else f"a GGUF file, found none in {name!r:.300}: check the path"

    def folder(self, name: str) -> Path | None:
        return None

    def bring(self, name: str, tell: Tell) -> Path:
        file = Path(name).expanduser()
        sha256 = sha256_of(file)
        made = f"{file.stem}-{sha256[:12]}-v{_VERSION}"
        facts = {"name": made, "about": file.name, "sha256": sha256}
        return made_once(made, partial(convert, file, tell=tell, facts=facts))


def convert(file: Path, folder: Path, tell: Tell, facts: Mapping[str, object]) -> None:
    """Write the host of a GGUF file into a folder; ``facts`` go into ``host.json``.

    Raises:
        HostError: the file is damaged, or says or holds something that is not read here.
    """
    from safetensors.torch import save_file

    tell(f"converting {file.name} …")
    with expected(f"a causal language model in {file}", Exception):  # three libraries read it
        try:
            model, tensors, tokenizer = _read(file)
        except HostError as error:
            said = str(error).removeprefix("expected ")
            raise HostError(f"expected in {file} {said}") from error
    config = model.config.to_diff_dict()
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    for name, values in (("config.json", config), (FACTS_FILE, facts)):
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _read(file: Path) -> tuple[Any, dict[str, Tensor], Any]:
    """Return a model without weights, its weights in float32, and its tokenizer."""
    import gguf
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    _check_header(file)
    reader = gguf.GGUFReader(file)
    said = {name: part.contents() for name, part in reader.fields.items()}
    parts = said.get("split.count", 1)
    expect(parts < 2, f"a whole model, got one of {parts} parts: join them (gguf-split --merge)")
    kind: Any = said.get("general.architecture")
    known = ", ".join(ARCHITECTURES)
    expect(kind in ARCHITECTURES, f"one of the architectures {known}, got {kind!r:.100}: {OWN}")
    words = {name.removeprefix("tokenizer."): value for name, value in said.items()}
    tokenizer = read_tokenizer(words, kind)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    settings = _settings(kind, said, stored) | _special(said)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings))
    return model, _weights(kind, model, stored), tokenizer


def _settings(kind: str, said: Mapping[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a file's model. Tensors that are no weights are taken out of
    ``stored``."""
    rules = ARCHITECTURES[kind]
    own = (name.partition(".") for name in said)
    facts = {name: said[f"{kind}.{name}"] for first, _, name in own if first == kind}
    lost = min(rules.fields.keys() - facts.keys() - set(rules.optional), default=None)
    expect(lost is None, f"a field {kind}.{lost}, found none: {AGAIN}")
    odd = next((name for name in rules.fields if isinstance(facts.get(name), list)), None)
    expect(odd is None, f"one {kind}.{odd} for all layers, got one for each: {OWN}")
    layers, heads = facts["block_count"], facts["attention.head_count"]
    expect(0 < layers <= MAX_LAYERS, f"a number of layers from 1 to {MAX_LAYERS}, got {layers}")
    embedding: Any = stored.get("token_embd.weight")
    output = stored.get("output.weight")
    expect(embedding is not None, f"a tensor 'token_embd.weight', found none: {AGAIN}")
    hidden, vocab = map(int, embedding.shape)
    is_wide = "attention.key_length" in rules.fields
    width = facts.get("attention.key_length", hidden // heads) if is_wide else hidden // heads
    given = {"attention.key_length": width, "attention.value_length": width}
    given |= {"attention.causal": True, "rope.dimension_count": width}
    given |= {"attention.sliding_window_pattern": {"gemma2": 2, "gemma3": 6}.get(kind, 0)}
    for name in given.keys() - ({"rope.dimension_count"} if kind == "phi3" else set()):
        came = facts.pop(name, given[name])
        expect(came == given[name], f"{kind}.{name} of {given[name]}, got {came!r:.100}: {OWN}")
    settings = {key: facts.pop(name) for name, key in rules.fields.items() if name in facts}
    if is_wide:
        settings["head_dim"] = width
    if rules.has_angles:
        settings.setdefault("num_key_value_heads", heads)
        settings["rope_parameters"] = _angles(facts, stored, width)
    if kind == "phi3":  # where transformers reads it first
        context = settings["rope_parameters"].get("original_max_position_embeddings")
        context = context or settings["max_position_embeddings"]
        settings["original_max_position_embeddings"] = context
    if kind == "gemma3":
        local = {"rope_type": "default", "rope_theta": facts.pop("rope.freq_base_swa", 10_000.0)}
        angles = settings["rope_parameters"]
        settings["rope_parameters"] = {"full_attention": angles, "sliding_attention": local}
    if kind in ("llama", "qwen3"):
        settings |= {key: True for name, key in _BIASES.items() if name in stored}
    if rules.divided:
        is_divided = layers == rules.divided
        settings["query_pre_attn_scalar"] = hidden // heads if is_divided else width
    if _WINDOW.items() <= rules.fields.items() and not settings.get("sliding_window"):
        settings["sliding_window"] = None
        if rules.divided:  # by default, layers of Gemma slide in turns
            settings["layer_types"] = ["full_attention"] * layers
    left = [name for name, value in facts.items() if value and name not in _SAID_TWICE]
    expect(not left, f"fields that are read here, got {kind}.{min(left, default='')}: {OWN}")
    is_same = output is None or (
        output.tensor_type == embedding.tensor_type and np.array_equal(output.data, embedding.data)
    )
    if is_same:
        stored.pop("output.weight", None)
    return settings | {
        "model_type": "gemma3_text" if kind == "gemma3" else kind,
        "vocab_size": vocab,
        "tie_word_embeddings": is_same,
    }


def _special(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of special tokens, of all that end an answer."""
    ids = {name: said.get(f"tokenizer.ggml.{field}_token_id") for name, field in SPECIAL.items()}
    tokens, kinds = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    turns = [said.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
    turns += [tokens.index(end) for end in _ENDS if end in tokens]
    turns = [end for end in turns if end is not None and kinds[end] == CONTROL]
    if turns:
        ends = list(dict.fromkeys([ids["eos"], *turns]))
        ids["eos"] = ends[0] if len(ends) == 1 else ends
    if ids["unk"] is None:
        del ids["unk"]
    return {f"{name}_token_id": value for name, value in ids.items()}


def _angles(facts: dict[str, Any], stored: dict[str, Any], width: int) -> dict[str, Any]:
    """Return the rotary angles as transformers' ``rope_parameters``. What they are read from is
    taken out of both."""
    theta, rotated = facts.pop("rope.freq_base", 10_000.0), facts.pop("rope.dimension_count", width)
    factor = facts.pop("rope.scaling.factor", 0.0) or 1.0
    kind = facts.pop("rope.scaling.type", "none" if factor == 1.0 else "linear")
    context = facts.pop("rope.scaling.original_context_length", None)
    factors = {name: _floats(stored.pop(name)) for name in _FACTORS if name in stored}
    angles: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if rotated != width:
        angles["partial_rotary_factor"] = rotated / width
    is_so = all(one.shape == (rotated // 2,) for one in factors.values())
    expect(is_so, f"factors of {rotated // 2} angles in {', '.join(factors)}, got others: {AGAIN}")
    stretch: dict[str, Any] | None = None
    match kind, *factors:
        case ["none"]:
            stretch = {}
        case ["linear"]:
            stretch = {"rope_type": "linear", "factor": factor}
        case ["yarn"] if context:
            stretch = {"rope_type": "yarn", "factor": factor}
            for name, turns in {"beta_fast": 32.0, "beta_slow": 1.0}.items():
                stretch[name] = facts.pop(f"rope.scaling.yarn_{name}", turns)
        case ["none", "rope_freqs.weight"]:
            speeds = theta ** -(np.arange(0, rotated, 2) / rotated)
            stretch = _slowed(factors["rope_freqs.weight"].astype(np.float64), speeds)
        case ["none" | "longrope", "rope_factors_long.weight", "rope_factors_short.weight"] if (
            context
        ):
            long, short = (one.tolist() for one in factors.values())
            stretch = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
            stretch["attention_factor"] = facts.pop("rope.scaling.attn_factor", 1.0)
    what = ", ".join([str(kind), *factors])
    expect(stretch is not None, f"a known way of stretching angles, got {what}: {OWN}")
    if stretch and stretch["rope_type"] in ("yarn", "longrope"):
        stretch["original_max_position_embeddings"] = context
    return angles | (stretch or {})


def _slowed(factors: np.ndarray, speeds: np.ndarray) -> dict[str, Any]:
    """Return Llama 3's parameters of angles that are slowed by these factors.

    By its rule the slow ones are slowed by one factor, the fast ones not at all, and between them
    1 ÷ factor grows evenly with the speed (``architectures.Rope``). So two angles between them say
    where that begins and ends, counted in turns within a context that may be any.
    """
    most, context, near = float(factors.max()), 8192, 1e-6
    if factors.min() == most:
        return {"rope_type": "linear", "factor": most} if most != 1 else {}
    turns = context * speeds / (2 * np.pi)
    shares = (1 / factors - 1 / most) / (1 - 1 / most)  # of an angle that is not slowed
    inner = (shares > near) & (shares < 1 - near)
    low = turns[shares <= near].max()
    high = turns[shares >= 1 - near].min(initial=np.inf)
    if inner.any():
        turn, share = turns[inner][0], shares[inner][0]
        if inner.sum() > 1:
            width = (turn - turns[inner][-1]) / (share - shares[inner][-1])
        else:  # any width that does not reach the next ones
            width = min((turn - low) / share, (high - turn) / (1 - share)) / 2
        low, high = turn - share * width, turn + (1 - share) * width
    bounds = low, high
    for digits in (6, 17):  # round numbers, if they are as good
        low, high = (float(f"{end:.{digits}g}") for end in bounds)
        share = ((turns - low) / (high - low)).clip(0, 1)
        if np.allclose(1 / (share + (1 - share) / most), factors, rtol=1e-4):
            ends = {"low_freq_factor": low, "high_freq_factor": high}
            ends |= {"factor": most, "original_max_position_embeddings": context}
            return {"rope_type": "llama3", **ends}
    raise HostError(f"expected factors in rope_freqs.weight by Llama 3's rule, got others: {OWN}")


def _weights(kind: str, model: Any, stored: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a model by their names in transformers."""
    import torch

    rules, config = ARCHITECTURES[kind], model.config
    names = tensor_names(kind, config.num_hidden_layers)
    wanted = {}
    for name, weight in model.state_dict().items():
        stem, _, end = name.rpartition(".")
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            wanted[f"{names.get_name(stem)}.{end}"] = name, tuple(weight.shape)
    lost = min(wanted.keys() - stored.keys(), default=None)
    expect(lost is None, f"a tensor {lost!r}, found none: {AGAIN}")
    more = min(stored.keys() - wanted.keys(), default=None)
    expect(more is None, f"tensors that are read here, got {more!r}: {OWN}")
    tensors = {}
    for stored_name, (name, shape) in wanted.items():
        weight = _floats(stored[stored_name])
        part = stored_name.split(".", 2)[-1]
        if rules.is_interleaved and part.startswith(("attn_q.", "attn_k.")):
            heads = config.num_attention_heads if part[5] == "q" else config.num_key_value_heads
            weight = turned_pairs(weight, heads, weight.shape[0] // heads // 2)
        if stored_name.endswith("norm.weight"):
            weight = weight - np.float32(rules.norm_offset)
        weight = weight.T if part in rules.turned else weight
        came = f"got {weight.shape}: {AGAIN}"
        expect(weight.shape == shape, f"a tensor {stored_name!r} of shape {shape}, {came}")
        tensors[name] = torch.from_numpy(np.array(weight, order="C"))
    return tensors


def tensor_names(kind: str, layers: int) -> Any:
    """Return the names of tensors in files of an architecture, by those of modules
    (``get_name``)."""
    import gguf

    architecture = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    return gguf.get_tensor_name_map(architecture, layers)


def turned_pairs(weight: np.ndarray, heads: int, first: int) -> np.ndarray:
    """Return the rows of queries or keys with the two axes of each head in turned order, of which
    the ``first`` has so many: 2 interleaves the halves, half of the rows undoes it."""
    rows = weight.reshape(heads, first, -1, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def _floats(tensor: Any) -> np.ndarray:
    import gguf

    return np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def _check_header(file: Path) -> None:
    """Walk through all that stands before the weights. The readers follow every length that is
    written there, however far beyond the end of the file.

    Raises:
        ValueError, OverflowError, struct.error: the file ends before its header does.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:

        def number(form: str) -> int:
            return int(struct.unpack(form, stream.read(struct.calcsize(form)))[0])

        def skip(kind: int, count: int) -> None:
            if kind == _TEXT:
                for _ in range(count):
                    stream.seek(number("<Q"), io.SEEK_CUR)
            else:
                stream.seek(count * _BYTES[kind], io.SEEK_CUR)
            if stream.tell() > size:
                raise ValueError("a header that ends within the file")

        if stream.read(8)[:4] != b"GGUF":  # and a version
            raise ValueError("another kind of file")
        tensors, fields = number("<Q"), number("<Q")
        for _ in range(fields):
            skip(_TEXT, 1)
            kind = number("<I")
            skip(*((number("<I"), number("<Q")) if kind == _LIST else (kind, 1)))
        for _ in range(tensors):
            skip(_TEXT, 1)
            stream.seek(8 * number("<I") + 12, io.SEEK_CUR)  # axes, kind of numbers and their place
