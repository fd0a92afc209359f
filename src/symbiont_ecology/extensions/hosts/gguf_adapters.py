"""llama.cpp and ollama as readers of an export: each adapter is a GGUF file, too.

The file holds ``general.type`` adapter, ``adapter.type`` lora, ``adapter.lora.alpha``, and for each
module ``blk.N.attn_q.weight.lora_a`` ``(r, d_in)`` and ``….lora_b`` ``(d_out, r)``, in float32:
ΔW = alpha ÷ r · B · A. Modules have the names of llama.cpp. Where it interleaves the rows of
queries and keys, those of B are interleaved, too. A ``Modelfile`` tells ollama how the run asked.
https://github.com/ggml-org/llama.cpp, https://docs.ollama.com/modelfile.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.peft_files import ending_of
from symbiont_ecology.base.errors import AdapterError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.evaluate.export import Reader, readers
from symbiont_ecology.extensions.hosts.gguf_files import ARCHITECTURES, tensor_names, turned_pairs
from symbiont_ecology.run.run import Run
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

ADAPTER_FILE, MODEL_FILE = "adapter.gguf", "Modelfile"
_KINDS = {"mistral": "llama", "gemma3_text": "gemma3"}
"""Architectures of GGUF by the ``model_type`` of a config, where they differ."""


def write_gguf_adapter(file: Path, weights: AdapterWeights, config: Mapping[str, Any]) -> None:
    """Write an adapter of the host with that config as a GGUF file.

    Raises:
        AdapterError: GGUF has no name for the architecture or a module, or the file cannot be
            written.
    """
    import gguf

    config = config.get("text_config", config)
    kind = _KINDS.get(config["model_type"], config["model_type"])
    if kind not in ARCHITECTURES:
        raise AdapterError(
            f"expected a host of one of the architectures {', '.join(ARCHITECTURES)}, got "
            f"{kind!r:.100}: export with --for peft, and convert with a script of llama.cpp"
        )
    names = tensor_names(kind, config.get("num_hidden_layers") or config["n_layer"])
    queries = config.get("num_attention_heads")
    heads = {"q_proj": queries, "k_proj": config.get("num_key_value_heads") or queries}
    tensors = dict[str, np.ndarray]()
    for module, a, b in weights.factors():
        if (name := names.get_name(module.replace("language_model.", ""))) is None:
            raise AdapterError(f"expected modules that GGUF has a name for, got {module!r}")
        count = heads.get(ending_of(module)) if ARCHITECTURES[kind].is_interleaved else None
        b = turned_pairs(b, count, 2) if count else b
        tensors |= {f"{name}.weight.lora_a": a, f"{name}.weight.lora_b": b}
    try:
        writer = gguf.GGUFWriter(file, kind)
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, weights.scaling * weights.rank)
        for name, tensor in tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(tensor))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    except OSError as error:
        raise AdapterError(f"expected a file that can be written, got {file} ({error})") from error


@readers.register("llama.cpp")
@dataclass(frozen=True)
class LlamaCpp(Reader):
    """llama.cpp, with adapters as GGUF files."""

    def add(self, run: Run, folder: Path, weights: AdapterWeights, asked: str) -> None:
        from symbiont_ecology.model.loading import read_model_config

        config = read_model_config(Path(run.kernel.name_or_path))
        write_gguf_adapter(folder / ADAPTER_FILE, weights, config)

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        model, lines = _model_of(run), list[str]()
        if Path(model).is_dir():
            words = ["python", "convert_hf_to_gguf.py", model]
            model = str(target.resolve() / "model.gguf")
            lines = [
                "convert the host, with a script of llama.cpp:",
                _typed(*words, "--outfile", model),
            ]
        words = ["llama-server", "-m", model, "--lora-init-without-apply"]
        for name in names:
            words += ["--lora", str(target.resolve() / name / ADAPTER_FILE)]
        asked = 'start it; "lora": [{"id": 0, "scale": 1}] in a request asks the first adapter:'
        return [*lines, asked, _typed(*words)]


@readers.register("ollama")
@dataclass(frozen=True)
class Ollama(LlamaCpp):
    """ollama, with a Modelfile for each adapter."""

    def add(self, run: Run, folder: Path, weights: AdapterWeights, asked: str) -> None:
        super().add(run, folder, weights, asked)
        style = prompt_styles.build(run.config.tasks.style)
        lines = [f"# Asked {asked}.", f"FROM {_model_of(run)}", f"ADAPTER ./{ADAPTER_FILE}"]
        if not style.is_chat:
            around = (_literal(text) for text in (weights.phrase, style.line_end))
            lines += [f'TEMPLATE """{"{{ .Prompt }}".join(around)}"""']
        if style.system:
            lines += [f'SYSTEM """{style.system}"""']
        lines += [f'PARAMETER stop """{stop}"""' for stop in style.stops]
        write_whole(folder / MODEL_FILE, "\n".join([*lines, "PARAMETER temperature 0", ""]))

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        files = {name: str(target.resolve() / name / MODEL_FILE) for name in names}
        made = [_typed("ollama", "create", name, "-f", file) for name, file in files.items()]
        return ["make models of them:", *made]


def _model_of(run: Run) -> str:
    """Return the GGUF file that is a run's host, or the folder of the host."""
    model = run.config.host.model
    is_file = model.endswith(".gguf")
    return str(Path(model).expanduser().resolve()) if is_file else run.kernel.name_or_path


def _literal(text: str) -> str:
    """Return what a template of ollama prints as this text."""
    return f"{{{{ {json.dumps(text)} }}}}" if text else ""


def _typed(*words: str) -> str:
    return f"  {shlex.join(words)}"
