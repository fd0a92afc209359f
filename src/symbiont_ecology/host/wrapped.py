"""Any causal language model of transformers, through its own forward, with slots hooked onto its linears.

A forward hook adds the stacked low-rank term to what a linear module returns. The module itself, its
weight and its name stay as they are, so Linear, GPT-2's Conv1D and their kin need no code of their own.
Rows are padded on the left when writing, the convention that every model of transformers supports.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.bank import Adapters, Site, add_low_rank
from symbiont_ecology.host.shape import HostShape


class WrappedDecoder:
    """Computes a host through its transformers model (see ``decoder.Decoder``).

    Raises:
        HostError: no stack of decoder layers with linear modules is found in the model.
    """

    def __init__(self, model: Any, device: torch.device) -> None:
        self.device, self.dtype = device, model.dtype
        self._model = model.to(device).eval().requires_grad_(False)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._adapters: Adapters | None = None
        found = _linears(model)
        self.sites: tuple[Site, ...] = tuple(((name, d_in, d_out),) for name, _, d_in, d_out in found)
        for index, (_, module, _, _) in enumerate(found):
            module.register_forward_hook(self._hook(index))
        self.fan_in_fan_out = not any(isinstance(module, nn.Linear) for _, module, _, _ in found)
        config = model.config.get_text_config()
        layers = int(config.num_hidden_layers)
        self.shape = HostShape.from_config(
            config.to_dict(),
            linear_parameters=sum(d_in * d_out for _, _, d_in, d_out in found) // layers,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )

    def weights(self) -> dict[str, Tensor]:
        """Every base weight by its name, tied weights once."""
        return dict(self._model.named_parameters())

    def start(
        self, rows: Sequence[np.ndarray], adapters: Adapters, room: int
    ) -> tuple[Tensor, WrappedSession]:
        """Reads the prompts, padded on the left, in one forward."""
        lengths = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
        for target, row in zip(ids, rows, strict=True):
            target[len(target) - len(row) :] = row
        mask = np.arange(lengths.max()) >= lengths.max() - lengths[:, None]
        session = WrappedSession(self, adapters, torch.from_numpy(mask.astype(np.int64)).to(self.device))
        return session.read(torch.from_numpy(ids).to(self.device)), session

    def logits_at(self, ids: Tensor, wanted: Tensor, is_real: Tensor, adapters: Adapters) -> Tensor:
        """Logits at the wanted positions; the model's own head runs on the span that holds them all."""
        rows, positions = is_real.nonzero()[:, 0], wanted[is_real]
        if "logits_to_keep" not in self._accepts:
            everywhere: Tensor = self._read(ids, adapters).logits
            return everywhere[rows, positions]
        first, last = int(positions.min()), int(positions.max())
        span = torch.arange(first, last + 1, device=ids.device)
        logits: Tensor = self._read(ids, adapters, logits_to_keep=span).logits
        return logits[rows, positions - first]

    def hidden(self, ids: Tensor, adapters: Adapters) -> Tensor:
        """Last hidden states after the final norm."""
        states: Tensor = self._read(ids, adapters, output_hidden_states=True).hidden_states[-1]
        return states

    def _read(self, ids: Tensor, adapters: Adapters, **inputs: Any) -> Any:
        # Padding on the right is causal's future: nothing to mask, but some models warn when told nothing.
        return self.forward(
            adapters, input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **inputs
        )

    def forward(self, adapters: Adapters, **inputs: Any) -> Any:
        """One forward of the model with these adapters in its hooks; arguments that it lacks are left out."""
        self._adapters = adapters
        try:
            return self._model(
                **{name: inputs[name] for name in inputs if name in self._accepts or name != "position_ids"}
            )
        finally:
            self._adapters = None

    def _hook(self, index: int) -> Any:
        def add(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            adapters = self._adapters
            factors = None if adapters is None else adapters.sites[index]
            return output if factors is None else add_low_rank(inputs[0], [output], factors)[0]

        return add


class WrappedSession:
    """Half-written rows in a cache of transformers."""

    def __init__(self, decoder: WrappedDecoder, adapters: Adapters, mask: Tensor) -> None:
        self._decoder, self._adapters, self._mask = decoder, adapters, mask
        self._cache: Any = None

    def read(self, ids: Tensor) -> Tensor:
        """Appends token ids ``(rows, time)`` that the mask already covers; logits after the last one."""
        positions = (self._mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        output = self._decoder.forward(
            self._adapters,
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = output.past_key_values
        logits: Tensor = output.logits[:, -1]
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token per row and returns the next logits."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        return self.read(tokens[:, None])

    def keep(self, rows: Tensor, adapters: Adapters) -> None:
        """Goes on with fewer rows."""
        self._adapters, self._mask = adapters, self._mask[rows]
        self._cache.batch_select_indices(rows)


def _linears(model: Any) -> list[tuple[str, nn.Module, int, int]]:
    """``(name, module, d_in, d_out)`` of every linear module inside the decoder layers, in model order."""
    from transformers.pytorch_utils import Conv1D

    layers = int(model.config.get_text_config().num_hidden_layers)
    stacks = [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList) and len(part) == layers
    ]
    if not stacks:
        raise HostError(
            f"expected a list of {layers} decoder layers in the model, found none in {type(model).__name__}: "
            "choose a decoder-only causal language model"
        )
    found: list[tuple[str, nn.Module, int, int]] = []
    for name, module in model.named_modules():
        if not name.startswith(f"{stacks[0]}."):
            continue
        if isinstance(module, nn.Linear):
            found.append((name, module, module.in_features, module.out_features))
        elif isinstance(module, Conv1D):
            found.append((name, module, int(module.weight.shape[0]), int(module.weight.shape[1])))
    return found
