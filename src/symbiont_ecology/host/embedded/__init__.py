"""The host that ships with the package: its habits, its tokenizer, its trainer and its files (docs/host.md)."""
