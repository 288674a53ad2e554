"""The table of operators: no duplicates, names that exist, coverage of the core operators."""

import sys

import pytest
import torch

from inductor_backend.ops import ROWS
from inductor_backend.ops.table import row


def test_a_second_row_raises():
    with pytest.raises(ValueError, match="two rows"):
        row("aten.add.Tensor")(lambda x, y: x)


def test_every_row_names_a_real_overload():
    for name in ROWS:
        namespace, op, overload = name.split(".")
        if namespace == "transformers" and namespace not in sys.modules:
            continue  # operators that the package registers when it is imported
        assert hasattr(getattr(getattr(torch.ops, namespace), op), overload), name


def test_rows_are_documented_functions_with_unique_names():
    assert len({r.ident for r in ROWS.values()}) == len(ROWS)


def test_core_operators_that_have_no_row_are_known():
    """Core ATen operators either have a row, are decomposed before they arrive, or are listed here."""
    from torch._inductor.decomposition import decompositions

    core = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if torch.Tag.core in op.tags and op not in decompositions:
                core.add(str(op))
    missing = core - set(ROWS) - {"aten.resize_.default"}  # whether it is decomposed depends on what ran before
    assert missing == MISSING, sorted(missing ^ MISSING)


MISSING = {
    # Results whose size or value depends on data.
    "aten._local_scalar_dense.default", "aten.nonzero.default",
    # Numbers, evaluated while planning.
    "aten.sym_numel.default", "aten.sym_storage_offset.default",
    # Replaced by seeded prims before they arrive; what remains follows torch's generator in ATen.
    "aten.native_dropout.default", "aten.rand.default", "aten.randn.default", "aten.randperm.default",
    # Not functional: never in a functional graph.
    "aten.atan2.out",
}  # fmt: skip
