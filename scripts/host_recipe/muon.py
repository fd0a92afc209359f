"""Muon: momentum whose matrix is made orthogonal before each step (Jordan et al. 2024).

In float32 and batched over matrices of equal shape: the optimiser that comes with torch iterates in
bfloat16, which CPUs without such units emulate at a third of the speed (docs/log.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

_A, _B, _C = 3.4445, -4.7750, 2.0315  # quintic Newton-Schulz coefficients of the original


class Muon(torch.optim.Optimizer):
    """For 2-D hidden matrices; step size in the scale of AdamW's (0.2 · √max(d_in, d_out))."""

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.02,
    ) -> None:
        super().__init__(
            list(matrices), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[tuple[torch.nn.Parameter, torch.Tensor]]] = (
                defaultdict(list)
            )
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                velocity = self.state[matrix].setdefault("velocity", torch.zeros_like(matrix))
                velocity.lerp_(matrix.grad, 1 - group["momentum"])
                update = matrix.grad.lerp(velocity, group["momentum"])  # Nesterov
                wide = update if update.shape[0] <= update.shape[1] else update.T
                by_shape[(wide.shape[0], wide.shape[1])].append((matrix, wide))
            for shape, pairs in by_shape.items():
                steps = orthogonalise(torch.stack([wide for _, wide in pairs])) * (
                    0.2 * max(shape) ** 0.5
                )
                for (matrix, _), step in zip(pairs, steps, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(step if step.shape == matrix.shape else step.T, alpha=group["lr"])


def orthogonalise(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """Nearest orthogonal matrices, roughly, of ``(batch, rows ≤ columns)`` by Newton-Schulz
    iteration."""
    x: torch.Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.transpose(1, 2)
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x
