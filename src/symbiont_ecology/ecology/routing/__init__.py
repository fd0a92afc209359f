"""Who meets which item during a run: allocators and curricula."""
