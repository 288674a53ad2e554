"""A conversion between element types, as source.

Input: an expression, the types it goes from and to, the rounding that was asked for. Output: jax source. Law: what both
types can hold goes over unchanged, the rest rounds once, to nearest or towards zero; floats become narrow integers
through int32, as on a GPU. What a target can't do is a diagnostic.
"""

from __future__ import annotations

from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.emit.expr import Expr, literal, tight
from frontend_triton_compat.types import FP32

_LARGEST = {"fp8e4nv": "448", "fp8e5": "57344", "fp8e4b8": "240", "fp8e5b16": "57344"}


def cast_code(
    inner: Expr, source: Any, target: Any, rounding: str | None = None, on: str = "cpu", at: Any = None
) -> str:
    """Source of a conversion between two element types; `on` is the target family, `at` the user's place."""
    if inner.literal is not None and not inner.dims and not (target.is_fp8() or source.is_fp8() or rounding == "rtz"):
        return literal(cast_number(inner.literal, target), target.numpy_name).code
    if source == target:
        return inner.code
    if inner.literal is not None:
        inner = Expr(literal(inner.literal, source.numpy_name).code, inner.dims)
    if target.is_bool():
        return f"{inner.operand} != 0"
    if source.is_bool() and target.is_floating() and on == "cpu":
        # XLA makes `x * mask.astype(x.dtype)` a choice between x and 0, which is wrong where x is NaN or infinite.
        return f"jnp.where({inner.code}, jnp.{target.numpy_name}(1), jnp.{target.numpy_name}(0))"
    if source.is_floating() and target.is_int():
        if source.name == "fp8e4b15":
            inner = Expr(_of_e4b15(inner, on, at), inner.dims)
        if target.primitive_bitwidth < 32:
            return f"{inner.operand}.astype(jnp.int32).astype(jnp.{target.numpy_name})"
    if not (source.is_floating() and target.is_floating()):
        return f"{inner.operand}.astype(jnp.{target.numpy_name})"
    return _between_floats(inner, source, target, rounding, on, at)


def _between_floats(inner: Expr, source: Any, target: Any, rounding: str | None, on: str, at: Any) -> str:
    code, name = inner.code, target.numpy_name
    if source.name == "fp8e4b15":
        code = _of_e4b15(inner, on, at)
        return code if target.name == "fp16" else f"{tight(code)}.astype(jnp.{name})"
    if rounding == "rtz" or target.name == "fp8e4b15":
        _only_on_cpu(on, at, f"a cast to {target}" + (" towards zero" if rounding == "rtz" else ""))
        if source.name == "fp64":
            code = f"fp32_odd({code})" if target.name != "fp32" else f"fp32_cut({code})"
        elif source.name != "fp32" and not (source.name == "fp16" and target.name == "fp8e4b15"):
            code = f"{tight(code)}.astype(jnp.float32)"
        if target.name == "fp32":
            return code
        if target.name == "fp8e4b15":
            return f"e4b15_of({code})" if source.name == "fp16" else f"e4b15_of(toward_zero({code}, jnp.float16))"
        if target.name != "fp8e5":  # which has an infinity
            code = _saturated(code, FP32, target)
        return f"toward_zero({code}, jnp.{name})"
    if on == "cpu":
        if target.name == "fp64" and source.name in ("fp32", "bf16"):
            return f"fp64_of({code})" if source.name == "fp32" else f"fp64_of({tight(code)}.astype(jnp.float32))"
        if source.name == "fp64":
            if target.name == "fp32":
                return f"fp32_of({code})"
            code = f"fp32_odd({code})"
    return f"{tight(_saturated(code, source, target))}.astype(jnp.{name})"


def _saturated(code: str, source: Any, target: Any) -> str:
    """Numbers beyond the largest one of an 8-bit float stop at it."""
    most = _LARGEST.get(target.name)
    if most is None or source == target:
        return code
    wide = f"{tight(code)}.astype(jnp.float16)" if source.is_fp8() else code
    return f"jnp.clip({wide}, -{most}, {most})"


def _of_e4b15(inner: Expr, on: str, at: Any) -> str:
    _only_on_cpu(on, at, "a cast from fp8e4b15")
    return f"of_e4b15({inner.code})"


def _only_on_cpu(on: str, at: Any, what: str) -> None:
    if on != "cpu":
        raise error(
            "tpu-not-translated",
            what,
            where=at,
            why="the target's compiler has no such conversion",
            do="cast to tl.bfloat16 or tl.float8e5 to nearest, or compute this part on the CPU",
        )


def cast_number(value: Any, target: Any) -> Any:
    """A Python number under another element type."""
    if target.is_bool():
        return bool(value)
    if target.is_floating():
        return float(value)
    if isinstance(value, float):
        value = int(value) if abs(value) < 2**63 else 0
    bits = target.primitive_bitwidth
    low = int(value) & ((1 << bits) - 1)
    return low - (1 << bits) if target.kind == "int" and low >> (bits - 1) else low
