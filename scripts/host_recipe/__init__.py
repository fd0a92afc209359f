"""How the embedded host was made: habits, tokenizer, trainer, measurements (docs/hosts.md)."""
