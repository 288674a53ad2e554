"""The static schedule: the listing's reader and runner on small listings, and two known figures of real kernels."""

import json

import jax.numpy as jnp
import pytest

import pallas_core as pc
from pallas_core.kernels import matmul, softmax
from pallas_core.schedule import listing
from pallas_core.schedule.simulate import LATENCY_S, simulate

LOOP = """
     0   :  { %s1_s0 = smov 0 }
   0x1 LB: > { %s2_s0 = sadd.s32 1, %s1_s0  ;;  %v9_v0 = vadd.f32 %v1_v1, %v2_v2 }
   0x2   : > { %p3_p0 = scmp.lt.s32.totalorder %s2_s0, 10 }
   0x3   : > { %4 = sbr.rel (%p3_p0) target bundleno = 1 (0x1), region = 2 }
   0x4   : > {}
   0x5   : > {}
   0x6   : > {}
   0x7   : > {}
   0x8   :  { %5 = vnop }
"""


def test_a_counted_loop():
    program = listing.parse(LOOP)
    assert len(program) == listing.count(LOOP) == 9
    run = simulate(program, clock_hz=1e9, hbm_bytes_per_s=1e9)
    assert run.cycles == 1 + 10 * 7 + 1  # a taken branch, and the last one, run four delay slots
    assert run.trips == {(1, 3): 9} and run.unknown_branches == 0
    assert run.visits[1] == 10 and run.visits[8] == 1


def test_a_branch_on_data_runs_its_region():
    text = LOOP.replace("smov 0 }", "sld [smem:[#allocation7]] }").replace("(%p3_p0)", "(%p3_p0)")
    run = simulate(listing.parse(text), 1e9, 1e9)
    assert run.unknown_branches == 1 and run.visits[1] == 1


def test_a_copy_is_waited_for():
    text = """
     0   :  { %s1_s0 = smov 4  ;;  %s2_s1 = smov [#allocation3] }
   0x1   :  { %3 = dma.hbm_to_vmem [thread:$0]  /*hbm=*/%s9_s9, /*size=*/4, /*vmem=*/%s8_s8, /*sync=*/[#allocation3] }
   0x2   :  { %4 = dma.done.wait [#allocation3], 4 }
"""
    clock, bandwidth = 1e9, 64e9  # 64 bytes a cycle: 128 bytes take 2 cycles
    run = simulate(listing.parse(text), clock, bandwidth)
    assert run.hbm_bytes == 128 and run.copies == 1
    assert run.stall_cycles == pytest.approx(LATENCY_S * clock + 2 - 1)


def test_a_guarded_scalar_op_keeps_its_register_when_the_guard_is_false():
    text = """
     0   :  { %s1_s0 = smov 5  ;;  %p2_p0 = scmp.lt.s32.totalorder 2, 1 }
   0x1   :  { %s3_s0 = sadd.s32 (%p2_p0), 1, %s1_s0 }
   0x2   :  { %p4_p1 = scmp.eq.s32.totalorder %s3_s0, 5 }
   0x3   :  { %5 = sbr.rel (%p4_p1) target bundleno = 9 (0x9), region = 2 }
   0x4   :  {}
   0x5   :  {}
   0x6   :  {}
   0x7   :  {}
   0x8   :  {}
   0x9   :  {}
"""
    run = simulate(listing.parse(text), 1e9, 1e9)
    assert run.visits[8] == 0 and run.unknown_branches == 0


def test_slots():
    table = "== CAPACITY:\nMXU, VALU, VSTORE:SPILL\n 4 4 1\n== UTILIZATION:\n1 2 0\n0 4 1\n"
    slots = listing.parse_slots(table)
    assert slots.units == ("MXU", "VALU", "VSTORE:SPILL") and slots.capacity == (4, 4, 1)
    assert slots.total("VALU") == 6 and slots.total("VSTORE:SPILL") == 1 and slots.total("XLU") is None


@pytest.mark.tpu_offline
def test_matmul_on_v5e_reaches_the_known_utilisation():
    one = pc.spec((4096, 4096), "bfloat16")
    f = matmul(one, one, target="tpu:v5e", blocks=(512, 1024, 1024))
    found = pc.schedule_report(f, (one, one), "tpu:v5e")
    assert found.utilisation == pytest.approx(0.932, abs=0.002)
    assert found.flops == 2 * 4096**3 and found.bound == "issue"
    assert found.kernels[0].pallas and found.kernels[0].utilisation["MXU"] > 0.9


@pytest.mark.tpu_offline
def test_softmax_on_v5e_takes_the_known_time():
    one = pc.spec((8192, 4096), "float32")
    f = softmax(one, target="tpu:v5e", rows=64)
    found = pc.schedule_report(f, (one,), "tpu:v5e")
    assert found.time_s == pytest.approx(0.328e-3, rel=0.005)
    assert found.bound == "hbm" and found.hbm_bytes == 2 * 8192 * 4096 * 4
    assert found == pc.compile_for(f, (one,), "tpu:v5e").schedule()


@pytest.mark.tpu_offline
def test_the_report_renders():
    one = pc.spec((256, 256), "float32")
    found = pc.schedule_report(softmax(one, target="tpu:v6e"), (one,), "tpu:v6e")
    plain = json.loads(found.to_json())
    assert plain["time_s"] == found.time_s and plain["kernels"][0]["name"] == found.kernels[0].name
    page = found.to_html()
    assert page.startswith("<!doctype html>") and "http" not in page
    for text in (str(found), page):
        assert "never compared" in text.replace("ever compared", "never compared") and "v6e" in text


@pytest.mark.tpu_offline
def test_whole_programs_have_their_fusions():
    def program(x):
        return jnp.exp(x - x.max(-1, keepdims=True))

    found = pc.schedule_report(program, (pc.spec((1024, 1024), "float32"),), "tpu:v5e")
    assert found.kernels and not any(k.pallas for k in found.kernels) and found.time_s > 0
