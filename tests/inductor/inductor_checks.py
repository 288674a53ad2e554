"""Comparison of a compiled function with eager: values, dtypes, shapes, strides, mutated arguments, no fallback."""

import copy

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from bridge.diagnostics import strict


def clones(args):
    """Arguments of their own memory, with the layouts they have."""

    def clone(t):
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) if not _overlaps(t) else t.clone()

    return tree_map_only(torch.Tensor, lambda t: clone(t.detach()).requires_grad_(t.requires_grad), args)


def _overlaps(t):
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


def same(got, want, rtol=None, atol=None, strides=True):
    """Assert that two results agree in everything a user can see."""
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        if not isinstance(w, torch.Tensor):
            assert type(g) is type(w) and g == w
            continue
        assert g.dtype == w.dtype and g.shape == w.shape
        if strides and w.numel() > 1:
            wide = [d for d in range(w.dim()) if w.shape[d] != 1]
            assert [g.stride(d) for d in wide] == [w.stride(d) for d in wide]
        torch.testing.assert_close(g.detach(), w.detach(), rtol=rtol, atol=atol, equal_nan=True)


def check(fn, *args, rtol=None, atol=None, strides=True, fallback=False, kernels="profitable", dynamic=False):
    """Run eager and compiled on equal arguments; compare results and what happened to the arguments."""
    mine, theirs = clones(args), clones(args)
    model, twin = (fn, copy.deepcopy(fn)) if isinstance(fn, torch.nn.Module) else (fn, fn)
    want = model(*theirs)
    compiled = torch.compile(twin, backend="pallas", dynamic=dynamic, options={"kernels": kernels})
    if fallback:
        got = compiled(*mine)
    else:
        with strict():
            got = compiled(*mine)
    same(got, want, rtol, atol, strides)
    same(mine, theirs, rtol, atol)
    if isinstance(fn, torch.nn.Module):
        same(list(twin.state_dict().values()), list(model.state_dict().values()), rtol, atol)
    return got
