"""Shared pieces of the Inductor backend's tests: one thread, a fresh Dynamo, comparison with eager."""

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
