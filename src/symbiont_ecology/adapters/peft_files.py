"""LoRA folders of PEFT in and out, and of mlx-lm in, with numpy alone.

A folder of PEFT holds ``adapter_config.json`` and ``adapter_model.safetensors`` with the keys
``base_model.model.<module>.lora_A.weight`` ``(r, d_in)`` and ``….lora_B.weight`` ``(d_out, r)``.
Other writers leave the stem out, put an adapter's name before ``weight``, or names of wrappers of
training between those of modules (``_orig_mod``), or train the text model by itself or within one
that sees (``model``, ``language_model``): it is read all the same. Modules may differ in rank and
in alpha (``rank_pattern``, ``alpha_pattern``); here an adapter has one of each, so smaller ranks
are padded with zeros and another scaling is folded into B: both leave ΔW as it was.

A folder of mlx-lm has ``lora_parameters`` in its config, and ``adapters.safetensors`` with
``<module>.lora_a`` ``(d_in, r)`` and ``….lora_b`` ``(r, d_out)``: ΔW = scale · (a · b)ᵀ.

What would change ΔW in a way that this library does not compute (DoRA, biases, whole modules,
embeddings and heads) is refused. LoRA: arXiv:2106.09685; rsLoRA: arXiv:2312.03732; files:
https://huggingface.co/docs/peft, https://github.com/ml-explore/mlx-lm.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.errors import AdapterError, EcologyWarning, RunError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.registry import MAX_RANK
from symbiont_ecology.base.untrusted import PatternError, parse_json, read_pattern, read_regular

PeftConfig: TypeAlias = Mapping[str, Any]
"""JSON that PEFT wrote, after the checks of ``_read_config``."""
Pairs: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]
"""A ``(r, d_in)`` and B ``(d_out, r)`` by module."""
PEFT_CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE, MLX_WEIGHTS_FILE = "adapter_model.safetensors", "adapters.safetensors"
MAX_WEIGHTS_MB, MAX_PEFT_CONFIG_MB = 4096, 16
"""Size of a file of weights, and of a config."""
MAX_ALPHA = 1e6
"""LoRA's alpha, which is about as large as the rank."""
MAX_PATTERNS = 10_000
"""Modules with a rank or an alpha of their own."""
GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Endings of modules that servers hold as one matrix."""
_KEY = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+)\.lora_"
    r"(?:(?P<side>[AB])(?:\.(?P<name>[^.]+))?\.weight|(?P<mlx>[ab]))"
)
_WRAPPERS = re.compile(r"\b(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Names that DDP, torch.compile, FSDP and checkpointing put between those of modules."""
_OUTER = re.compile(r"\b(?:model|language_model)\.")
_OUTSIDE = re.compile(
    r"lora_embedding_|(?:^|\.)(?:embed_tokens|lm_head|wte|wpe|embed_in|embed_out|word_embeddings)\."
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_LITERAL = re.compile(r"[\w.-]+")
"""Names of modules: as patterns, they mean themselves."""
_CACHED = re.compile(r"models--[^/\\]+--([^/\\]+)[/\\]snapshots\b")
_SIZE, _WORD = re.compile(r"\d+(?:\.\d+)*[bm]"), re.compile(r"\d+(?:\.\d+)*[a-z]*|[a-z]+")
_FORMAT = re.compile(
    r"(?<![a-z0-9])(?:meta|hf|unsloth|bnb|sharded|gguf|i1|ggml|gptq|awq|exl2|mlx|onnx|dwq|qat|"
    r"dynamic|quantized|\d+bit|(?:nv|mx)?fp\d+|b?f\d+|nf4|int\d+|w\d+a\d+|i?q\d\w*|v0\.1|"
    r"[0-9a-f]{12}.*)(?![a-z0-9])"
)
"""Words of names that say how a model is stored, or nothing; and the digest of a GGUF file."""
_REFUSED = {
    "use_dora": "DoRA",
    "use_qalora": "QA-LoRA",
    "lora_bias": "biases on B (lora_bias)",
    "modules_to_save": "whole trained modules (modules_to_save)",
    "layer_replication": "replicated layers (layer_replication)",
    "trainable_token_indices": "trained token embeddings (trainable_token_indices)",
    "target_parameters": "adapters on bare parameters (target_parameters)",
    "alora_invocation_tokens": "activated LoRA (alora_invocation_tokens)",
    "use_bdlora": "block-diagonal LoRA (use_bdlora)",
    "kasa_config": "KaSA",
    "arrow_config": "Arrow routing",
    "monteclora_config": "MonteCLoRA",
}
_BESIDE = ("new_embeddings.safetensors", "new_embeddings.bin", "non_lora_trainables.bin")
"""Files of weights that belong to an adapter and are no LoRA."""
_MLX_FIELD = "lora_parameters"
"""Field by which a config of mlx-lm is known."""
_BASE_CHANGING_STARTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that also change the base weights: their factors mean nothing on the plain
host."""
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_EXPORT = "export the adapter again"


def read_peft(folder: str | Path, layout: AdapterLayout) -> AdapterWeights:
    """Return an adapter made for a host with this layout; modules that it leaves out stay zero.

    The rank is the largest that any module has. ``lora_dropout`` plays no part outside PEFT's
    training.

    Raises:
        AdapterError: no such folder or file, damaged files, a kind of adapter that is not
            supported, modules that the host lacks, shapes that do not fit, values that are not
            finite.
    """
    config, pairs = _read_whole(folder := Path(folder))
    sizes = {name: (d_in, d_out) for name, d_in, d_out in layout.modules}
    names = {_core_name(name): name for name in sizes}
    # alpha 0 scales by nothing; only alpha_pattern could bring it back
    scaling = _scaling(config, "", int(config["r"])) or 1.0
    factors = {name: _nothing(d_in, d_out) for name, d_in, d_out in layout.modules}
    for told, (a, b) in pairs.items():
        module = told if told in sizes else names.get(_core_name(told), told)
        if module not in sizes:
            raise _refusal(
                "modules of this host",
                repr(module),
                folder,
                "attach it to the model that it was made for, or load the host without narrowing "
                "its targets",
            )
        size = a.shape[1], b.shape[0]
        if size != sizes[module]:
            wanted, got = (
                f"A (r, {one}) and B ({other}, r)" for one, other in (sizes[module], size)
            )
            todo = "it was made for a host of another size"
            raise _refusal(f"{wanted} for {module}", got, folder, todo)
        ratio = _scaling(config, told, len(a)) / scaling
        with np.errstate(over="ignore"):  # what is too large is refused
            scaled = b if ratio == 1.0 else (b * ratio).astype(np.float32)
        peaks = (float(np.abs(side).max(initial=0)) for side in (a, scaled))
        peak = math.prod(peaks) * len(a) * abs(scaling)
        if not peak <= float(np.finfo(np.float32).max):
            raise _refusal(
                f"a change of {module} that float32 can hold",
                f"numbers up to {peak:.2g}",
                folder,
                "train it with a smaller alpha or learning rate",
            )
        factors[module] = (a, scaled)
    rank = max(len(a) for a, _ in factors.values())
    return AdapterWeights.from_factors(layout, rank, scaling, factors)


def adapter_modules(folder: str | Path) -> dict[str, tuple[int, int]]:
    """Return the sizes ``(d_in, d_out)`` of the modules that an adapter changes, after all checks
    that need no host.

    Raises:
        AdapterError: as ``read_peft``, but for modules and sizes of a host.
    """
    _, pairs = _read_whole(Path(folder))
    return {module: (a.shape[1], b.shape[0]) for module, (a, b) in pairs.items()}


def stated_rank(folder: str | Path) -> int:
    """Return the largest rank that an adapter's config names: what a slot must hold to take it.

    Raises:
        AdapterError: no such folder, a damaged config, or a kind of adapter that is not supported.
    """
    config = _read_config(Path(folder))
    return max(int(rank) for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))


def warn_of_base(folder: str | Path, host: str) -> None:
    """Warn, once, of an adapter whose config names another model than this host.

    One model has many names: those of publishers, formats and precisions do not count. A name
    without a size (``7B``) says too little, and of a local folder its size alone is compared.

    Raises:
        AdapterError: as ``stated_rank``.
    """
    base = str(_read_config(Path(folder)).get("base_model_name_or_path") or "")
    made_for, own = _words_of(base), _words_of(host)
    if not (made_for and own and _is_of_hub(base)):
        return
    if not (_is_of_hub(host) or host.endswith(".gguf")):
        made_for, own = (
            {word for word in words if _SIZE.fullmatch(word)} for words in (made_for, own)
        )
    if own != made_for:
        _warn_once(
            f"{folder} was made for {base}, and the host is {host}: on another model an adapter "
            "means nothing"
        )


@cache
def _warn_once(text: str) -> None:
    warnings.warn(text, EcologyWarning, stacklevel=3)


def write_peft(
    folder: str | Path,
    weights: AdapterWeights,
    *,
    base_model: str,
    unadapted: Collection[str] = (),
    fan_in_fan_out: bool = False,
    layers: Collection[int] | None = None,
    model_card: str = "",
) -> None:
    """Write an adapter so that ``PeftModel.from_pretrained(model, folder)`` loads it.

    The config is removed first and written last: an interrupted export is a folder without config,
    which every reader refuses.

    Args:
        folder: made when missing; an adapter already in it is replaced.
        weights: the adapter; all modules of its layout are written.
        base_model: name or folder of the host.
        unadapted: other linear modules of the host; targets are written as bare endings
            (``q_proj``) only when none of these ends alike.
        fan_in_fan_out: whether the host stores its weights as ``(d_in, d_out)``, as GPT-2 does.
        layers: numbers of the layers that carry adapters, if other layers have modules of the
            same endings.
        model_card: text of the README.

    Raises:
        AdapterError: the folder cannot be written.
    """
    folder = Path(folder)
    tensors: dict[str, np.ndarray] = {}
    for module, a, b in weights.factors():
        tensors[f"base_model.model.{module}.lora_A.weight"] = np.ascontiguousarray(a)
        tensors[f"base_model.model.{module}.lora_B.weight"] = np.ascontiguousarray(b)
    names = [name for name, _, _ in weights.layout.modules]
    endings = set(map(ending_of, names))
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": weights.rank,
        "lora_alpha": weights.scaling * weights.rank,
        "target_modules": sorted(endings)
        if endings.isdisjoint(map(ending_of, unadapted))
        else names,
        **({} if layers is None else {"layers_to_transform": sorted(layers)}),
        "fan_in_fan_out": fan_in_fan_out,
        "bias": "none",
        "lora_dropout": 0.0,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "init_lora_weights": True,
        "inference_mode": True,
    }
    head = f"---\nbase_model: {json.dumps(base_model)}\nlibrary_name: peft\ntags:\n- lora\n---\n\n"
    card = model_card or f"# LoRA adapter\n\nRank {weights.rank}, exported by symbiont-ecology.\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PEFT_CONFIG_FILE).unlink(missing_ok=True)
        write_whole(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt"}))
        write_whole(folder / "README.md", head + card)
        write_whole(folder / PEFT_CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    except (OSError, RunError) as error:
        raise AdapterError(
            f"expected a folder that can be written, got {folder} ({error})"
        ) from error


def write_portable(
    folder: str | Path,
    weights: AdapterWeights,
    *,
    modules: Sequence[tuple[str, int, int]],
    base_model: str,
    model_card: str = "",
) -> None:
    """Write an adapter so that PEFT, vLLM and SGLang load it. ``modules`` are all linear modules of
    the host, ``(name, d_in, d_out)``; the other arguments are those of ``write_peft``.

    Servers read less of PEFT than PEFT writes. SGLang takes alpha ÷ r alone for the scaling, bare
    endings alone for targets, and q, k and v together, since it holds them as one matrix; vLLM
    refuses patterns, biases and whole modules. So the folder has one rank, the scaling within
    ``lora_alpha``, bare endings, the numbers of the layers, and zeros for modules that complete a
    group. None of it changes ΔW. vLLM: https://docs.vllm.ai; SGLang: https://docs.sglang.ai.

    Raises:
        AdapterError: the folder cannot be written, or the host's modules are in no numbered layers.
    """
    layout = complete_layout(weights.layout, modules)
    factors = {name: _nothing(d_in, d_out) for name, d_in, d_out in layout.modules}
    factors |= {name: (a, b) for name, a, b in weights.factors()}
    completed = AdapterWeights.from_factors(layout, weights.rank, weights.scaling, factors)
    layers = {_layer(name) for name, _, _ in layout.modules}
    write_peft(folder, completed, base_model=base_model, layers=layers, model_card=model_card)


def complete_layout(
    layout: AdapterLayout, modules: Sequence[tuple[str, int, int]]
) -> AdapterLayout:
    """Return the layout with all that endings and layers alone would name, groups being whole.

    Raises:
        AdapterError: a module is in no numbered layer.
    """
    endings = {ending_of(name) for name, _, _ in layout.modules}
    for group in GROUPS:
        if endings & set(group):
            endings |= set(group)
    layers = {_layer(name) for name, _, _ in layout.modules}
    matches = (module for module in modules if ending_of(module[0]) in endings)
    return AdapterLayout(tuple(module for module in matches if _layer(module[0]) in layers))


def ending_of(module: str) -> str:
    """Return the last part of a module's name."""
    return module.rpartition(".")[2]


def _layer(module: str) -> int:
    match = _LAYER.search(module)
    if match is None:
        raise AdapterError(
            f"expected modules such as model.layers.0.self_attn.q_proj, got {module!r}: servers "
            "take adapters of Llama-like hosts alone"
        )
    return int(match[1])


def _core_name(module: str) -> str:
    """Return a module's name as it is within the text model, whatever model that is part of."""
    return _OUTER.sub("", module)


def _is_of_hub(model: str) -> bool:
    """Return True for a name of the Hugging Face hub, also as a folder of its cache."""
    is_local = model.startswith((".", "/", "~")) or model.count("/") != 1 or "\\" in model
    return _CACHED.search(model) is not None or not (is_local or Path(model).exists())


def _words_of(model: str) -> set[str]:
    """Return the words and numbers that tell models apart, of a name with a size."""
    cached = _CACHED.search(model)
    last = cached[1] if cached else re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    words = _WORD.findall(_FORMAT.sub(" ", last.lower().replace("___", ".")))
    return set(words) if any(map(_SIZE.fullmatch, words)) else set()


def _refusal(wanted: str, got: str, place: str | Path, todo: str = _EXPORT) -> AdapterError:
    return AdapterError(f"expected {wanted}, got {got} in {place}: {todo}")


def _read_whole(folder: Path) -> tuple[PeftConfig, Pairs]:
    """Return config and factors of an adapter that is whole by itself."""
    config = _read_config(folder)
    name = MLX_WEIGHTS_FILE if _MLX_FIELD in config else WEIGHTS_FILE
    pairs = _pairs(_read_tensors(folder / name), folder)
    for module, (a, b) in pairs.items():
        if a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1] or not len(a):
            shapes, is_empty = f"{a.shape} and {b.shape}", not (a.size and b.size)
            todo = "gather the shards of the model when you save" if is_empty else _EXPORT
            raise _refusal(f"A (r, d_in) and B (d_out, r) for {module}", shapes, folder, todo)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise _refusal("finite weights", f"NaN or infinity in {module}", folder)
        if len(a) != _patterned(config, "rank_pattern", module, config["r"]):
            wanted = f"the rank that {PEFT_CONFIG_FILE} states"
            raise _refusal(wanted, f"{len(a)} for {module}", folder)
    return config, pairs


def _read_config(folder: Path) -> PeftConfig:
    """Return the adapter's config; refused unless it is plain LoRA."""
    path = folder / PEFT_CONFIG_FILE
    if not path.is_file():
        inner = sorted(folder.glob(f"*/{PEFT_CONFIG_FILE}"))
        todo = f"take {inner[0].parent}" if inner else "check the path"
        raise _refusal(f"a PEFT folder with {PEFT_CONFIG_FILE}", "none", folder, todo)
    try:
        config = parse_json(read_regular(path, MAX_PEFT_CONFIG_MB))
    except (OSError, ValueError) as error:
        raise _refusal("JSON", f"damaged text ({error})", path) from error
    if isinstance(config, dict) and "peft_type" not in config and _MLX_FIELD in config:
        config = _as_of_peft(config, path)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
        raise _refusal("a LORA adapter", f"peft_type {kind!r}", path, "only LoRA can be attached")
    start = str(config.get("init_lora_weights"))
    unusual = [meaning for field, meaning in _REFUSED.items() if config.get(field)]
    unusual += [f"more weights in {name}" for name in _BESIDE if (folder / name).exists()]
    if config.get("bias", "none") != "none":
        unusual.append(f"bias {config['bias']!r}")
    if start.lower().startswith(_BASE_CHANGING_STARTS):
        unusual.append(f"factors for a changed host ({start})")
    if unusual:
        raise _refusal("plain LoRA", unusual[0], path, "train it without, or convert it")
    _check_numbers(config, "r", "rank_pattern", 1, MAX_RANK, path)
    _check_numbers(config, "lora_alpha", "alpha_pattern", -MAX_ALPHA, MAX_ALPHA, path)
    return config


def _as_of_peft(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a config of mlx-lm in PEFT's words. What it scales by is ``scale`` alone; until June
    2024, before it wrote ``fine_tune_type``, it was scale · alpha ÷ rank."""
    parameters = config[_MLX_FIELD] if isinstance(config[_MLX_FIELD], dict) else {}
    kind = "dora" if config.get("use_dora") else config.get("fine_tune_type", "lora")
    if kind != "lora":
        raise _refusal("plain LoRA", f"fine_tune_type {kind!r}", path, "train it with lora")
    _check_numbers(parameters, "rank", "", 1, MAX_RANK, path)
    _check_numbers(parameters, "scale", "", -MAX_ALPHA, MAX_ALPHA, path)
    rank, scale = parameters["rank"], parameters["scale"]
    if "fine_tune_type" not in config and parameters.get("alpha", rank) != rank:
        raise _refusal(
            "fine_tune_type beside alpha",
            "none",
            path,
            "before June 2024 mlx-lm scaled by scale · alpha ÷ rank, since then by scale: write "
            "what it was into scale, and remove alpha",
        )
    plain = {"peft_type": "LORA", "r": rank, "lora_alpha": scale * rank, _MLX_FIELD: parameters}
    return {**plain, "base_model_name_or_path": config.get("model")}


def _check_numbers(
    config: PeftConfig, field: str, patterns: str, low: float, high: float, path: Path
) -> None:
    """Refuse a rank or an alpha beyond these bounds, or too many of them."""
    pattern = config.get(patterns) or {}
    if not isinstance(pattern, dict) or len(pattern) > MAX_PATTERNS:
        wanted = f"a table of at most {MAX_PATTERNS} numbers in {patterns}"
        raise _refusal(wanted, f"{pattern!r:.100}", path)
    for name, value in ((field, config.get(field)), *pattern.items()):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and low <= value <= high):
            fields = " and ".join(filter(None, (field, patterns)))
            wanted = f"numbers from {low:g} to {high:g} in {fields}"
            raise _refusal(wanted, f"{value!r:.60} for {name!r:.60}", path)


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return all tensors of the weights file as float32."""
    folder = path.parent
    if not path.is_file():
        todo = _EXPORT
        if any(folder.glob("*.bin")):
            todo = "pickled weights (.bin) can run code, save it with safe_serialization=True"
        raise AdapterError(f"expected {path.name} in {folder}, found none: {todo}")
    if (megabytes := path.stat().st_size / 2**20) > MAX_WEIGHTS_MB:
        raise _refusal(f"at most {MAX_WEIGHTS_MB} MB of weights", f"{megabytes:.0f}", path)
    try:
        entries = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (SafetensorError, OSError) as error:
        fault = " ".join(str(error).split())
        raise _refusal("safetensors", f"a damaged file ({fault})", path) from error
    return {name: _as_float32(entry, name, path) for name, entry in entries}


def _as_float32(entry: Mapping[str, Any], name: str, path: Path) -> np.ndarray:
    """Return one raw tensor; numpy has no bfloat16, which is the upper half of a float32."""
    if entry["dtype"] not in _FLOATS:
        raise _refusal("floating point weights", f"{entry['dtype']} for {name}", path)
    raw = np.frombuffer(entry["data"], dtype=_FLOATS[entry["dtype"]])
    if entry["dtype"] == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32).reshape(entry["shape"])


def _pairs(tensors: Mapping[str, np.ndarray], folder: Path) -> Pairs:
    """Return the factors by module; everything else in the file is refused."""
    sides: dict[str, dict[str, np.ndarray]] = {}
    names = set[str | None]()
    for key, tensor in tensors.items():
        plain = _WRAPPERS.sub("", key)
        if _OUTSIDE.search(plain):
            wanted, todo = "adapters of linear layers", "train it without embeddings and heads"
            raise _refusal(wanted, repr(key), folder, todo)
        match = _KEY.fullmatch(plain)
        if match is None:
            wanted, todo = "keys base_model.model.<module>.lora_A.weight", "train LoRA alone"
            raise _refusal(wanted, repr(key), folder, todo)
        names.add(match["name"])
        side, pair = match["side"] or match["mlx"].upper(), sides.setdefault(match["module"], {})
        if side in pair or len(names) > 1:
            raise _refusal("one adapter in a file", f"{key!r} beside others", folder)
        pair[side] = tensor if match["side"] else tensor.T
    for module, pair in sides.items():
        if len(pair) != 2:
            wanted = f"lora_A and lora_B for {module}"
            raise _refusal(wanted, f"only lora_{min(pair)}", folder)
    if not sides:
        raise AdapterError(
            f"expected LoRA weights, found none in {folder}: was the adapter trained at all?"
        )
    return {module: (pair["A"], pair["B"]) for module, pair in sides.items()}


def _scaling(config: PeftConfig, module: str, rank: int) -> float:
    """Return the factor before B · A of one module: alpha / r, or alpha / √r for rsLoRA."""
    alpha = _patterned(config, "alpha_pattern", module, config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _patterned(config: PeftConfig, field: str, module: str, default: float) -> float:
    """Return the value of the first pattern that the module's name ends with: PEFT's own rule."""
    for pattern, value in (config.get(field) or {}).items():
        if _LITERAL.fullmatch(pattern):
            is_meant = f".{module}".endswith(f".{pattern}")
        else:
            is_meant = _compiled(pattern, field).fullmatch(module) is not None
        if is_meant:
            return float(value)
    return float(default)


@lru_cache(maxsize=MAX_PATTERNS)
def _compiled(pattern: str, field: str) -> Any:
    """Return a pattern at the end of a name.

    Raises:
        AdapterError: it is no pattern, or none that is regular.
    """
    try:
        return read_pattern(rf"(?:.*\.)?(?:{pattern})", max_chars=None)
    except PatternError as error:
        raise _refusal(
            "regular expressions", f"{error!s:.200}", field, "write the names out one by one"
        ) from error


def _nothing(d_in: int, d_out: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((0, d_in), dtype=np.float32), np.zeros((d_out, 0), dtype=np.float32)
