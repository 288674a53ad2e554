"""A tiled matrix product with grouped tile order, wrapped rows and a masked K loop."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """C = A @ B, summed in float32."""
    program = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = program // per_group * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    tile_m = first + program % per_group % height
    tile_n = program % per_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    columns = (tile_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a = a + rows[:, None] * am + inner[None, :] * ak
    at_b = b + inner[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        tile_a = tl.load(at_a, mask=inner[None, :] < left, other=0.0)
        tile_b = tl.load(at_b, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
        at_a += BK * ak
        at_b += BK * bk
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(c.dtype.element_ty), mask=inside)
