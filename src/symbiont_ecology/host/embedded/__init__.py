"""The host that ships with the package: habits, tokenizer, trainer, files (docs/host.md)."""
