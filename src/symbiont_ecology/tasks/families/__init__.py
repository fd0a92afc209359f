"""One task family per file; a new file is found by itself."""
