"""Target strings, devices of both libraries, modules resident on one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bridge
from bridge import compat
from bridge.devices import CHIPS, Target, jax_device, known_targets, torch_device
from bridge.diagnostics import Diagnostic, strict

no_tpu = pytest.mark.skipif(compat.tpu_is_present(), reason="a TPU is attached")


@pytest.mark.parametrize("name", known_targets())
def test_every_known_target_parses_and_prints_back(name):
    target = Target.parse(name)
    assert str(target) == name and Target.parse(target) is target and Target.parse(name.upper()) == target


def test_known_targets_are_those_of_the_documentation():
    assert known_targets() == (
        *("cpu", "tpu", "tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"),
        *("gpu", "gpu:sm90a", "gpu:sm100a"),
    )
    assert Target.parse("tpu:v5e") == Target(kind="tpu", chip="v5e")


@pytest.mark.parametrize(
    ("alias", "name"),
    [("cuda", "gpu"), ("gpu:sm_90a", "gpu:sm90a"), (" TPU:V5E ", "tpu:v5e"), ("tpu:v7x", "tpu:7x")],
)
def test_aliases(alias, name):
    assert str(Target.parse(alias)) == name


@pytest.mark.parametrize("name", ["", "tpu:", "tpu:v9", "cpu:1", "gpu:sm80", "npu", "tpu v5e", ":", "tpu:v5e:1"])
def test_unknown_targets_are_refused_with_the_known_ones(name):
    with pytest.raises(Diagnostic, match="TPB001") as caught:
        Target.parse(name)
    assert all(known in caught.value.why for known in known_targets())
    assert caught.value.where.file == __file__


@given(st.text(max_size=12))
def test_any_text_is_a_target_or_a_diagnostic(text):
    try:
        assert Target.parse(text).kind in CHIPS
    except Diagnostic as problem:
        assert problem.slug == "unknown-target"


@pytest.mark.parametrize("name", ["rocm", "hip", "amd:gfx942"])
def test_amd_is_told_why(name):
    with pytest.raises(Diagnostic, match="Pallas has no ROCm backend"):
        Target.parse(name)


def test_a_near_miss_gets_a_suggestion():
    with pytest.raises(Diagnostic, match="did you mean 'tpu:v5e'"):
        Target.parse("tpu-v5e")


@pytest.mark.parametrize("thing", [None, 3, ["cpu"]])
def test_other_types_are_refused(thing):
    with pytest.raises(Diagnostic, match="TPB003"):
        Target.parse(thing)


def test_a_target_validates_itself():
    with pytest.raises(Diagnostic, match="TPB001"):
        Target("tpu", "sm90a")


def test_the_cpu_is_the_cpu_on_both_sides():
    device = jax_device("cpu")
    assert device is jax_device(torch.device("cpu")) is compat.cpu_device()
    assert device.platform == "cpu" and torch_device(device) == torch.device("cpu")


@no_tpu
@pytest.mark.parametrize("target", ["tpu", "tpu:v5e"])
def test_an_absent_device_is_a_diagnostic(target):
    for ask in (
        lambda: jax_device(target),
        lambda: bridge.to_device(torch.ones(3), target),
        lambda: bridge.to_device(torch.nn.Linear(2, 2), target),
    ):
        with pytest.raises(Diagnostic, match="TPB110") as caught:
            ask()
        assert "compile_for" in caught.value.do[1] and caught.value.where.file == __file__


def test_a_tensor_on_the_cpu_is_shared():
    t = torch.rand(64)
    with strict():
        assert bridge.to_device(t, "cpu").unsafe_buffer_pointer() == t.data_ptr()


def test_a_resident_module_follows_training_on_the_cpu():
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    with jax.enable_x64(True):
        resident = bridge.to_device(module, "cpu")
    assert set(resident) == set(module.state_dict()) and len(resident) == 7
    weight = module[0].weight
    assert resident["0.weight"].unsafe_buffer_pointer() == weight.data_ptr()
    x = torch.rand(4, 64)
    module(x).square().sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    ours = jnp.asarray(x.numpy()) @ resident["0.weight"].T + resident["0.bias"]
    assert np.allclose(np.asarray(ours), module[0](x).detach().numpy(), atol=1e-5)
    assert np.array_equal(np.asarray(resident["1.running_mean"]), module[1].running_mean.numpy())
    assert "Linear" not in repr(resident) and "Sequential on" in repr(resident)


def test_refresh_takes_the_values_again():
    module = torch.nn.Linear(64, 64)
    resident = bridge.to_device(module, "cpu")
    module.weight.data = torch.zeros(64, 64)
    assert float(abs(resident["weight"]).sum()) > 0
    resident.refresh()
    assert float(abs(resident["weight"]).sum()) == 0


def test_other_things_have_no_place_on_a_device():
    with pytest.raises(Diagnostic, match="TPB003"):
        bridge.to_device([1, 2], "cpu")
