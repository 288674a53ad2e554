"""A kernel means what Python says when it is launched: constants and helpers that were bound anew are seen."""

from __future__ import annotations

import enum
import types

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

NUMBER = tl.constexpr(1)
NUMBERS = [1, 2]
SIZES = {"a": 1}
DTYPE = tl.int32
module = types.ModuleType("a_module")
module.number = 1


class Settings:
    number = 1


class Kind(enum.Enum):
    A = 1


@triton.jit
def helper(v):
    return v + 1


def another_helper(v):
    return v + 100


def value_of(kernel, *args):
    o = torch.zeros(1)
    kernel[(1,)](o, *args)
    return o.item()


@triton.jit
def reads_all(o):
    v = NUMBER + NUMBERS[0] + SIZES["a"] + module.number + Settings.number + Kind.A.value
    tl.store(o, helper(v + tl.full((), 0, DTYPE)))


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (lambda patch: patch.setitem(globals(), "NUMBER", tl.constexpr(11)), 10),
        (lambda patch: patch.setattr(NUMBER, "value", 11), 10),
        (lambda patch: NUMBERS.insert(0, 11), 10),
        (lambda patch: patch.setitem(SIZES, "a", 11), 10),
        (lambda patch: patch.setattr(module, "number", 11), 10),
        (lambda patch: patch.setattr(Settings, "number", 11), 10),
        (lambda patch: patch.setitem(globals(), "helper", triton.jit(another_helper)), 99),
    ],
    ids="rebound mutated list dict module class helper".split(),
)
def test_a_change_is_seen(change, more, monkeypatch):
    before = value_of(reads_all)
    forms = len(reads_all.cache)
    assert value_of(reads_all) == before and len(reads_all.cache) == forms, "compiled again without a reason"
    with monkeypatch.context() as patch:
        change(patch)
        assert value_of(reads_all) == before + more
    NUMBERS[:] = NUMBERS[-2:]
    assert value_of(reads_all) == before


def test_a_closure_is_looked_at():
    def make():
        amount = 1

        @triton.jit
        def kernel(o):
            tl.store(o, amount)

        def set_amount(n):
            nonlocal amount
            amount = n

        return kernel, set_amount

    kernel, set_amount = make()
    assert value_of(kernel) == 1
    set_amount(5)
    assert value_of(kernel) == 5


def test_defaults_stay_what_they_were(monkeypatch):
    @triton.jit
    def kernel(o, n: tl.constexpr = NUMBER):
        tl.store(o, n)

    assert value_of(kernel) == 1
    monkeypatch.setitem(globals(), "NUMBER", tl.constexpr(7))
    assert value_of(kernel) == 1


def test_local_names_hide_global_ones(monkeypatch):
    @triton.jit
    def kernel(o):
        NUMBER = 3
        tl.store(o, NUMBER)

    assert value_of(kernel) == 3
    forms = len(kernel.cache)
    monkeypatch.setitem(globals(), "NUMBER", 8)
    assert value_of(kernel) == 3 and len(kernel.cache) == forms
