"""Shared ground of all tests: this folder is importable (``toy``, ``hosts``), and properties draw the same examples every time."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
