"""What no config may go beyond: more overflows something, or keeps a machine busy for ever."""

MOST_RANK = 4096
"""Rank of an adapter."""
MOST_SLOTS, MOST_THREADS = 1 << 16, 1024
"""Adapters in memory at once, and threads of the CPU: more than any machine serves, or has."""
