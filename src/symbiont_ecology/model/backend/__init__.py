"""Back ends: torch everywhere, and others, which extensions register.

- ``torch_backend``: the back end of torch. It runs everywhere and says what a back end does;
  ``backend_for`` chooses one.
- ``bank``: the adapters in the slots, and those that learn; ``lowrank``: their terms.
- ``attention``: norm, rotary embedding, and the attention on a packed line.
"""
