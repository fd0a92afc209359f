"""PEFT LoRA folders in and out, with numpy alone.

A folder holds ``adapter_config.json`` and ``adapter_model.safetensors`` with the keys
``base_model.model.<module>.lora_A.weight`` ``(r, d_in)`` and ``….lora_B.weight`` ``(d_out, r)``.
Modules may differ in rank and in alpha (``rank_pattern``, ``alpha_pattern``); here an adapter has
one of each, so smaller ranks are padded with zeros and another scaling is folded into B: both leave
ΔW as it was. What would change ΔW in a way that this library does not compute (DoRA, biases, whole
modules) is refused. LoRA: arXiv:2106.09685; rsLoRA: arXiv:2312.03732; files:
https://huggingface.co/docs/peft.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.errors import AdapterError
from symbiont_ecology.base.files import remove_unfinished, replace_durably
from symbiont_ecology.base.registry import MAX_RANK
from symbiont_ecology.base.untrusted import parse_json, read_regular

PeftConfig: TypeAlias = Mapping[str, Any]
"""What PEFT wrote as JSON; every value is checked where it is used."""
PEFT_CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")

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
MAX_WEIGHTS_MB, MAX_PEFT_CONFIG_MB = 4096, 16
"""Of a file of weights, and of a config."""
MAX_ALPHA = 1e6
"""Of LoRA's alpha, which is about as large as the rank."""
MAX_PATTERNS = 10_000
"""Modules with a rank or an alpha of their own."""
PATTERN_BYTES = 1 << 20
"""That a pattern may take, its automaton included."""
_LITERAL = re.compile(r"[\w.-]+")
"""Names of modules: as patterns, they mean themselves."""
_BASE_CHANGING_STARTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that also change the base weights: their factors mean nothing on the plain
host."""


def read_peft(folder: str | Path, layout: AdapterLayout) -> AdapterWeights:
    """Read an adapter made for a host with this layout; modules that it leaves out stay zero.

    The rank is the largest that any module has. ``lora_dropout`` plays no part outside PEFT's
    training.

    Raises:
        AdapterError: no such folder or file, damaged files, a kind of adapter that is not
            supported, modules that the host lacks, shapes that do not fit, values that are not
            finite.
    """
    folder = Path(folder)
    config, pairs = _read_whole(folder)
    sizes = {name: (d_in, d_out) for name, d_in, d_out in layout.modules}
    base_scaling = _scaling(config, "", int(config["r"]))
    scaling = (
        base_scaling or 1.0
    )  # alpha 0 scales by nothing; only alpha_pattern could bring it back
    factors = {name: _nothing(d_in, d_out) for name, d_in, d_out in layout.modules}
    for module, (a, b) in pairs.items():
        if module not in sizes:
            raise AdapterError(
                f"expected modules of this host, got {module!r} in {folder}: attach it to the "
                "model that "
                "it was made for, or load the host without narrowing its targets"
            )
        check_module_size(module, (a.shape[1], b.shape[0]), sizes[module], folder)
        ratio = _scaling(config, module, len(a)) / scaling
        with np.errstate(over="ignore"):  # what is too large is refused
            scaled = b if ratio == 1.0 else (b * ratio).astype(np.float32)
        _check_size_of_change(module, a, scaled, scaling, folder)
        factors[module] = (a, scaled)
    rank = max(len(a) for a, _ in factors.values())
    return AdapterWeights.from_factors(layout, rank, scaling, factors)


def adapter_modules(folder: str | Path) -> dict[str, tuple[int, int]]:
    """Sizes ``(d_in, d_out)`` of the modules that an adapter changes, after all checks that need no
    host.

    Raises:
        AdapterError: as ``read_peft``, but for modules and sizes of a host.
    """
    _, pairs = _read_whole(Path(folder))
    return {module: (a.shape[1], b.shape[0]) for module, (a, b) in pairs.items()}


def check_module_size(
    module: str, size: tuple[int, int], wanted: tuple[int, int], folder: str | Path
) -> None:
    """Compare the size ``(d_in, d_out)`` of an adapted module with the host's.

    Raises:
        AdapterError: they differ.
    """
    if size != wanted:
        raise AdapterError(
            f"expected A (r, {wanted[0]}) and B ({wanted[1]}, r) for {module}, got A (r, "
            f"{size[0]}) and B ({size[1]}, r) in {folder}: it was made for a host of another size"
        )


def _check_size_of_change(
    module: str, a: np.ndarray, b: np.ndarray, scaling: float, folder: Path
) -> None:
    """Refuse numbers whose product overflows."""
    sizes = (float(np.abs(side).max(initial=0)) for side in (a, b))
    largest = math.prod(sizes) * len(a) * abs(scaling)
    if not largest <= float(np.finfo(np.float32).max):
        raise AdapterError(
            f"expected a change of {module} that float32 can hold, got numbers up to "
            f"{largest:.2g} in {folder}: train it with a smaller alpha or learning rate"
        )


def stated_rank(folder: str | Path) -> int:
    """Return the largest rank that an adapter's config names: what a slot must hold to take it.

    Raises:
        AdapterError: no such folder, a damaged config, or a kind of adapter that is not supported.
    """
    config = _read_config(Path(folder))
    return max(int(rank) for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))


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
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": weights.rank,
        "lora_alpha": weights.scaling * weights.rank,
        "target_modules": _targets(weights.layout, unadapted),
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
        _replace(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt"}))
        _replace(folder / "README.md", (head + card).encode())
        _replace(folder / PEFT_CONFIG_FILE, (json.dumps(config, indent=2) + "\n").encode())
    except OSError as error:
        raise AdapterError(
            f"expected a folder that can be written, got {folder} ({error.strerror})"
        ) from error


def _read_whole(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Config and ``{module: (A, B)}``: an adapter that is whole by itself."""
    config = _read_config(folder)
    pairs = _pairs(_read_tensors(folder), folder)
    for module, (a, b) in pairs.items():
        if a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1] or not len(a):
            raise AdapterError(
                f"expected A (r, d_in) and B (d_out, r) for {module}, got {a.shape} and "
                f"{b.shape} in {folder}: export the adapter again"
            )
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise AdapterError(
                f"expected finite weights, got NaN or infinity in {module} of {folder}"
            )
        if len(a) != _patterned(config, "rank_pattern", module, config["r"]):
            raise AdapterError(
                f"expected the rank that {PEFT_CONFIG_FILE} states, got {len(a)} for {module} in "
                f"{folder}"
            )
    return config, pairs


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the adapter's config, refused unless it is plain LoRA."""
    path = folder / PEFT_CONFIG_FILE
    if not folder.is_dir():
        raise AdapterError(
            f"expected a PEFT adapter folder, found no folder {str(folder)!r}: check the path"
        )
    if not path.is_file():
        raise AdapterError(
            f"expected {PEFT_CONFIG_FILE} in {folder}, found none: is this a whole PEFT adapter "
            "folder?"
        )
    try:
        config = parse_json(read_regular(path, MAX_PEFT_CONFIG_MB))
    except (OSError, ValueError) as error:
        raise AdapterError(
            f"expected JSON in {path}, got damaged text ({error}): export the adapter again"
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
        raise AdapterError(
            f"expected a LORA adapter, got peft_type {kind!r} in {folder}: only LoRA can be "
            "attached"
        )
    for field, meaning in _REFUSED.items():
        if config.get(field):
            raise AdapterError(
                f"expected a plain LoRA adapter, got {meaning} in {folder}: train it without"
            )
    if config.get("bias", "none") != "none":
        raise AdapterError(
            f"expected bias 'none', got {config['bias']!r} in {folder}: train it without biases"
        )
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_BASE_CHANGING_STARTS):
        raise AdapterError(
            f"expected factors for the plain host, got {start!r} in {folder}: convert it to plain "
            "LoRA"
        )
    if not _is_rank(config.get("r")) or not _is_alpha(config.get("lora_alpha")):
        raise AdapterError(
            f"expected r >= 1, at most {MAX_RANK}, and lora_alpha up to {MAX_ALPHA:g} as "
            "numbers, "
            f"got r={config.get('r')!s:.60} lora_alpha={config.get('lora_alpha')!s:.60} in {path}"
        )
    for field, is_fine in (("rank_pattern", _is_rank), ("alpha_pattern", _is_alpha)):
        pattern = config.get(field) or {}
        if not isinstance(pattern, dict) or not all(map(is_fine, pattern.values())):
            raise AdapterError(
                f"expected {field} as a table of numbers like the above, got {pattern!r:.100} in "
                f"{path}"
            )
        if len(pattern) > MAX_PATTERNS:
            raise AdapterError(f"expected at most {MAX_PATTERNS} names in {field} of {path}")
    return config


def _read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Return all tensors of the weights file as float32."""
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        if any(folder.glob("*.bin")):
            raise AdapterError(
                f"expected {WEIGHTS_FILE} in {folder}, found pickled weights (.bin), which can "
                "run code: "
                "save the adapter again with safe_serialization=True"
            )
        raise AdapterError(
            f"expected {WEIGHTS_FILE} in {folder}, found none: export the adapter again"
        )
    if (megabytes := path.stat().st_size / 2**20) > MAX_WEIGHTS_MB:
        raise AdapterError(
            f"expected at most {MAX_WEIGHTS_MB} MB of weights, got {megabytes:.0f} in {path}"
        )
    try:
        entries = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (SafetensorError, OSError) as error:
        raise AdapterError(
            f"expected safetensors in {path}, got a damaged file ({error}): export it again"
        ) from error
    return {name: _as_float32(entry, name, path) for name, entry in entries}


def _as_float32(entry: PeftConfig, name: str, path: Path) -> np.ndarray:
    """Return one raw tensor; numpy has no bfloat16, which is the upper half of a float32."""
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    if entry["dtype"] not in kinds:
        raise AdapterError(
            f"expected floating point weights, got {entry['dtype']} for {name} in {path}"
        )
    raw = np.frombuffer(entry["data"], dtype=kinds[entry["dtype"]])
    if entry["dtype"] == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32).reshape(entry["shape"])


def _pairs(
    tensors: Mapping[str, np.ndarray], folder: Path
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """``{module: (A, B)}``; everything else in the file is refused."""
    sides: dict[str, dict[str, np.ndarray]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise AdapterError(
                f"expected keys base_model.model.<module>.lora_A.weight, got {key!r} in {folder}"
            )
        sides.setdefault(match["module"], {})[match["side"]] = tensor
    for module, pair in sides.items():
        if len(pair) != 2:
            raise AdapterError(
                f"expected lora_A and lora_B for {module}, found only lora_{min(pair)} in {folder}"
            )
    if not sides:
        raise AdapterError(
            f"expected LoRA weights, found none in {folder}: was the adapter trained at all?"
        )
    return {module: (pair["A"], pair["B"]) for module, pair in sides.items()}


def _scaling(config: PeftConfig, module: str, rank: int) -> float:
    """What multiplies B · A of one module: alpha / r, or alpha / √r for rsLoRA."""
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
    """Return a pattern at the end of a name. RE2 matches in time that grows with the name alone, so
    no stranger's pattern can keep it busy.

    Raises:
        AdapterError: it is no pattern, or none that is regular.
    """
    import re2

    options = re2.Options()
    options.max_mem, options.log_errors = PATTERN_BYTES, False
    try:
        return re2.compile(rf"(?:.*\.)?(?:{pattern})", options)
    except (re2.error, UnicodeEncodeError) as error:
        raise AdapterError(
            f"expected regular expressions in {field}, got {pattern!r:.100} ({error}): write the "
            "names out one by one"
        ) from error


def _targets(layout: AdapterLayout, unadapted: Collection[str]) -> list[str]:
    """Bare endings when they name exactly the layout's modules, whole names otherwise."""
    endings = {name.rsplit(".", 1)[-1] for name, _, _ in layout.modules}
    if any(name.rsplit(".", 1)[-1] in endings for name in unadapted):
        return [name for name, _, _ in layout.modules]
    return sorted(endings)


def _nothing(d_in: int, d_out: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((0, d_in), dtype=np.float32), np.zeros((d_out, 0), dtype=np.float32)


def _is_rank(value: object) -> bool:
    return _is_number(value) and 1 <= value <= MAX_RANK  # type: ignore[operator]


def _is_alpha(value: object) -> bool:
    return _is_number(value) and -MAX_ALPHA <= value <= MAX_ALPHA  # type: ignore[operator]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or not there."""
    part = path.with_name(f".{path.name}.part")
    remove_unfinished(part)
    try:
        part.write_bytes(data)
        replace_durably(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
