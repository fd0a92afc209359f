"""Tiny random hosts for tests, real folders made in a moment, and the same adapters on PEFT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.types import HOST_SLOT, Lesson
from symbiont_ecology.extensions.hosts.packages import hosts_folder
from symbiont_ecology.model.backend.torch_backend import back_ends
from symbiont_ecology.model.kernel import HostKernel

PROMPTS = (
    *("12+7=", "a", "the quick brown fox jumps", "réd", "x" * 40, "7*8", "rev abc"),
    "count the words in this line",
)


LLAMA_LIKE: dict[str, object] = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 384,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "qwen3": ("Qwen3", LLAMA_LIKE),
    "qwen2": ("Qwen2", {name: value for name, value in LLAMA_LIKE.items() if name != "head_dim"}),
    "llama": (
        "Llama",
        LLAMA_LIKE | {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
    ),
    "mistral": ("Mistral", LLAMA_LIKE | {"sliding_window": None}),
    "sliding mistral": ("Mistral", LLAMA_LIKE | {"sliding_window": 16}),
    "gemma3": ("Gemma3", LLAMA_LIKE | {"sliding_window": 16, "query_pre_attn_scalar": 48}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 512}),
}
"""Architectures with the sizes of their tiny hosts. The contract tests compare every one of them
with transformers and PEFT: a new architecture is one entry here."""


def leave_torch_alone(patch: pytest.MonkeyPatch) -> None:
    """Hosts that are loaded from now on are computed by torch."""
    for name in set(back_ends.names()) - {"torch"}:
        patch.setattr(back_ends[name], "suits", lambda *_, **__: False)


def make_tokenizer(folder: Path) -> int:
    """A byte-level tokenizer that puts a beginning token in front; returns its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocab = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(names[:3])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 1)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    return len(names)


def make_host(
    folder: Path, kind: str = "qwen3", layers: int = 4, seed: int = 0, **changes: Any
) -> Path:
    """A random host of that kind with its tokenizer in ``folder``; returns the folder."""
    import transformers

    make_tokenizer(folder)
    ends: dict[str, object] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    ends |= {"vocab_size": 288, "initializer_range": 0.08}
    name, arguments = KINDS[kind]
    if kind != "gpt2":
        changes = {"num_hidden_layers": layers} | changes
    if kind == "gemma3":
        windows = ["full" if layer % 3 == 1 else "sliding" for layer in range(layers)]
        changes = {"layer_types": [f"{window}_attention" for window in windows]} | changes
    head = "GPT2LMHeadModel" if kind == "gpt2" else f"{name}ForCausalLM"
    config = "Gemma3TextConfig" if kind == "gemma3" else f"{name}Config"
    torch.manual_seed(seed)
    settings = getattr(transformers, config)(**(arguments | ends | changes))
    model = getattr(transformers, head)(settings)
    with torch.no_grad():  # biases and norms away from 0 and 1, so that forgetting one shows
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


SMOLLM2 = hosts_folder() / "smollm2"
"""Folder of SmolLM2-135M-Instruct, whether it was fetched or not."""
smollm2 = pytest.mark.skipif(
    not SMOLLM2.is_dir(), reason="needs SmolLM2: symbiont host get smollm2"
)
"""Marks tests that need a real model."""


TEMPLATE = (
    "{% for m in messages %}<bos>[{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


def add_chat_template(folder: Path, template: str = TEMPLATE) -> Path:
    """Gives a host's tokenizer a chat template, such as models have that can be talked with."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    return folder


def random_weights(
    layout: AdapterLayout, seed: int, rank: int = 8, scaling: float = 2.0
) -> AdapterWeights:
    """An adapter that clearly changes what the host says."""
    return AdapterWeights.random(layout, rank, scaling, np.random.default_rng(seed), b_std=0.05)


class PeftHost:
    """A host in transformers with the adapters of a kernel's slots on PEFT, by way of exported
    folders."""

    def __init__(
        self, folder: Path, kernel: HostKernel, slots: Sequence[int], exports: Path
    ) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._adapters = {slot: kernel.weights_of(slot) for slot in slots}
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for slot in slots:
            out = exports / str(slot)
            kernel.export(slot, out)
            if isinstance(model, PeftModel):
                model.load_adapter(out, adapter_name=str(slot))
            else:
                model = PeftModel.from_pretrained(model, out, adapter_name=str(slot))
        self._model = model.eval()

    def generate(self, prompts: Sequence[str], slot: int, tokens: int) -> list[tuple[int, ...]]:
        """Greedy answers as token ids, the end of the answer included."""
        how = {"return_tensors": "pt", "padding": True, "padding_side": "left"}
        batch = self.tokenizer(list(prompts), **how)
        with self._as(slot), torch.no_grad():
            ids = self._model.generate(**batch, max_new_tokens=tokens, do_sample=False)
        answers = ids[:, batch["input_ids"].shape[1] :].tolist()
        end = self.tokenizer.eos_token_id
        return [tuple(one[: one.index(end) + 1] if end in one else one) for one in answers]

    def log_probabilities(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slot: int
    ) -> list[torch.Tensor]:
        """Of every token of each completion."""
        heads = [self.tokenizer(prompt)["input_ids"] for prompt in prompts]
        rows = [head + list(said) for head, said in zip(heads, completions, strict=True)]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
        for target, row in zip(ids, rows, strict=True):
            target[: len(row)] = torch.tensor(row)
        with self._as(slot):
            logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        picked = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return [
            one[len(head) - 1 : len(row) - 1]
            for one, head, row in zip(picked, heads, rows, strict=True)
        ]

    def gradient(self, lessons: Sequence[Lesson], slot: int) -> np.ndarray:
        """Of the slot's loss over its lessons, by autograd, in the layout of ``AdapterWeights``."""
        self._model.zero_grad()
        prompts, said = zip(*((one.prompt, one.completion) for one in lessons), strict=True)
        terms = self.log_probabilities(prompts, said, slot)
        weights = [torch.tensor(one.weight) for one in lessons]
        weighted = [weight * term for weight, term in zip(weights, terms, strict=True)]
        loss = -torch.cat(weighted).sum() / sum(map(len, said))
        with self._as(slot):
            torch.autograd.backward(loss)
        parameters = dict(self._model.named_parameters())
        like, stem = self._adapters[slot], "base_model.model."
        factors = {
            name: tuple(
                parameters[f"{stem}{name}.lora_{side}.{slot}.weight"].grad.numpy() for side in "AB"
            )
            for name, _, _ in like.layout.modules
        }
        return AdapterWeights.from_factors(like.layout, like.rank, like.scaling, factors).vector

    @contextmanager
    def _as(self, slot: int) -> Iterator[None]:
        if slot == HOST_SLOT:
            with self._model.disable_adapter():
                yield
        else:
            self._model.set_adapter(str(slot))
            yield
