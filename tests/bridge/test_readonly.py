"""A share of a live jax array refuses every in-place write, reads like a plain tensor, and is plain when asked."""

import copy
import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bridge
from bridge.diagnostics import ShareError
from bridge.readonly import ReadOnlyTensor

VALUES = np.arange(64, dtype=np.float32)


@pytest.fixture
def array():
    """An array whose values are checked after the test: nothing may have changed them."""
    a = jnp.asarray(VALUES) + 0
    yield a
    assert np.array_equal(np.asarray(a), VALUES)


@pytest.fixture
def t(array):
    t = bridge.to_torch(array)
    assert t.data_ptr() == array.unsafe_buffer_pointer()
    return t


def setitem(t):
    t[0] = 1.0


def augmented(t):
    t += 1


def real_setter(t):
    t.real = torch.zeros(64)


def imag_setter(t):
    bridge.to_torch(jnp.zeros(4, dtype=jnp.complex64)).imag = torch.ones(4)


def optimiser(t):
    p = torch.nn.Parameter(t)
    p.grad = torch.ones(64)
    torch.optim.SGD([p], lr=1.0, foreach=False).step()


def foreach_optimiser(t):
    p = torch.nn.Parameter(t)
    p.grad = torch.ones(64)
    torch.optim.Adam([p], foreach=True).step()


WRITES = {
    "add_": lambda t: t.add_(1),
    "fill_": lambda t: t.fill_(1),
    "copy_": lambda t: t.copy_(torch.zeros(64)),
    "setitem": setitem,
    "augmented": augmented,
    "slice": lambda t: t[3:].mul_(2),
    "view of a view": lambda t: t.view(8, 8).t()[2:].zero_(),
    "row of unbind": lambda t: t.view(8, 8).unbind()[3].zero_(),
    "part of split": lambda t: t.split(8)[1].zero_(),
    "detach": lambda t: t.detach().fill_(1),
    "data": lambda t: t.data.fill_(1),
    "contiguous": lambda t: t.contiguous().fill_(1),
    "to": lambda t: t.to(torch.float32).fill_(1),
    "out": lambda t: torch.add(t, 1, out=t),
    "out of others": lambda t: torch.add(torch.ones(64), 1, out=t),
    "out tuple": lambda t: torch.max(torch.ones(4, 64), 0, out=(t, torch.zeros(64, dtype=torch.int64))),
    "relu inplace": lambda t: F.relu(t, inplace=True),
    "dropout inplace": lambda t: F.dropout(t, 0.5, True, inplace=True),
    "index": lambda t: t.index_fill_(0, torch.tensor([1]), 3.0),
    "scatter": lambda t: t.scatter_(0, torch.tensor([1]), 3.0),
    "map_": lambda t: t.map_(torch.zeros(64), lambda a, b: a),
    "apply_": lambda t: t.apply_(lambda a: 0.0),
    "foreach": lambda t: torch._foreach_add_([t], 1),
    "foreach copy": lambda t: torch._foreach_copy_([t], [torch.zeros(64)]),
    "torch.ops": lambda t: torch.ops.aten.add_(t, 1),
    "torch.ops overload": lambda t: torch.ops.aten.add_.Tensor(t, t),
    "init": lambda t: torch.nn.init.zeros_(t),
    "real": real_setter,
    "imag": imag_setter,
    "running statistics": lambda t: F.batch_norm(torch.rand(4, 64), t, torch.ones(64), training=True),
    "max_norm": lambda t: F.embedding(torch.tensor([1]), t.view(8, 8), max_norm=0.1),
    "optimiser": optimiser,
    "foreach optimiser": foreach_optimiser,
    "no_grad": lambda t: torch.no_grad()(lambda: t.add_(1))(),
    "inference_mode": lambda t: torch.inference_mode()(lambda: t.add_(1))(),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_before_it_happens(t, write):
    with pytest.raises(ShareError) as caught:
        WRITES[write](t)
    problem = caught.value
    assert problem.slug == "read-only-share" and problem.where.file == __file__
    assert "copy=True" in problem.do[0] and "mutable=True" in problem.do[1]


READS = {
    "add": lambda t: t + 1,
    "reflected": lambda t: 1 - t,
    "matmul": lambda t: t.view(8, 8) @ t.view(8, 8),
    "linear": lambda t: F.linear(t.view(8, 8), torch.ones(3, 8)),
    "softmax": lambda t: t.softmax(0),
    "sort": lambda t: t.sort().values,
    "max": lambda t: t.view(8, 8).max(0).values,
    "cat": lambda t: torch.cat([t, t]),
    "stack": lambda t: torch.stack([t, t]),
    "where": lambda t: torch.where(t > 3, t, 0),
    "gather": lambda t: t[torch.tensor([3, 4])],
    "clone": lambda t: t.clone().add_(1),
    "to other dtype": lambda t: t.to(torch.float64).add_(1),
    "copied from": lambda t: torch.empty(64).copy_(t),
    "norm without statistics": lambda t: F.layer_norm(t, (64,)),
    "evaluated batch norm": lambda t: F.batch_norm(torch.ones(4, 64), t, torch.ones(64)),
    "vmap": lambda t: torch.vmap(torch.sin)(t.view(8, 8)),
    "func.grad": lambda t: torch.func.grad(lambda x: x.sin().sum())(t),
}


@pytest.mark.parametrize("read", READS)
def test_results_of_reads_are_right_and_plain(t, read):
    out = READS[read](t)
    assert type(out) is torch.Tensor
    assert torch.equal(out, READS[read](torch.as_tensor(VALUES.copy())))


def test_views_stay_guarded_and_metadata_may_change(t):
    for view in (t[2:], t.view(8, 8), t.view(8, 8).T, t.real, t.detach(), t.expand(2, 64), *t.chunk(2)):
        assert type(view) is ReadOnlyTensor and view.untyped_storage().data_ptr() == t.data_ptr()
    assert t.unsqueeze_(0).shape == (1, 64)
    assert t.detach().requires_grad_().requires_grad


def test_autograd_reads_it(t):
    weight = torch.ones(64, requires_grad=True)
    (weight * t).sum().backward()
    assert type(weight.grad) is torch.Tensor and np.array_equal(weight.grad.numpy(), VALUES)
    leaf = t.detach().requires_grad_()
    (leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [2.0] * 64


def test_numpy_gets_a_read_only_array(t):
    for a in (t.numpy(), np.asarray(t), t[3:].numpy()):
        assert not a.flags.writeable and a.ctypes.data >= t.data_ptr()
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1


def test_copies_and_pickles_are_plain_and_writable(t):
    buffer = io.BytesIO()
    torch.save({"t": t}, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(t), copy.deepcopy([t])[0], pickle.loads(pickle.dumps(t)), torch.load(buffer)["t"]):
        assert type(other) is torch.Tensor and torch.equal(other, t)
        other.fill_(0)


def test_it_prints_and_formats_as_a_tensor(t):
    assert repr(t[:2]).startswith("ReadOnlyTensor([0., 1.]")
    assert f"{t[3]:.1f}" == "3.0"


def test_it_goes_back_to_jax_shared(t, array):
    with bridge.diagnostics.strict():
        assert bridge.to_jax(t).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
        assert bridge.to_jax(t[16:]).unsafe_buffer_pointer() == array.unsafe_buffer_pointer() + 64
        assert bridge.crossing(t) == bridge.Crossing("shared")
    assert np.array_equal(np.asarray(bridge.to_jax(t.view(8, 8).t(), copy=True)), VALUES.reshape(8, 8).T)


def test_modules_and_compiled_functions_read_it(t):
    def model(x):
        return (F.linear(x.view(8, 8), torch.ones(3, 8)).relu() * 2).sum()

    expected = model(torch.as_tensor(VALUES.copy()))
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        assert torch.compile(model, backend=backend)(t) == expected


def test_compiled_functions_cannot_write_it(t):
    for write in (lambda x: x.add_(1), lambda x: x.view(8, 8)[2:].add_(1)):
        with pytest.raises(ShareError) as caught:
            torch.compile(write, backend="aot_eager")(t)
        assert caught.value.where.function == "<lambda>"


def test_fullgraph_says_what_to_do(t):
    with pytest.raises(torch._dynamo.exc.Unsupported, match="copy=True"):
        torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(t)


def test_mutable_is_a_plain_tensor_whose_writes_reach_the_array():
    a = jnp.zeros(64) + 0
    t = bridge.to_torch(a, mutable=True)
    assert type(t) is torch.Tensor and t.data_ptr() == a.unsafe_buffer_pointer()
    t.fill_(3)
    assert a.tolist() == [3.0] * 64


def test_a_copy_is_a_plain_tensor_of_its_own(array):
    t = bridge.to_torch(array, copy=True)
    assert type(t) is torch.Tensor and t.data_ptr() != array.unsafe_buffer_pointer()
    t.fill_(3)


def test_results_that_jax_caches_are_guarded_too():
    constant = jax.jit(lambda: jnp.arange(8.0))
    t = bridge.to_torch(constant())
    with pytest.raises(ShareError):
        t.zero_()
    assert constant().tolist() == list(range(8))
