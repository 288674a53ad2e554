"""Strides told apart: against numpy and torch, and against an enumeration of every address."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bridge.layout import Layout, classify, is_dense, row_major

SHAPES = st.lists(st.integers(0, 4), max_size=4)


@st.composite
def strided(draw):
    shape = draw(SHAPES)
    strides = draw(st.lists(st.integers(-6, 40), min_size=len(shape), max_size=len(shape)))
    return shape, strides


def addresses(shape, strides):
    return [sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*map(range, shape))]


@given(SHAPES)
def test_row_major_is_torchs_contiguous_stride(shape):
    ours, t = row_major(shape), torch.empty(shape)
    assert ours == t.stride()
    assert classify(shape, ours) == Layout("dense", tuple(range(len(shape))))


@given(strided())
def test_dense_is_what_torch_calls_contiguous(case):
    shape, strides = case
    if min(strides, default=0) < 0:
        return
    base = torch.empty(1 + sum(abs(s) * max(n - 1, 0) for n, s in zip(shape, strides)))
    assert is_dense(shape, strides) == base.as_strided(shape, strides).is_contiguous()


@given(strided())
def test_kinds_mean_what_the_addresses_say(case):
    shape, strides = case
    layout, places = classify(shape, strides), addresses(shape, strides)
    if layout.kind == "dense":
        assert places == list(range(len(places)))
    elif layout.kind == "permuted":
        assert sorted(places) == list(range(len(places))) and places != sorted(places)
    elif layout.kind == "gapped":
        assert len(set(places)) == len(places)
        assert min(places) < 0 or max(places) >= len(places)
    else:
        # `overlapping` may err on the safe side, never the other way round.
        assert layout.kind == "overlapping"
    if len(set(places)) < len(places):
        assert layout.kind == "overlapping"
    assert sorted(layout.order) == list(range(len(shape)))
    assert layout.shareable == (layout.kind in ("dense", "permuted"))


@given(st.permutations(range(4)), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_the_order_undoes_a_permutation(axes, shape):
    t = torch.empty(shape).permute(axes)
    layout = classify(t.shape, t.stride())
    assert layout.shareable
    assert t.permute(layout.order).is_contiguous()
    if layout.kind == "dense":
        assert layout.order == (0, 1, 2, 3)


@given(SHAPES, st.data())
def test_strides_of_size_one_and_of_empty_tensors_mean_nothing(shape, data):
    strides = list(row_major(shape))
    for i, n in enumerate(shape):
        if n == 1 or 0 in shape:
            strides[i] = data.draw(st.integers(-9, 99))
    assert classify(shape, strides).kind == "dense"


@pytest.mark.parametrize(
    ("shape", "strides", "kind", "order"),
    [
        ((), (), "dense", ()),
        ((0, 4), (9, 9), "dense", (0, 1)),
        ((2, 3), (1, 2), "permuted", (1, 0)),
        ((2, 3, 4, 8), (96, 1, 24, 3), "permuted", (0, 2, 3, 1)),
        ((3, 1, 6, 2), (12, 7, 2, 1), "dense", (0, 1, 2, 3)),
        ((4,), (2,), "gapped", (0,)),
        ((4,), (-1,), "gapped", (0,)),
        ((8, 16), (64, 1), "gapped", (0, 1)),
        ((8, 64), (0, 1), "overlapping", None),
        ((4, 4), (1, 1), "overlapping", None),
        ((2, 2), (3, 2), "gapped", (0, 1)),
        ((2, 3), (3, 2), "overlapping", None),  # interleaved without a real overlap: the safe side
    ],
)
def test_known_layouts(shape, strides, kind, order):
    layout = classify(shape, strides)
    assert layout.kind == kind
    assert order is None or layout.order == order


def test_numpys_negative_strides_are_gaps():
    a = np.zeros((4, 6), np.float32)[::-1]
    assert classify(a.shape, [s // 4 for s in a.strides]).kind == "gapped"


@pytest.mark.parametrize(("shape", "strides"), [((2,), ()), ((2, 3), (1,)), ((-1,), (1,))])
def test_nonsense_is_refused(shape, strides):
    with pytest.raises(ValueError, match="no tensor"):
        classify(shape, strides)
