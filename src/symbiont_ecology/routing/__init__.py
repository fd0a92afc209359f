"""Who meets which task: allocators during a run, routers at inference."""
