"""Kernels that are ready to use: each is a function that makes a `PallasFunction` for given shapes and a target."""

from pallas_core.kernels.matmul import matmul
from pallas_core.kernels.softmax import softmax

__all__ = ["matmul", "softmax"]
