"""Mosaic GPU kernels without a GPU: `compat.py` runs them on jax's GPU interpreter."""
