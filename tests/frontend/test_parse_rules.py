# ruff: noqa: E501 - one probe a line reads best
"""What the front end accepts and rejects, construct by construct, next to the real Triton front end.

Three groups: both accept (and give the same types), both reject (ours with a registered diagnostic), and what only
we accept, because Python itself evaluates what is not a tile value.
"""

from __future__ import annotations

import pytest

from .probing import ask_both

pytest.importorskip("triton._C.libtriton")

X = "x = tl.load(p_fp32 + tl.arange(0, 16))\n"
INT = "i = tl.load(p_int32 + tl.arange(0, 16))\n"
S = "s = tl.load(p_int32)\nf = tl.load(p_fp32)\n"
T = 'tl.static_print("T", r.dtype, r.shape)'

BOTH = {
    "early_return": S + "if s > 3:\n    return\ntl.store(p_fp32, f)",
    "return_in_else": S + "if s > 3:\n    tl.store(p_fp32, f)\nelse:\n    return\ntl.store(p_fp32, f + 1)",
    "arange_offset": "r = tl.arange(4, 12)\n" + T,
    "new_axes": X + "r = x[:, None] + x[None, :]\n" + T,
    "comprehension": X + "t = (x, x + 1)\nt = [v * 2 for v in t]\nr = t[1]\n" + T,
    "constexpr_pow": "r = tl.full((2 ** 3,), 1, tl.int32)\n" + T,
    "global_constexpr": X + "r = x + G_CONST\n" + T,
    "assert_static": "assert N == 16, 'no'\nassert N >= 4",
    "print_value": X + "print('x', x)",
    "f_string": "tl.static_assert(N == 16, f'{N} is wrong')",
    "constexpr_function": "r = tl.zeros((double(N),), tl.float32)\n" + T,
    "annotated": "half: tl.constexpr = N // 2\nr = tl.arange(0, half)\n" + T,
    "assign_over_param": "n = n + 1\nr = n\n" + T,
    "negative_step": "a = 0\nfor j in range(10, 0, -3):\n    a += j\nr = a\n" + T,
    "negative_step_run_time": "a = 0\nfor j in range(n, 0, -1):\n    a += j\nr = a\n" + T,
    "range_int64": S + "a = tl.load(p_int64)\nfor j in range(0, a):\n    a += j\nr = a\n" + T,
    "floordiv": "r = n // 3\n" + T,
    "modulo": "r = n % 3\n" + T,
    "uint_floordiv": "r = tl.load(p_uint32) // 3\n" + T,
    "float_mod": X + "r = x % 2.0\n" + T,
    "builtin_min": "r = min(n, 3)\n" + T,
    "builtin_max3": "r = max(n, 3)\n" + T,
    "broadcast_1d_2d": X + "r = x + tl.zeros((4, 16), tl.float32)\n" + T,
    "implicit_store_cast": INT + "tl.store(p_fp32 + tl.arange(0, 16), i)",
    "tuple_helper": "a, b = helper_two(n)\nr = a + b\n" + T,
    "helper_keyword": "a, b = helper_two(n, b=4)\nr = a\n" + T,
    "len_shape": X + "r = tl.full((1,), len(x.shape), tl.int32)\n" + T,
    "ternary": S + "r = f if s > 3 else f + 1.0\n" + T,
    "ternary_static": X + "r = x if N > 3 else 1\n" + T,
    "boolean_and": S + "r = (s > 1) and (s < 5)\n" + T,
    "block_and": X + "r = (x > 1) and (x < 5)\n" + T,
    "block_not": X + "r = not (x > 1)\n" + T,
    "while_loop": S + "while s > 0:\n    s -= 1\nr = s\n" + T,
    "while_condition": S + "while (s > 0) & (f > 0):\n    s = s // 2\n    f -= 1\nr = f\n" + T,
    "if_merges": S + "if s > 0:\n    a = 1\nelse:\n    a = s\nr = a\n" + T,
    "if_defines": S + "if s > 0:\n    a = 1.0\nelse:\n    a = 2.0\nr = a\n" + T,
    "if_changes": S + "a = 1\nif s > 0:\n    a = 2\nr = a\n" + T,
    "static_range": X + "for j in tl.static_range(3):\n    x = x * j\nr = x\n" + T,
    "static_range_types": S
    + "for j in tl.static_range(2):\n    f = f + 1\nr = tl.full((4,), 0, tl.int8)\nfor j in tl.static_range(2):\n    r = r + r.to(tl.int16)\n"
    + T,
    "tl_range": S + "for j in tl.range(0, n, 2, num_stages=2):\n    f += j\nr = f\n" + T,
    "loop_tile": X + "for j in range(n):\n    x = x * 2 + j\nr = x\n" + T,
    "loop_pointer": "p = p_fp32 + tl.arange(0, 16)\nr = tl.zeros((16,), tl.float32)\nfor j in range(n):\n    r += tl.load(p)\n    p += 16\n"
    + T,
    "nested_loops": "a = 0\nfor j in range(n):\n    for k in range(j):\n        a += k\nr = a\n" + T,
    "is_none": "m = None\nif m is None:\n    r = n\nelse:\n    r = tl.load(p_fp32)\n" + T,
    "optional_mask": X + "m = None\nr = tl.load(p_fp32 + tl.arange(0, 16), mask=m)\n" + T,
    "static_if_types": "if N > 4:\n    r = 1\nelse:\n    r = 1.0\n" + T,
    "reduce_2d": X + "r = tl.sum(x[:, None] + x[None, :], axis=1)\n" + T,
    "reduce_all": X + "r = tl.max(x[:, None] + x[None, :])\n" + T,
    "reduce_keep": X + "r = tl.sum(x[:, None] + x[None, :], axis=1, keep_dims=True)\n" + T,
    "negative_axis": X + "r = tl.sum(x[:, None] + tl.zeros((16, 4), tl.float32), axis=-1)\n" + T,
    "trans_reshape": X + "r = tl.trans(tl.reshape(x, (2, 8)))\n" + T,
    "reshape_args": X + "r = tl.reshape(x, 4, 4)\n" + T,
    "permute": X + "r = tl.permute(tl.reshape(x, (2, 4, 2)), (2, 0, 1))\n" + T,
    "join_split": X + "a, b = tl.split(tl.join(x, x))\nr = a\n" + T,
    "join_scalars": S + "r = tl.join(f, f)\n" + T,
    "split_to_scalars": S + "a, b = tl.split(tl.join(f, f))\nr = a\n" + T,
    "interleave": X + "r = tl.interleave(x, x)\n" + T,
    "cat": X + "r = tl.cat(x, x, can_reorder=True)\n" + T,
    "expand_dims": X + "r = tl.expand_dims(x, 1)\n" + T,
    "expand_dims_many": X + "r = tl.expand_dims(x, (0, 2))\n" + T,
    "scalar_expand": S + "r = f[None]\n" + T,
    "broadcast_to": X + "r = tl.broadcast_to(x[None, :], (4, 16))\n" + T,
    "broadcast_to_scalar": S + "r = tl.broadcast_to(f, (4, 16))\n" + T,
    "view": X + "r = tl.view(x, (4, 4))\n" + T,
    "ravel": X + "r = tl.ravel(tl.reshape(x, (4, 4)))\n" + T,
    "flip": X + "r = tl.flip(x, 0)\n" + T,
    "sort": X + "r = tl.sort(x)\n" + T,
    "histogram": INT + "r = tl.histogram(i, 16)\n" + T,
    "gather": X + "r = tl.gather(x, tl.arange(0, 8), 0)\n" + T,
    "softmax": X + "r = tl.softmax(x)\n" + T,
    "where_numbers": X + "r = tl.where(x > 0, 1, 0)\n" + T,
    "where_scalar_condition": X + S + "r = tl.where(s > 0, x, 0.0)\n" + T,
    "zeros_like": INT + "r = tl.zeros_like(i)\n" + T,
    "full_scalar": S + "r = tl.full((4, 4), f, tl.float32)\n" + T,
    "dot_3d": "a = tl.zeros((2, 16, 16), tl.float32)\nr = tl.dot(a, a)\n" + T,
    "dot_acc": "a = tl.zeros((16, 16), tl.float16)\nr = tl.dot(a, a, tl.zeros((16, 16), tl.float32))\n" + T,
    "atomic_add": X + "r = tl.atomic_add(p_fp32 + tl.arange(0, 16), x, mask=x > 0)\n" + T,
    "atomic_cas": S + "r = tl.atomic_cas(p_int32, 0, 1)\n" + T,
    "block_pointer": "p = tl.make_block_ptr(p_fp32, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))\nr = tl.load(p, boundary_check=(0, 1), padding_option='zero')\np = tl.advance(p, (0, 16))\ntl.store(p, r, boundary_check=(1,))\n"
    + T,
    "rand": INT + "r = tl.rand(n, i)\n" + T,
    "randn": INT + "r = tl.randn(42, i)\n" + T,
    "randint4x": INT + "a, b, c, r = tl.randint4x(n, i)\n" + T,
    "philox": INT + "r, b, c, d = tl.philox(n, i, i, i, i)\n" + T,
    "swizzle": "r, b = tl.swizzle2d(n, n, n, n, 4)\n" + T,
    "cdiv": "r = tl.cdiv(n, N)\n" + T,
    "program_id": "r = tl.program_id(0) * tl.num_programs(0)\n" + T,
    "pointer_minus": "r = tl.load(p_fp32 + tl.arange(0, 16) - 4)\n" + T,
    "pointer_in_place": "p_fp32 += n\np_fp32 -= n\nr = tl.load(p_fp32)\n" + T,
    "element_type": "r = tl.zeros((4,), p_fp16.dtype.element_ty)\n" + T,
    "type_element": X + "r = tl.zeros((4,), x.dtype)\n" + T,
    "multiple_of": INT + "r = tl.max_contiguous(tl.multiple_of(i, 8), 8)\n" + T,
    "assume": "tl.assume(n > 0)\nr = n\n" + T,
    "barrier": "tl.debug_barrier()\nr = n\n" + T,
    "device_assert": X + "tl.device_assert(x > 0, 'positive')\nr = x\n" + T,
    "methods": X + "r = x.sum(0).to(tl.float16)\n" + T,
    "fp8_load": X + "r = x.to(tl.float8e5).to(tl.float32)\n" + T,
    "scalar_reduce": X + "r = tl.max(x, 0) + 1\n" + T,
    "umulhi": INT + "r = tl.umulhi(i, i)\n" + T,
    "slice_full": X + "r = tl.reshape(x, (4, 4))[:, None, :]\n" + T,
    "shift_scalar": "r = 1 << n\n" + T,
    "right_shift_number": INT + "r = 1000 >> i\n" + T,
    "compare_out_of_range": "r = tl.load(p_int8 + tl.arange(0, 16)) < 300\n" + T,
    "star_call": "t = (n, n)\nr, b = helper_two(*t)\n" + T,
    "constexpr_call": "r = tl.arange(0, tl.constexpr(N))\n" + T,
    "bool_scalar": S + "r = f + (s > 0)\n" + T,
    "augmented_tile": X + "x *= 2\nx -= 1\nx /= 3\nr = x\n" + T,
    "string_compare": "r = n if 'a' == 'a' else 1.0\n" + T,
    "reduce_user": X + "r = tl.reduce(x, 0, helper_add)\n" + T,
}
NEITHER = {
    "block_condition": X + "if x > 0:\n    n = n + 1",
    "block_ternary": X + "r = 1 if x > 0 else 2",
    "arange_3": "r = tl.arange(0, 3)",
    "arange_empty": "r = tl.arange(4, 4)",
    "arange_run_time": "r = tl.arange(0, n)",
    "zeros_3": "r = tl.zeros((3,), tl.float32)",
    "zeros_run_time": "r = tl.zeros((n,), tl.float32)",
    "try_statement": "try:\n    n = n + 1\nfinally:\n    n = n + 2",
    "matmul_operator": X + "r = x @ x",
    "power": X + "r = x ** 2",
    "item_assignment": X + "x[0] = 1.0",
    "int_index": X + "r = x[0]",
    "slice_index": X + "r = x[0:4]",
    "f_string_run_time": X + "tl.static_print(f'{x}')",
    "loop_type": "a = 0\nfor j in range(n):\n    a = a + 1.5",
    "loop_type_64": "a = 0\nfor j in range(n):\n    a = a + tl.load(p_int64)",
    "loop_shape": "a = 0.0\nfor j in range(n):\n    a = a + tl.zeros((4,), tl.float32)",
    "while_type": "a = 0\nwhile a < n:\n    a = a + 0.5",
    "if_type": S + "if s > 0:\n    a = 1\nelse:\n    a = 1.0\ntl.store(p_fp32, a)",
    "if_one_branch": S + "if s > 0:\n    a = 1\ntl.store(p_fp32, a)",
    "ternary_type": S + "r = 1 if s > 0 else 1.0",
    "loop_only_name": "for j in range(n):\n    a = j\ntl.store(p_fp32, a)",
    "mixed_signs": "r = tl.load(p_uint32) // n",
    "uint_negative": "r = tl.load(p_uint32) + -1",
    "float_floordiv": X + "r = x // 2",
    "int8_range": "r = tl.load(p_int8) + 1000",
    "exp_fp16": "r = tl.exp(tl.load(p_fp16))",
    "dot_mixed": "r = tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float32))",
    "dot_inner": "r = tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((32, 16), tl.float16))",
    "dot_1d": X + "r = tl.dot(x, x)",
    "dot_int32": "a = tl.zeros((32, 32), tl.int32)\nr = tl.dot(a, a)",
    "dot_accumulator": "a = tl.zeros((16, 16), tl.float16)\nr = tl.dot(a, a, tl.zeros((16, 32), tl.float32))",
    "other_without_mask": "r = tl.load(p_fp32, other=0.0)",
    "shape_mismatch": X + "r = x + tl.zeros((8,), tl.float32)",
    "pointer_plus_float": "r = p_fp32 + 1.5",
    "pointer_plus_pointer": "r = p_fp32 + p_fp32",
    "pointer_times": "r = p_fp32 * 2",
    "store_block_to_scalar": X + "tl.store(p_fp32, x)",
    "mask_block_for_scalar": X + "r = tl.load(p_fp32, mask=x > 0)",
    "load_of_value": X + "r = tl.load(x)",
    "call_dtype": X + "r = tl.float32(x)",
    "float_of_value": "r = float(n)",
    "helper_return_types": S + "r = helper_mixed(s)",
    "unknown_name": "r = no_such_name + 1",
    "unknown_function": "r = tl.no_such_function(n)",
    "static_assert_false": "tl.static_assert(N == 3, 'three')",
    "assert_false": "assert N == 3",
    "bitcast_width": X + "r = x.to(tl.int16, bitcast=True)",
    "rounding_mode": X + "r = x.to(tl.float64, fp_downcast_rounding='rtz')",
    "reshape_count": X + "r = tl.reshape(x, (4, 2))",
    "broadcast_rank": X + "r = tl.broadcast_to(x, (4, 16))",
    "permute_wrong": X + "r = tl.permute(tl.reshape(x, (4, 4)), (0, 0))",
    "split_wrong": X + "r = tl.split(x)",
    "axis_outside": X + "r = tl.sum(x, axis=3)",
    "program_axis": "r = tl.program_id(3)",
    "bits_of_float": X + "r = x & x",
    "invert_float": X + "r = ~x",
    "negate_pointer": "r = -p_fp32",
    "clamp_int": INT + "r = tl.clamp(i, 0, 4)",
    "wrong_keyword": "r = tl.load(p_fp32, msk=n > 0)",
    "too_many_arguments": "r, b = helper_two(n, n, n)",
    "unpack_count": "a, b, c = helper_two(n)",
    "float_bounds": "for j in range(0.5):\n    n = n + 1",
    "block_bounds": X + INT + "for j in range(i):\n    n = n + 1",
    "while_block": X + "while x > 0:\n    x -= 1",
    "constexpr_run_time": "b: tl.constexpr = n\nr = tl.arange(0, b)",
    "static_range_run_time": "for j in tl.static_range(n):\n    n = n + 1",
    "boundary_check_pointer": "r = tl.load(p_fp32, boundary_check=(0,))",
    "padding_option": "p = tl.make_block_ptr(p_fp32, (n,), (1,), (0,), (16,), (0,))\nr = tl.load(p, boundary_check=(0,), padding_option='one')",
    "block_pointer_mask": "p = tl.make_block_ptr(p_fp32, (n,), (1,), (0,), (16,), (0,))\nr = tl.load(p, mask=n > 0)",
    "block_pointer_rank": "p = tl.make_block_ptr(p_fp32, (n, n), (1,), (0,), (16,), (0,))",
    "xor_sum_float": X + "r = tl.xor_sum(x, 0)",
    "histogram_float": X + "r = tl.histogram(x, 16)",
    "join_types": X + INT + "r = tl.join(x, i)",
    "input_precision": "a = tl.zeros((16, 16), tl.float32)\nr = tl.dot(a, a, input_precision='tf31')",
    "with_statement": "with n:\n    n = n + 1",
    "class_statement": "class A:\n    x = 1",
    "global_statement": "global G_INT\nG_INT = 4",
    "yield_expression": "a = [1]\nn = n + 1\nfor j in range(n):\n    a.append(j)",
}
ONLY_OURS = {
    "break_in_loop": "r = n\nfor j in range(n):\n    if j > 3:\n        break\n    r += j\n" + T,
    "continue_in_loop": "r = n\nfor j in range(n):\n    if j > 3:\n        continue\n    r += j\n" + T,
    "while_true": "r = n\nwhile True:\n    r += 1\n    if r > 4:\n        break\n" + T,
    "return_in_loop": "r = n\n" + T + "\nfor j in range(n):\n    if j == 3:\n        return\ntl.store(p_fp32, r)",
    "for_else": "r = n\nfor j in range(n):\n    r = r + 1\nelse:\n    r = r + 2\n" + T,
    "chained_compare": "r = 0 < n < 5\n" + T,
    "global_int": X + "r = x + G_INT\n" + T,
    "plain_helper": X + "r = plain(x)\n" + T,
    "lambda_": "g = lambda a: a + 1\nr = g(n)\n" + T,
    "inner_def": "def g(a):\n    if N > 3:\n        return a + 1\n    return a\nr = g(n)\n" + T,
    "for_over_list": "r = n\nfor v in [1, 2, 3]:\n    r += v\n" + T,
    "dict_literal": "d = {'a': n}\nr = d['a']\n" + T,
    "walrus": "if (k := N) > 3:\n    r = tl.arange(0, k)\n" + T,
    "import_inside": "import math\nr = tl.full((4,), math.pi, tl.float32)\n" + T,
    "zip_enumerate": "r = n\nfor j, (a, b) in enumerate(zip((1, 2), (3, 4))):\n    r += a * b + j\n" + T,
    "break_static": "r = n\nfor v in (1, 2, 3):\n    if v == 2:\n        break\n    r += v\n" + T,
    "continue_static": "r = n\nfor v in tl.static_range(3):\n    if v == 1:\n        continue\n    r += v\n" + T,
    "reassigned_constexpr": "z: tl.constexpr = 3\nz = 4\nr = n + z\n" + T,
    "small_dot": "a = tl.zeros((8, 8), tl.float16)\nr = tl.dot(a, a)\n" + T,
    "int_condition": "r = 0\nif n:\n    r = 1\n" + T,
    "membership": "r = n if N in (8, 16) else 1.0\n" + T,
    "float_of_literal": "a = 3\nr = tl.full((4,), float(a), tl.float32)\n" + T,
    "literal_shapes": "half = N // 2\nr = tl.arange(0, half)\n" + T,
    "dict_comprehension": "d = {k: n + k for k in (1, 2)}\nr = d[2]\n" + T,
    "default_sum": "r = sum([n, n, n])\n" + T,
    "math_module": "import math\nr = tl.zeros((2 ** int(math.log2(N)),), tl.float32)\n" + T,
}
HELPERS = "\n@triton.jit\ndef helper_add(a, b):\n    return a + b\n"
# the real front end stops these with a crash of its own or accepts what it can't compile later
UNEVEN = {
    "assert_false",
    "unpack_count",
    "mask_block_for_scalar",
    "global_statement",
    "yield_expression",
    "class_statement",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    from . import probing

    probing.HEADER += HELPERS if HELPERS not in probing.HEADER else ""
    groups = {"b": BOTH, "n": NEITHER, "o": ONLY_OURS}
    bodies = {f"{g}_{name}": body for g, probes in groups.items() for name, body in probes.items()}
    return ask_both(bodies, tmp_path_factory.mktemp("rules"))


@pytest.mark.parametrize("name", BOTH)
def test_both_accept(answers, name):
    real, ours = (side[f"b_{name}"] for side in answers)
    assert real["ok"], real["why"]
    assert ours["ok"], ours["why"]
    assert ours["types"] == real["types"]


@pytest.mark.parametrize("name", NEITHER)
def test_both_reject(answers, name):
    real, ours = (side[f"n_{name}"] for side in answers)
    assert not ours["ok"]
    assert ours["slug"] != "internal-error", ours["why"]
    if name not in UNEVEN:
        assert not real["ok"], real


@pytest.mark.parametrize("name", ONLY_OURS)
def test_only_we_accept(answers, name):
    real, ours = (side[f"o_{name}"] for side in answers)
    assert ours["ok"], ours["why"]
    assert len(ours["types"]) == 1
    assert not real["ok"] or real["types"] == ours["types"]
