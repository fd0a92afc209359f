"""Allocators and curricula for a run, routers for use."""
