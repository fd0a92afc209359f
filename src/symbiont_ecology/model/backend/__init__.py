"""What computes: torch everywhere, and what extensions register where it can serve.

- ``torch_backend``: the back end of torch. It runs everywhere and says what a back end does;
  ``backend_for`` chooses one.
- ``bank``: the adapters in the slots; ``lowrank``: what they add to a product.
- ``attention``: norm, rotary embedding, and the attention on a packed line.
- ``slot_tiles``, ``rectangles``, ``branches``, ``sliding_window``: the shapes that torch wants.
"""
