"""Ground of all tests: this folder is importable (``toy``, ``hosts``), properties repeat their examples."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
