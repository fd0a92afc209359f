"""Comparisons that are planned before they run: protocols, suites, ablations, sweeps of SFT."""
