"""Prompt styles, one per file: how an item is put to a host."""
