"""Kernels that were once wrong, each against its right values."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def k_alias3b_01(a, b, c, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(b + i, tl.load(a + i) * 10.0)
    tl.store(a + i, tl.load(c + 3 * B + i) + 1.0)


def case_alias_bridge():
    # a third tensor overlaps two earlier ones that do not overlap each other
    x = torch.arange(40.0)
    k_alias3b_01[(1,)](x[0:8], x[24:32], x, B=8)
    w = torch.arange(40.0)
    w[24:32] = w[0:8] * 10
    w[0:8] = w[24:32] + 1
    return [(x, w)]


@triton.jit
def k_lut_02(x, lut, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = (tl.load(x + i) * 7).to(tl.uint8)
    tl.store(o + i, tl.load(lut + v))


def case_lut_narrow_cast():
    # (x * 7).to(tl.uint8) used as an address is not truncated
    x = torch.randint(-1000, 1000, (64,), dtype=torch.int32)
    lut = torch.randn(256)
    o = torch.empty(64)
    k_lut_02[(1,)](x, lut, o, B=64)
    return [(o, lut[((x * 7) & 255).long()])]


@triton.jit
def k_lut2_03(x, y, lut, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i) + tl.load(y + i)
    tl.store(o + i, tl.load(lut + v))


def case_lut_int_wrap():
    # uint8 + uint8 used as an address does not wrap
    x = torch.randint(0, 256, (64,), dtype=torch.uint8)
    y = torch.randint(0, 256, (64,), dtype=torch.uint8)
    lut = torch.randn(256)
    o = torch.empty(64)
    k_lut2_03[(1,)](x, y, lut, o, B=64)
    return [(o, lut[(x + y).long()])]


@triton.jit
def k_neg_04(x, idx, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    d = tl.load(idx + i)
    tl.store(o + i, tl.load(x + d))


def case_gather_beyond_view():
    # loaded offsets beyond the passed view but inside its storage are clipped silently
    base = torch.randn(32)
    x = base[:8]
    idx = torch.tensor([8, 31, 0, 5, 20, 23, 2, 1])
    o = torch.empty(8)
    k_neg_04[(1,)](x, idx, o, 8, B=8)
    return [(o, base[idx])]


@triton.jit
def k_neg_05(x, idx, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    d = tl.load(idx + i)
    tl.store(o + i, tl.load(x + d))


def case_gather_negative_subview():
    # loaded negative offsets before base[8:] are clipped to 0 silently
    base = torch.randn(32)
    x = base[8:]
    idx = torch.tensor([-8, -1, 0, 5, -3, 23, 2, 1])
    o = torch.empty(8)
    k_neg_05[(1,)](x, idx, o, 8, B=8)
    return [(o, base[idx + 8])]


@triton.jit
def k_scat_06(x, idx, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    d = tl.load(idx + i)
    tl.store(o + d, tl.load(x + i))


def case_scatter_beyond_view():
    # loaded store offsets outside the view but inside the storage are dropped silently
    base = torch.zeros(32)
    o = base[8:16]
    x = torch.randn(8)
    idx = torch.tensor([-8, -1, 0, 5, -3, 23, 2, 1])
    k_scat_06[(1,)](x, idx, o, 8, B=8)
    w = torch.zeros(32)
    w[idx + 8] = x
    return [(base, w)]


@triton.jit
def k_whilebranch_09(steps, out, n):
    p = tl.program_id(0)
    s = tl.load(steps + p)
    i = 0
    c = 0
    if s > 0:
        while i < n:
            i += s
            c += 1
    tl.store(out + p, c)


def case_hang_while_in_branch():
    # while inside `if s > 0`: programs that do not take the branch loop for ever
    s = torch.tensor([1, 0, 3, 0], dtype=torch.int32)
    o = torch.zeros(4, dtype=torch.int32)
    k_whilebranch_09[(4,)](s, o, 10)
    return [(o, torch.tensor([10, 0, 4, 0]))]


@triton.jit
def k_whileret_10(steps, out, n):
    p = tl.program_id(0)
    s = tl.load(steps + p)
    if s == 0:
        tl.store(out + p, -1)
        return
    i = 0
    c = 0
    while i < n:
        i += s
        c += 1
    tl.store(out + p, c)


def case_hang_while_after_return():
    # while after an early return: programs that returned loop for ever
    s = torch.tensor([1, 0, 3, 0], dtype=torch.int32)
    o = torch.zeros(4, dtype=torch.int32)
    k_whileret_10[(4,)](s, o, 10)
    return [(o, torch.tensor([10, -1, 4, -1]))]


@triton.jit
def k_sentinel_11(lens, x, out, W, B: tl.constexpr):
    p = tl.program_id(0)
    L = tl.load(lens + p)
    if L == 2147483647:
        return
    s = 0.0
    for i in range(L):
        s += tl.load(x + p * W + i)
    tl.store(out + p, s)


def case_hang_untaken_for_bound():
    # trip count of a loop includes programs that returned early (sentinel length 2**31-1): 2**31 iterations
    L = torch.tensor([3, 2147483647, 5], dtype=torch.int32)
    x = torch.randn(3, 8)
    o = torch.zeros(3)
    k_sentinel_11[(3,)](L, x, o, 8, B=4)
    return [(o, torch.stack([x[0, :3].sum(), torch.tensor(0.0), x[2, :5].sum()]))]


@triton.jit
def store_acc_12(x, o, fin, n, T, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for t in range(T):
        tl.store(o + t * n + i, acc, mask=i < n)
        acc += tl.load(x + t * n + i, mask=i < n, other=0.0)
    tl.store(fin + i, acc, mask=i < n)


def case_store_running_total():
    # `store(o, acc); acc += ...` in a loop (fla chunk state)
    x = torch.randn(5, 10)
    o = torch.empty(5, 10)
    f = torch.empty(10)
    store_acc_12[(1,)](x, o, f, 10, 5, 16)
    c = x.double().cumsum(0)
    return [(o, c - x.double()), (f, c[-1])]


@triton.jit
def chunk_h_13(
    k, v, h, ht, T, NT, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    ik, iv, ibh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    bh = tl.zeros([BK, BV], tl.float32)
    for it in range(NT):
        pk = tl.make_block_ptr(k + ibh * T * K, (K, T), (1, K), (ik * BK, it * BT), (BK, BT), (0, 1))
        pv = tl.make_block_ptr(v + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
        ph = tl.make_block_ptr(h + ibh * NT * K * V + it * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
        tl.store(ph, bh.to(ph.dtype.element_ty), boundary_check=(0, 1))
        bk = tl.load(pk, boundary_check=(0, 1))
        bv = tl.load(pv, boundary_check=(0, 1))
        bh += tl.dot(bk, bv)
    ph = tl.make_block_ptr(ht + ibh * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
    tl.store(ph, bh, boundary_check=(0, 1))


@triton.jit
def chunk_o_13(
    q, k, v, h, o, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    iv, it, ibh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    NT = tl.cdiv(T, BT)
    oi = tl.arange(0, BT)
    ms = oi[:, None] >= oi[None, :]
    bo = tl.zeros([BT, BV], tl.float32)
    bs = tl.zeros([BT, BT], tl.float32)
    for ik in range(tl.cdiv(K, BK)):
        pq = tl.make_block_ptr(q + ibh * T * K, (T, K), (K, 1), (it * BT, ik * BK), (BT, BK), (1, 0))
        pk = tl.make_block_ptr(k + ibh * T * K, (K, T), (1, K), (ik * BK, it * BT), (BK, BT), (0, 1))
        ph = tl.make_block_ptr(h + (ibh * NT + it) * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
        bq = tl.load(pq, boundary_check=(0, 1))
        bq = (bq * scale).to(bq.dtype)
        bk = tl.load(pk, boundary_check=(0, 1))
        bh = tl.load(ph, boundary_check=(0, 1))
        bo += tl.dot(bq, bh, allow_tf32=False)
        bs += tl.dot(bq, bk, allow_tf32=False)
    bs = tl.where(ms, bs, 0)
    pv = tl.make_block_ptr(v + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
    bv = tl.load(pv, boundary_check=(0, 1))
    bo += tl.dot(bs.to(bv.dtype), bv)
    po = tl.make_block_ptr(o + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
    tl.store(po, bo.to(po.dtype.element_ty), boundary_check=(0, 1))


def case_fla_chunk_h():
    # fla chunk_fwd_h / chunk_fwd_o: the state is stored before it is updated
    B, T, K, V, BT = 2, 50, 24, 40, 16
    q, k, v = torch.randn(B, T, K), torch.randn(B, T, K), torch.randn(B, T, V)
    NT = triton.cdiv(T, BT)
    h = torch.empty(B, NT, K, V)
    ht = torch.empty(B, K, V)
    o = torch.empty(B, T, V)
    chunk_h_13[(2, 3, B)](k, v, h, ht, T, NT, K, V, BT, 16, 16)
    chunk_o_13[(3, NT, B)](q, k, v, h, o, K**-0.5, T, K, V, BT, 16, 16)
    w = ((q.double() @ k.double().transpose(1, 2)) * K**-0.5).tril() @ v.double()
    return [(ht, k.double().transpose(1, 2) @ v.double(), 1e-3), (o, w, 1e-3)]


@triton.jit
def k_after_14(lens, out, outp, x, B: tl.constexpr):
    p = tl.program_id(0)
    L = tl.load(lens + p)
    c = 0
    s = 0.0
    ptr = x + p * B
    for i in range(0, L):
        s += tl.load(ptr)
        ptr += 1
        c += 2
    tl.store(out + p, c)
    tl.store(outp + p, s + tl.load(ptr))


def case_induction_after_dyn_loop():
    # pointer/counter advanced in a loop of loaded length and used after it
    lens = torch.tensor([0, 3, 5, 1], dtype=torch.int32)
    x = torch.randn(4, 8)
    o = torch.zeros(4, dtype=torch.int32)
    q = torch.zeros(4)
    k_after_14[(4,)](lens, o, q, x, B=8)
    return [(o, lens * 2), (q, torch.stack([x[i, : l + 1].sum() for i, l in enumerate(lens.tolist())]))]


@triton.jit
def k_after2_15(out, outp, x, B: tl.constexpr):
    p = tl.program_id(0)
    c = 0
    s = 0.0
    ptr = x + p * B
    for i in range(0, p):
        s += tl.load(ptr)
        ptr += 1
        c += 2
    tl.store(out + p, c)
    tl.store(outp + p, s + tl.load(ptr))


def case_induction_after_pid_loop():
    # pointer/counter advanced in a loop of per-program length and used after it
    x = torch.randn(4, 8)
    o = torch.zeros(4, dtype=torch.int32)
    q = torch.zeros(4)
    k_after2_15[(4,)](o, q, x, B=8)
    return [(o, torch.arange(4) * 2), (q, torch.stack([x[i, : i + 1].sum() for i in range(4)]))]


@triton.jit
def cond_adv_20(x, flags, o, T, D, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    ptr = x + p * T * D
    acc = tl.zeros([B], tl.float32)
    for t in range(T):
        f = tl.load(flags + p * T + t)
        if f > 0:
            acc = acc * 2 + tl.load(ptr + i, mask=i < D, other=0.0)
            ptr += D
        else:
            acc += 1
    tl.store(o + p * D + i, acc, mask=i < D)


def case_conditional_pointer_advance():
    # ptr += D inside a data-dependent if inside a loop
    P, T, D = 4, 6, 5
    x = torch.randn(P, T, D)
    f = torch.randint(0, 2, (P, T), dtype=torch.int32)
    o = torch.empty(P, D)
    cond_adv_20[(P,)](x, f, o, T, D, 8)
    w = torch.zeros(P, D)
    for p in range(P):
        k = 0
        for t in range(T):
            if f[p, t]:
                w[p] = w[p] * 2 + x[p, k]
                k += 1
            else:
                w[p] += 1
    return [(o, w)]


@triton.jit
def ptr_dyn_carry_21(x, nxt, o, D, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    ptr = x + p * D
    acc = tl.zeros([B], tl.float32)
    for t in range(3):
        acc += tl.load(ptr + i, mask=i < D, other=0.0)
        ptr += tl.load(nxt + p * 3 + t) * D
    tl.store(o + p * D + i, acc, mask=i < D)


def case_pointer_bumped_by_loaded():
    # ptr += loaded * D inside a loop
    out = []
    for dt in (torch.int32, torch.int64):
        x = torch.randn(12, 5)
        nx = torch.randint(0, 3, (4, 3)).to(dt)
        o = torch.empty(4, 5)
        ptr_dyn_carry_21[(4,)](x, nx, o, 5, 8)
        w = torch.zeros(4, 5)
        for p in range(4):
            r = p
            for t in range(3):
                w[p] += x[r]
                r += int(nx[p, t])
        out.append((o, w))
    return out


@triton.jit
def k_aliasdt_24(x, xi, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + (tl.load(xi + i) & 1).to(tl.float32))


def case_readonly_alias_two_dtypes():
    # the same memory read (never written) under two dtypes is refused TPB256
    x = torch.randn(16)
    o = torch.empty(16)
    k_aliasdt_24[(1,)](x, x.view(torch.int32), o, B=16)
    return [(o, x + (x.view(torch.int32) & 1))]


@triton.jit
def k_dynrow2_90(x, lens, out, stride, B: tl.constexpr):
    p = tl.program_id(0)
    L = tl.load(lens + p)
    for k in range(0, L, B):
        i = k + tl.arange(0, B)
        v = tl.load(x + p * stride + i, mask=i < L, other=0.0)
        tl.store(out + p * stride + i, v * 2, mask=i < L)


def case_fixed_meanwhile_dyn_window_end():
    # loop of loaded length over a row whose last block runs over the end: dynamic slice is clamped
    x = torch.randn(3, 21)
    o = torch.zeros(3, 21)
    L = torch.tensor([21, 3, 0], dtype=torch.int32)
    k_dynrow2_90[(3,)](x, L, o, 21, B=8)
    w = torch.where(torch.arange(21)[None] < L[:, None], x * 2, 0)
    return [(o, w)]


@triton.jit
def fold_other_91(x, o, o2, o3, W, T: tl.constexpr, L):
    p = tl.program_id(0)
    acc = 0.0
    mx = -1e30
    ac3 = 0.0
    for k in range(T):
        v = tl.load(x + p * W + k, mask=k < L, other=1.0)
        acc += v
        mx = tl.maximum(mx, v)
        ac3 += tl.exp(v) + k
    tl.store(o + p, acc)
    tl.store(o2 + p, mx)
    tl.store(o3 + p, ac3)


def case_fixed_meanwhile_fold_masked_other():
    # masked loop iterations with other != 0 are dropped from the accumulated value
    x = torch.randn(3, 10) - 3
    a, b, c = torch.empty(3), torch.empty(3), torch.empty(3)
    fold_other_91[(3,)](x, a, b, c, 10, 10, 5)
    y = x.double().clone()
    y[:, 5:] = 1.0
    return [(a, y.sum(1)), (b, y.amax(1)), (c, (y.exp() + torch.arange(10)).sum(1))]


CASES = [
    case_alias_bridge,
    case_lut_narrow_cast,
    case_lut_int_wrap,
    case_gather_beyond_view,
    case_gather_negative_subview,
    case_scatter_beyond_view,
    case_hang_while_in_branch,
    case_hang_while_after_return,
    case_hang_untaken_for_bound,
    case_store_running_total,
    case_fla_chunk_h,
    case_induction_after_dyn_loop,
    case_induction_after_pid_loop,
    case_conditional_pointer_advance,
    case_pointer_bumped_by_loaded,
    case_readonly_alias_two_dtypes,
    case_fixed_meanwhile_dyn_window_end,
    case_fixed_meanwhile_fold_masked_other,
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_once_wrong(case):
    torch.manual_seed(1)
    for got, want, *_ in case():
        torch.testing.assert_close(got.double(), want.double(), rtol=1e-4, atol=1e-4, equal_nan=True)
