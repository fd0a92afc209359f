"""Any causal language model of transformers, through its own forward, with slots hooked onto its
linears.

A forward hook adds the stacked low-rank term to what a linear module returns. The module itself,
its weight and its name stay as they are, so Linear, GPT-2's Conv1D and their kin need no code of
their own. Rows are padded on the left when writing, the convention that every model of transformers
supports.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.architectures import ModelConfig
from symbiont_ecology.model.backend.lowrank import Adapters, Shares, Site, dropping
from symbiont_ecology.model.decoder import Prefill, Session
from symbiont_ecology.model.dropout import Dropout
from symbiont_ecology.model.loading import HostLoader, other_hosts
from symbiont_ecology.model.locating import expect, expected
from symbiont_ecology.model.packing import Packing, places_seen

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast


@other_hosts.register("transformers")
@dataclass(frozen=True)
class TransformersLoader(HostLoader):
    """Loads a host as transformers reads and computes it: another library, with files from
    anyone."""

    def load(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> WrappedDecoder:
        from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
        from transformers.utils import logging

        logging.disable_progress_bar()  # the command line has its own
        kind = config["model_type"]
        with expected(f"a causal language model that transformers can load, got {kind}", Exception):
            # A copy, for transformers writes into what lies in it.
            settings = CONFIG_MAPPING[kind].from_dict(deepcopy(dict(config)))
            made = MODEL_FOR_CAUSAL_LM_MAPPING[type(settings)]
            if made.config_class is not type(settings):
                settings = settings.get_text_config()
            # No folder: transformers would look for adapters and for other weights in it.
            model, report = made.from_pretrained(
                None,
                config=settings,
                state_dict=dict(tensors),
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
            )
        missing = min(report["missing_keys"], default=None)
        hint = "found none: download the weights again"
        expect(missing is None, f"tensor {missing!r} of the host, {hint}")
        with expected(f"a {kind} model that transformers can compute", Exception):
            decoder = WrappedDecoder(model, device)
            ids = torch.zeros(1, 8, dtype=torch.int64, device=device)
            with torch.no_grad():  # a prompt, and a token behind it
                output = model(input_ids=ids, use_cache=True)
                model(input_ids=ids[:, :1], past_key_values=output.past_key_values, use_cache=True)
        return decoder


class WrappedDecoder:
    """Computes a host through its transformers model (see ``decoder.Decoder``).

    Raises:
        HostError: no stack of decoder layers with linear modules is found in the model.
    """

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        self.device, self.dtype = device, model.dtype
        self._model = model.to(device).eval().requires_grad_(False)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._hooked: tuple[Adapters, Shares] | None = None
        config = model.config.get_text_config()
        layers = int(config.num_hidden_layers)
        linears = _linears(model, layers)
        self.sites: tuple[Site, ...] = tuple((module,) for module, _ in linears)
        for index, (_, part) in enumerate(linears):
            part.register_forward_hook(self._hook(index))
        # What adapters learn hangs on their inputs' gradients.
        model.get_input_embeddings().register_forward_hook(
            lambda _, __, output: output.requires_grad_() if torch.is_grad_enabled() else output
        )
        self.fan_in_fan_out = not any(isinstance(part, nn.Linear) for _, part in linears)
        self.shape = HostShape.from_config(
            config.to_dict(),
            linear_parameters=sum(d_in * d_out for (_, d_in, d_out), _ in linears) // layers,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        angles = getattr(config, "rope_parameters", None) or {}
        if angles.get("rope_type") == "longrope":
            # Beyond it, angles of all rows are others as soon as one of them is as long.
            context = int(angles["original_max_position_embeddings"])
            limit = min(self.shape.max_positions, context)
            self.shape = replace(self.shape, max_positions=limit)

    def weights(self) -> dict[str, Tensor]:
        """Return every base weight by its name, tied weights once."""
        return dict(self._model.named_parameters())

    def start(self, prefill: Prefill) -> tuple[Tensor, WrappedSession]:
        """Reads every prompt of every slot once, padded on the left, then gives each row its
        copy."""
        prompts, slots, bank = prefill.prompts, prefill.slots, prefill.bank
        keys = [(slot, prompt.tobytes()) for slot, prompt in zip(slots, prompts, strict=True)]
        place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        unique = dict(zip(keys, prompts, strict=True))
        longest = max(len(prompt) for prompt in prompts)
        ids, mask = np.zeros((2, len(unique), longest), dtype=np.int64)
        for key, prompt in unique.items():
            ids[place[key], longest - len(prompt) :] = prompt
            mask[place[key], longest - len(prompt) :] = 1
        counts = Counter(slot for slot, _ in place)
        hooked = bank.gather(tuple(counts)), [count * longest for count in counts.values()]
        is_new = [True, *(first != second for first, second in pairwise(keys))]
        tokens_read = np.where(is_new, [len(prompt) for prompt in prompts], 0)
        session = WrappedSession(self, torch.from_numpy(mask).to(self.device), tokens_read)
        logits = session.read(torch.from_numpy(ids).to(self.device), *hooked)
        rows = torch.tensor([place[key] for key in keys], device=self.device)
        session.keep(rows)
        return logits[rows], session

    def logits(
        self,
        packing: Packing,
        adapters: Adapters,
        dropout: Dropout | None = None,
        *,
        learns_from: int = 0,
    ) -> Tensor:
        """Return logits of the answers; the model's own head runs on the span that holds them all.
        All layers learn."""
        ids, hooked = self._padded(packing, adapters, dropout)
        starts = np.array([len(text.prompt) - 1 for text in packing.texts])
        stops = np.array([len(text.ids) for text in packing.texts])
        rows = np.repeat(np.arange(len(starts)), stops - starts)
        spots = np.concatenate(list(map(np.arange, starts, stops)))
        if "logits_to_keep" in self._accepts:
            first, last = int(starts.min()), int(stops.max())
            span = torch.arange(first, last, device=ids.device)
            logits: Tensor = self._read(ids, *hooked, logits_to_keep=span).logits
        else:
            first, logits = 0, self._read(ids, *hooked).logits
        return logits[
            torch.from_numpy(rows).to(ids.device), torch.from_numpy(spots - first).to(ids.device)
        ]

    def states(self, packing: Packing, layers: Sequence[int]) -> Tensor:
        """Return hidden states (``decoder.Decoder``); the model computes all layers."""
        ids, hooked = self._padded(packing, (None,) * len(self.sites))
        few: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in self._accepts else {}
        hidden = self._read(ids, *hooked, output_hidden_states=True, **few).hidden_states
        last = torch.tensor([len(text.ids) - 1 for text in packing.texts], device=ids.device)
        rows = torch.arange(len(last), device=ids.device)
        return torch.stack([hidden[layer][rows, last] for layer in layers], dim=1)

    def forward(
        self, adapters: Adapters, shares: Shares, **inputs: object
    ) -> CausalLMOutputWithPast:
        """Make one forward of the model with these adapters in its hooks; arguments that it lacks
        are left out."""
        if "position_ids" not in self._accepts:
            inputs.pop("position_ids", None)
        self._hooked = adapters, shares
        try:
            return self._model(**inputs)
        finally:
            self._hooked = None

    def _padded(
        self, packing: Packing, adapters: Adapters, dropout: Dropout | None = None
    ) -> tuple[Tensor, tuple[Adapters, Shares]]:
        """Return texts as rows padded on the right: ids ``(rows, longest)``, adapters and their
        shares of the tokens."""
        stretches = packing.stretches
        seen = places_seen(stretches, stretches[packing.end_of])
        places = torch.from_numpy(seen).to(self.device)
        counts = Counter(packing.row_owners)
        adapters = dropping(adapters, dropout and dropout.laid(places))
        shares = [counts[owner] * places.shape[1] for owner in packing.owners]
        return packing.ids[places], (adapters, shares)

    def _read(
        self, ids: Tensor, adapters: Adapters, shares: Shares, **inputs: object
    ) -> CausalLMOutputWithPast:
        # Padding on the right is causal's future: nothing to mask, but some models warn when told
        # nothing.
        inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        return self.forward(adapters, shares, **inputs)

    def _hook(self, index: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def add(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            hooked = self._hooked
            if hooked is None or (term := hooked[0][index]) is None:
                return output
            x, y = inputs[0].flatten(0, -2), output.flatten(0, -2)
            if torch.is_grad_enabled():
                y = y.clone()  # autograd does not let a view be changed in place
            return term.add_to(y, x, hooked[1]).view_as(output)

        return add


class WrappedSession(Session):
    """Half-written rows in a cache of transformers."""

    def __init__(self, decoder: WrappedDecoder, mask: Tensor, tokens_read: np.ndarray) -> None:
        self._decoder, self._mask, self.tokens_read = decoder, mask, tokens_read
        self._cache: Cache | None = None

    def read(self, ids: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        """Appends token ids ``(rows, time)`` that the mask already covers; logits after the last
        one."""
        positions = (self._mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        output = self._decoder.forward(
            adapters,
            shares,
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = output.past_key_values
        logits: Tensor = output.logits[:, -1]
        return logits

    def step(self, tokens: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        return self.read(tokens[:, None], adapters, shares)

    def keep(self, rows: Tensor) -> None:
        self._mask = self._mask[rows]
        assert self._cache is not None
        self._cache.batch_select_indices(rows)
        self._drop_columns()

    def _drop_columns(self) -> None:
        """Return columns that none of its rows needs any more go, or a batch that never ends would
        fill the memory. Layers that see a window drop theirs by themselves, and count what went
        by."""
        assert self._cache is not None
        layers, first = self._cache.layers, int(self._mask.argmax(1).min())
        if not first or any(hasattr(layer, "cumulative_length") for layer in layers):
            return
        self._mask = self._mask[:, first:]
        for layer in layers:
            layer.keys, layer.values = layer.keys[:, :, first:], layer.values[:, :, first:]

    def join(self, prefill: Prefill) -> Tensor:
        """Let new rows stand behind its own, the newest tokens of all in one column."""
        logits, other = self._decoder.start(prefill)
        assert self._cache is not None
        assert other._cache is not None
        layers = list(zip(self._cache.layers, other._cache.layers, strict=True))
        states = [  # all of them before any is put in place: memory may run out
            [_on_the_right(getattr(layer, name), getattr(joiner, name)) for name in _STATES]
            for layer, joiner in layers
        ]
        self._mask = _on_the_right(self._mask[..., None], other._mask[..., None])[..., 0]
        for (layer, joiner), (keys, values) in zip(layers, states, strict=True):
            layer.keys, layer.values = keys, values
            if hasattr(layer, "cumulative_length"):  # of a layer that sees a window
                layer.cumulative_length = max(layer.cumulative_length, joiner.cumulative_length)
        return logits


_STATES = "keys", "values"


def _on_the_right(one: Tensor, other: Tensor) -> Tensor:
    """Return rows of both, filled with zeros on the left of the last dimension but one."""
    longest = max(one.shape[-2], other.shape[-2])
    return torch.cat([F.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in (one, other)])


def _linears(model: PreTrainedModel, layers: int) -> list[tuple[tuple[str, int, int], nn.Module]]:
    """Return ``(name, d_in, d_out)`` of every linear module inside the decoder layers, and the
    module, in model order."""
    from transformers.pytorch_utils import Conv1D

    stacks = [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList) and len(part) == layers
    ]
    if not stacks:
        raise HostError(
            f"expected a list of {layers} decoder layers in the model, found none in "
            f"{type(model).__name__}: choose a decoder-only causal language model"
        )
    linears: list[tuple[tuple[str, int, int], nn.Module]] = []
    for name, part in model.named_modules():
        if name.startswith(f"{stacks[0]}.") and isinstance(part, nn.Linear | Conv1D):
            shape = part.weight.shape if isinstance(part, Conv1D) else part.weight.shape[::-1]
            linears.append(((name, *map(int, shape)), part))
    return linears
