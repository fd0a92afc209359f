"""The loop: one generation, a run of many, and the root that puts the parts together."""
