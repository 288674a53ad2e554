"""Makes the name "pallas" known to torch.compile.

An installed distribution registers it through the entry-point group ``torch_dynamo_backends``; importing the package
registers it as well, for a source tree that is only on the path. Law: registering twice is not an error.
"""

from __future__ import annotations

import torch

from inductor_backend.compile import pallas


def register() -> None:
    """Register the backend under the name "pallas" unless another import did."""
    from torch._dynamo.backends import registry

    if registry._BACKENDS.get("pallas") is None:
        torch._dynamo.register_backend(pallas, name="pallas")
