"""What is timed is what organelles do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.throughput import ThroughputMeter, Workload
from symbiont_ecology.types import LearningBatch


def test_every_prompt_that_is_answered_is_learned_from(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["embedded"], slots=2, rank=2)
    learned, learn = list[LearningBatch](), HostKernel.learn

    def noted(host: HostKernel, batch: LearningBatch, *others: Any) -> Any:
        """Notes the lessons."""
        learned.append(batch)
        return learn(host, batch, *others)

    monkeypatch.setattr(HostKernel, "learn", noted)
    meter = ThroughputMeter(kernel, Workload(rows=3, prompt_tokens=8, new_tokens=2, rank=2))
    assert list(meter.pace(2, 1))[-1]
    answered = {(one.prompt, one.slot) for one in meter.requests(2)}
    assert len(answered) == 6
    assert {(one.prompt, one.slot) for one in learned[0].lessons} == answered
