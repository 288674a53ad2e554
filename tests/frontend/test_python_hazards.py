"""Where Python could make a kernel mean something else: text, names, defaults, containers, classes, annotations."""

from __future__ import annotations

import importlib.util
import linecache
from typing import NamedTuple

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic


def ints(n: int) -> torch.Tensor:
    return torch.full((n,), -7, dtype=torch.int32)


# -- text


def identity(label):
    return lambda fn: fn


# fmt: off
@identity("def looks like a definition(")
@triton.jit
@identity(
    {"def": 1}
)
def odd_text(o, n,  # def comment(
             W: tl.constexpr = 4):
    größe = n + 1; tl.store(o, größe)  # noqa: E702 - Unicode before a column: é
    text = """
def not_this(o):
    tl.store(o, 1)
"""
    total = n \
        + len(text) \
        + W
    if W > 3: total += 1; total *= 2  # noqa: E701, E702
    tl.store(o + 1, total)
    tl.store(
        o
        + 2, (lambda q:
              q * 2)(n)
    )
# fmt: on


def test_text_is_read_as_python_reads_it():
    o = ints(3)
    odd_text[(1,)](o, 5)
    assert o.tolist() == [6, (5 + 37 + 4 + 1) * 2, 10]


TABS = """
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


class Outer:
    class Inner:
        @staticmethod
        @triton.jit
        def kernel(o, n):
            if n > 2:
                tl.store(o, n)
            else:
                tl.store(o, missing)
""".replace("    ", "\t")


def test_tabs_and_static_methods(tmp_path):
    path = tmp_path / "tabs.py"
    path.write_text(TABS)
    spec = importlib.util.spec_from_file_location("tabs_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    o = ints(1)
    module.Outer.Inner.kernel[(1,)](o, 5)
    assert o.tolist() == [5]
    with pytest.raises(Diagnostic) as refused:
        module.Outer.Inner.kernel[(1,)](o, 1)
    assert (refused.value.slug, refused.value.where.line) == ("undefined-name", 14)


def make(op, width):
    if width > 2:

        @triton.jit
        def kernel(o, n):
            tl.store(o, op(n, width))
    else:

        @triton.jit
        def kernel(o, n):
            tl.store(o + 1, op(n, width))

    return kernel


def test_definitions_of_one_name():
    o = ints(2)
    for width in (5, 2, 4):
        make(lambda a, b: a * 10 + b, width)[(1,)](o, 3)
    assert o.tolist() == [34, 32]


def test_a_lambda_is_a_kernel():
    o = ints(1)
    triton.jit(lambda o, n: tl.store(o, n + 1))[(1,)](o, 3)
    assert o.tolist() == [4]


def test_a_kernel_without_text_says_so():
    scope = {"triton": triton, "tl": tl}
    exec(compile("@triton.jit\ndef kernel(o):\n    tl.store(o, 1)\n", "<nowhere>", "exec"), scope)
    linecache.cache.pop("<nowhere>", None)
    o = ints(1)
    try:
        scope["kernel"][(1,)](o)
    except Diagnostic as refused:
        assert refused.slug == "no-source"
    else:
        assert o.tolist() == [1]  # the text was kept when the kernel was made


# -- names

LEVEL = 3
TABLE = {"a": [1, 2]}
PARTS = [1, 2]
LIMIT: tl.constexpr = 4


@triton.jit
def shadows(o, max, len):
    range = max + len
    min = tl.minimum
    print = min(range, 100)
    for abs in tl.static_range(2):
        tl.store(o + abs, print + abs)
    float = 2
    tl.store(o + 2, float * LIMIT)


def test_local_names_hide_builtins():
    o = ints(3)
    shadows[(1,)](o, 5, 6)
    assert o.tolist() == [11, 12, 8]


@triton.jit
def reads_before_assignment(o):
    LEVEL = LEVEL + 1  # noqa: F823
    tl.store(o, LEVEL)


@triton.jit
def global_statement(o):
    global LEVEL
    LEVEL = 5
    tl.store(o, LEVEL)


@triton.jit
def nonlocal_statement(o):
    k = 1

    def bump():
        nonlocal k
        k = 2

    bump()
    tl.store(o, k)


@triton.jit
def appends_to_global(o):
    PARTS.append(3)
    tl.store(o, len(PARTS))


@triton.jit
def writes_global_table(o):
    TABLE["a"][0] = 9
    tl.store(o, TABLE["a"][0])


class Config:
    sizes = [4]


@triton.jit
def extends_attribute(o):
    Config.sizes.extend([5])
    tl.store(o, len(Config.sizes))


@triton.jit
def appends_to_argument(o, parts: tl.constexpr):
    parts.append(1)
    tl.store(o, len(parts))


@triton.jit
def collect(x, seen=[]):  # noqa: B006
    seen.append(x)
    return len(seen)


@triton.jit
def mutable_default(o):
    tl.store(o, collect(1))


@triton.jit
def adds_in_place(o):
    parts = PARTS
    parts += [3]
    tl.store(o, len(parts))


@pytest.mark.parametrize(
    ("kernel", "slug", "text"),
    [
        (reads_before_assignment, "undefined-name", "LEVEL"),
        (global_statement, "not-translated", "global"),
        (nonlocal_statement, "not-translated", "nonlocal"),
        (appends_to_global, "not-translated", "`PARTS`"),
        (writes_global_table, "not-translated", "`TABLE`"),
        (extends_attribute, "not-translated", "`Config.sizes`"),
        (appends_to_argument, "not-translated", "`parts`"),
        (mutable_default, "not-translated", "default of `seen`"),
        (adds_in_place, "not-translated", "`PARTS`"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_lies_outside_is_not_changed(kernel, slug, text):
    args = ([1],) if kernel is appends_to_argument else ()
    with pytest.raises(Diagnostic, match=text) as refused:
        kernel[(1,)](ints(1), *args)
    assert refused.value.slug == slug
    assert (LEVEL, TABLE, PARTS, Config.sizes) == (3, {"a": [1, 2]}, [1, 2], [4])


@triton.jit
def reads_outside(o):
    copy = list(PARTS)
    copy.append(LEVEL)
    tl.store(o, sum(copy) + TABLE["a"][1])


def test_what_lies_outside_is_read():
    o = ints(1)
    reads_outside[(1,)](o)
    assert o.tolist() == [8]


# -- where a diagnostic points


@triton.jit
def inner_helper(x):
    return x + nowhere  # noqa: F821


@triton.jit
def outer_helper(x):
    y = x * 2
    return inner_helper(y)


@triton.jit
def chain(o):
    tl.store(o, outer_helper(tl.load(o)))


def test_a_diagnostic_in_a_helper_shows_the_calls():
    with pytest.raises(Diagnostic) as refused:
        chain[(1,)](ints(1))
    where, lines = refused.value.where, str(refused.value).splitlines()
    assert where.function == "inner_helper"
    assert where.called_from.function == "outer_helper"
    assert where.called_from.called_from.function == "chain"
    first = next(i for i, line in enumerate(lines) if line.startswith("  called from"))
    assert "outer_helper: return inner_helper(y)" in lines[first]
    assert "chain: tl.store(o, outer_helper(tl.load(o)))" in lines[first + 1]


@triton.jit
def endless(x, n: tl.constexpr):
    return endless(x, n + 1)


@triton.jit
def recursion(o):
    tl.store(o, endless(tl.load(o), 0))


def test_an_endless_recursion_is_refused_briefly():
    with pytest.raises(Diagnostic, match="helpers deep") as refused:
        recursion[(1,)](ints(1))
    assert len(str(refused.value).splitlines()) < 20


# -- constexprs, annotations, keys


@triton.jit
def typed(o, a: tl.int64, b: tl.uint8, c: tl.float16, flag: tl.int1, n: int):
    tl.static_assert(a.dtype == tl.int64)
    tl.static_assert(b.dtype == tl.uint8)
    tl.static_assert(c.dtype == tl.float16)
    tl.static_assert(flag.dtype == tl.int1)
    tl.store(o, a * 2**33 + b)
    tl.store(o + 1, c * n)


def test_annotated_numbers_have_their_type():
    o = torch.zeros(2, dtype=torch.float64)
    for a in (1, 3):
        typed[(1,)](o, a, 200, 0.1, 1, 5)
        assert o.tolist() == [a * 2**33 + 200, float(torch.tensor(0.1, dtype=torch.float16) * 5)]
    with pytest.raises(Diagnostic, match="0 to 255"):
        typed[(1,)](o, 1, 256, 0.1, 1, 5)


@triton.jit
def keyed(o, k: tl.constexpr):
    v: tl.constexpr = k[0] if isinstance(k, (tuple, list)) else k
    tl.store(o, tl.full((), 1.0, tl.float32) / v if isinstance(v, float) else 10.0 + v)


def test_constexprs_that_are_equal_and_mean_something_else():
    o = torch.zeros(1)
    got = []
    for k in (1, 1.0, True, 0.5, -0.0, 0.0, (1,), (1.0,), [1], [1.0], (True,)):
        keyed[(1,)](o, k)
        got.append(o.item())
    inf = float("inf")
    assert got == [11, 1, 11, 2, -inf, inf, 11, 1, 11, 1, 11]


@triton.jit
def double(x):
    return x * 2


def make_helper(k):
    @triton.jit
    def helper(x):
        return x + k

    return helper


@triton.jit
def apply_all(o, fns: tl.constexpr):
    x = tl.load(o)
    for fn in fns:
        x = fn(x)
    tl.store(o, x)


def test_lists_of_helpers_are_told_apart():
    o = torch.ones(1)
    for k in (1, 10):
        apply_all[(1,)](o, [double, make_helper(k)])
    assert o.item() == 16.0


# -- tuples whose elements could take each other's names


@triton.jit
def pairs(t_0, t, t_1):
    tl.store(t[0], tl.load(t_0) + t[1])
    tl.store(t_1, 3)


def test_elements_of_tuples_have_names_of_their_own():
    a, b, c = torch.ones(1), torch.zeros(1), torch.zeros(1)
    pairs[(1,)](a, (b, 5), c)
    assert (a.item(), b.item(), c.item()) == (1, 6, 3)


class Left(NamedTuple):
    a: int
    b: int


class Right(NamedTuple):
    b: int
    a: int


@triton.jit
def fields(o, pair):
    tl.store(o, pair.a)


def test_classes_of_named_tuples_are_told_apart():
    o = ints(1)
    got = []
    for pair in (Left(1, 2), Right(1, 2)):
        fields[(1,)](o, pair)
        got.append(o.item())
    assert got == [1, 2]


# -- aggregates


@triton.aggregate
class Span:
    start: tl.tensor
    size: tl.constexpr

    @triton.jit
    def lanes(self):
        return self.start + tl.arange(0, self.size)

    @triton.jit
    def __getitem__(self, i):
        return self.start + i

    @triton.constexpr_function
    def twice(self):
        return self.size * 2

    def moved(self, by, _semantic=None):
        return Span(self.start + by, self.size)


@triton.jit
def spans(o, n):
    span = Span(n * 8, 4)
    for i in range(2):
        span = span.moved(1)
        if i == 1:
            span = Span(span.start + 2, span.size)
    tl.store(o + tl.arange(0, 4), span.lanes())
    other = tl.aggregate_replace(span, start=n)
    known: tl.constexpr = span.twice()
    tl.store(o + 4, other[5] + known)


def test_aggregates():
    o = ints(5)
    spans[(1,)](o, 3)
    assert o.tolist() == [28, 29, 30, 31, 16]


@triton.jit
def sets_attribute(o):
    span = Span(tl.load(o), 4)
    span.start = 5
    tl.store(o, span.start)


def test_an_aggregate_is_one_value():
    with pytest.raises(Diagnostic, match=r"span\.start"):
        sets_attribute[(1,)](ints(1))


@triton.jit
def types_of_values(n):
    x: tl.constexpr
    x, y = 1, 2
    pair = (n, 1.5)
    shape: tl.constexpr = (2, 4)
    tl.static_assert(x.type == tl.constexpr_type(1))
    tl.static_assert(y.type == tl.int32)
    tl.static_assert(pair.type == tl.tuple_type([tl.int32, tl.float32]))
    tl.static_assert(shape.value[1] == 4)
    tl.static_assert(isinstance((k := 3).type, tl.dtype) and k == 3)


def test_types_of_values():
    types_of_values[(1,)](3)


@tl.core.builtin
def listed(*values, _semantic=None):
    return [tl.to_tensor(v, _semantic=_semantic) for v in values]


@triton.jit
def uses_builtin(o):
    tl.store(o, listed(4, 8, tl.load(o))[2] + listed(4)[0])


def test_functions_for_the_compiler():
    o = ints(1)
    uses_builtin[(1,)](o)
    assert o.tolist() == [-3]
