"""What torch can compute on here, in one line."""

from __future__ import annotations

import torch


def describe() -> str:
    """Version, CPU threads and GPUs."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    threads = f"{torch.get_num_threads()} CPU threads"
    return f"torch {torch.__version__}, {threads}, {', '.join(gpus) or 'no GPU'}"
