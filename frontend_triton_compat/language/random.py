"""Philox random numbers: philox, randint, rand, randn and their four-at-a-time forms.

Input: a seed (integer scalar) and a tile of integer offsets. Output: handles. Law: bit for bit the stream of the
Philox-4x32-10 generator (4x64 for 64-bit counters), keyed by the seed; composed from rows of the op table.
Source of the constants: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language import operators as o
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import static_int
from frontend_triton_compat.language.semantic import bitcast, cast, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import INT32, INT64, UINT32, UINT64

Four = tuple[tensor, tensor, tensor, tensor]
# width -> (key increments, multipliers)
_CONSTANTS = {
    32: ((0x9E3779B9, 0xBB67AE85), (0xD2511F53, 0xCD9E8D57)),
    64: ((0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B), (0xD2E7470EE14C6C93, 0xCA5A826395121157)),
}


def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = 10) -> Four:
    """`n_rounds` rounds on a counter of four words and a key of two."""
    (key_a, key_b), (mul_a, mul_b) = _CONSTANTS[c0.dtype.primitive_bitwidth]
    for _ in range(static_int(n_rounds, "n_rounds")):
        high_a, high_b = tl_math.umulhi(c0, mul_a), tl_math.umulhi(c2, mul_b)
        low_a, low_b = o.mul(c0, mul_a), o.mul(c2, mul_b)
        c0, c1 = o.xor(o.xor(high_b, c1), k0), low_b
        c2, c3 = o.xor(o.xor(high_a, c3), k1), low_a
        k0, k1 = o.add(k0, key_a), o.add(k1, key_b)
    return c0, c1, c2, c3


def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = 10) -> Four:
    """Four random words for a counter of four words."""
    current("tl.philox")
    seed = to_tensor(seed)
    if not seed.dtype.is_int():
        raise fail("operand-type", f"a seed of type {seed.dtype}", why="the seed is an integer", do="pass an int")
    seed = cast(seed, UINT64)
    words = [to_tensor(c) for c in (c0, c1, c2, c3)]
    width = words[0].dtype.primitive_bitwidth
    if width not in (32, 64):
        raise fail(
            "operand-type",
            f"counters of type {words[0].dtype}",
            why="Philox counts in 32 or 64 bits",
            do="cast to tl.uint32",
        )
    t = UINT32 if width == 32 else UINT64
    if width == 32:
        low = cast(o.and_(seed, 0xFFFFFFFF), UINT32)
        high = cast(o.and_(o.shr(seed, 32), 0xFFFFFFFF), UINT32)
    else:
        low, high = seed, cast(to_tensor(0), UINT64)
    c = [bitcast(w, t) for w in words]
    return philox_impl(c[0], c[1], c[2], c[3], low, high, n_rounds)


def randint4x(seed: Any, offset: Any, n_rounds: Any = 10) -> Four:
    """Four tiles of random 32-bit integers, one for each offset."""
    current("tl.randint4x")
    offset = to_tensor(offset)
    low = cast(offset, UINT32)
    zero = o.mul(low, 0)
    high = cast(o.shr(offset, 32), UINT32) if offset.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


def randint(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """A tile of random 32-bit integers."""
    return randint4x(seed, offset, n_rounds)[0]


def uint_to_uniform_float(x: Any) -> tensor:
    """A random word as a float in [0, 1)."""
    x = to_tensor(x)
    wide = x.dtype.primitive_bitwidth == 64
    x = bitcast(x, INT64 if wide else INT32)
    x = tl_math.where(o.compare("lt", x, 0), o.sub(o.neg(x), 1), x)
    return o.mul(x, 1.0842020432385337e-19 if wide else 4.6566127342e-10)


def rand(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Uniform fp32 numbers in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


def rand4x(seed: Any, offsets: Any, n_rounds: Any = 10) -> Four:
    """Four tiles of uniform fp32 numbers in [0, 1)."""
    a, b, c, d = (uint_to_uniform_float(x) for x in randint4x(seed, offsets, n_rounds))
    return a, b, c, d


def pair_uniform_to_normal(u1: Any, u2: Any) -> tuple[tensor, tensor]:
    """Two uniform numbers as two normal ones (Box and Muller)."""
    u1 = tl_math.maximum(1.0e-7, u1)
    angle = o.mul(6.283185307179586, u2)
    radius = tl_math.sqrt(o.mul(-2.0, tl_math.log(u1)))
    return o.mul(radius, tl_math.cos(angle)), o.mul(radius, tl_math.sin(angle))


def randn(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Normal fp32 numbers with mean 0 and deviation 1."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]


def randn4x(seed: Any, offset: Any, n_rounds: Any = 10) -> Four:
    """Four tiles of normal fp32 numbers."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    return (*pair_uniform_to_normal(u1, u2), *pair_uniform_to_normal(u3, u4))
