"""Who computes: torch everywhere, compiled code where it can serve.

- ``torch_backend``: the back end of torch. It runs everywhere and says what a back end does.
- ``compiled``: the back end of ``cpu_kernels.c``, and ``backend_for``, which chooses one.
- ``passes``: the compiled functions themselves, called with tensors.
- ``bank``: the adapters in the slots; ``lowrank``: what they add to a product.
- ``attention``: norm, rotary embedding, and the attention on a packed line.
- ``slot_tiles``, ``rectangles``, ``branches``, ``sliding_window``: the shapes that torch wants.
"""
