"""`tl.extra`: libdevice, and the names of vendors' extensions that kernels import."""

from frontend_triton_compat.language.extra import cuda, libdevice

hip = xpu = mlu = cuda

__all__ = ["cuda", "hip", "libdevice", "mlu", "xpu"]
