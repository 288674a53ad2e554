"""Kernels in the style of public libraries: each `case_*` returns (result, reference[, tolerance]) pairs."""
