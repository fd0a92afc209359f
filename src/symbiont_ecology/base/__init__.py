"""Foundations: types, files, random draws, registries, events and their log."""
