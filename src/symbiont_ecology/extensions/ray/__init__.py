"""The host of a run in many processes, on one machine or on a cluster, by Ray.

- ``executor``: reaching a cluster and starting workers there.
- ``workers``: a worker, and the host that has its work done by workers.
"""

from symbiont_ecology.base.extension import Extension

EXTENSION = Extension(parts={"executor": ("symbiont_ecology.extensions.ray.executor",)})
