"""The frozen host and its slots. Only this package and ``baselines`` import torch."""
