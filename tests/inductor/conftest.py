"""Shared pieces of the Inductor backend's tests: one thread, a fresh Dynamo, comparison with eager."""

import warnings

import pytest
import torch

import inductor_backend  # noqa: F401  (registers the backend when the distribution is not installed)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """No compiled code leaks from one test into the next."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def emitted(monkeypatch):
    """Every assembly (source and runner) built during the test."""
    from inductor_backend import compile as compiler

    seen = []
    publish = compiler.CompiledGraph.publish

    def record(self, assembly):
        seen.append(assembly)
        publish(self, assembly)

    monkeypatch.setattr(compiler.CompiledGraph, "publish", record)
    return seen


@pytest.fixture
def interpreted(monkeypatch):
    """Values only: the real compiler is asked elsewhere. Blocks are small, so that small tensors have several."""
    from inductor_backend.kernels import groups, layout, target

    monkeypatch.setattr(target, "COMPILE", False)
    monkeypatch.setattr(layout, "block_bytes", lambda chip: (1 << 14, 1 << 14))
    monkeypatch.setattr(layout, "TILES_ELSEWHERE", (32, 128))
    monkeypatch.setattr(groups, "SMALL", 1 << 10)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TPB42[45].*")
        yield


@pytest.fixture
def places(monkeypatch):
    """The places of the graphs that are built."""
    from inductor_backend.kernels import target

    found = []
    of = target.Place.of.__func__

    def record(cls, *args):
        found.append(of(cls, *args))
        return found[-1]

    monkeypatch.setattr(target.Place, "of", classmethod(record))
    return found
