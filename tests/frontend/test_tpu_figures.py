"""Static times on TPUs, held to the checked-in table: the schedule is deterministic, so 5 % is a change of ours."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_tpu  # noqa: E402

TABLE = bench_tpu.read()
LAUNCHES = {launch.name: launch for launch in bench_tpu.launches()}
#: Compiled in every run; all others with --slow.
SAMPLE = {
    ("s01", "v5e"), ("s02", "v5e"), ("s02", "7x"), ("s02-bf16", "v6e"), ("s03", "7x"), ("layer-norm", "v6e"),
    ("s04", "v5e"), ("s05", "v6e"), ("s05-backward", "7x"), ("s07", "v5e"), ("s18", "v5e"), ("s15", "v5e"),
    ("s17", "7x"), ("s10", "v5e"), ("s12", "v5e"), ("s13", "v6e"),
}  # fmt: skip
ROWS = [(name, chip) for name in LAUNCHES for chip in bench_tpu.NAMES if "ms" in TABLE.get(name, {}).get(chip, {})]


def same_compiler() -> bool:
    """The figures are those of one version of the compiler."""
    try:
        return all(TABLE["made-with"][p] == version(p) for p in bench_tpu.PACKAGES)
    except PackageNotFoundError:
        return False


@pytest.mark.tpu_offline
@pytest.mark.skipif(not same_compiler(), reason="another version of the TPU compiler than the table's")
@pytest.mark.parametrize(
    "name,chip", [pytest.param(*r, id="-".join(r), marks=[] if r in SAMPLE else pytest.mark.slow) for r in ROWS]
)
def test_static_times_stay(name, chip, request):
    row = bench_tpu.measure(LAUNCHES[name], chip)
    assert "ms" in row, row
    assert row["ms"] <= TABLE[name][chip]["ms"] * 1.05, "slower: `python benchmarks/bench_tpu.py` shows all figures"
    if request.config.getoption("--slow"):
        assert row["ms"] >= TABLE[name][chip]["ms"] * 0.95, "faster: let the script write the new figure"


def test_the_page_shows_the_table():
    assert bench_tpu._page(TABLE, list(LAUNCHES.values())) == bench_tpu.PAGE.read_text()
    assert {r for r in SAMPLE} <= set(ROWS)
