"""What strides mean: dense, permuted, gapped or overlapping. A pure function of ints.

Input: a shape and its strides in elements. Output: a `Layout`. Law: the stride of a dimension of size 1 (or of any
dimension of an empty tensor) means nothing and is ignored; only `dense` and `permuted` describe memory without holes,
which is what DLPack into XLA can share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["dense", "permuted", "gapped", "overlapping"]


@dataclass(frozen=True)
class Layout:
    """How the elements lie in memory.

    Attributes:
        kind: ``dense``: row-major without holes. ``permuted``: without holes, the dimensions in another order
            (a transpose, channels_last). ``gapped``: each element has a place of its own, with holes between them
            (a stepped or column slice), or backwards. ``overlapping``: two indices may mean one place (expand).
        order: the dimensions from the slowest to the fastest in memory; for ``dense``, ``range(ndim)``.
    """

    kind: Kind
    order: tuple[int, ...]

    @property
    def shareable(self) -> bool:
        """Whether the memory has no holes, so that it can be shared as it is."""
        return self.kind in ("dense", "permuted")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides in elements of a dense row-major tensor of this shape."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements lie row-major without holes."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def classify(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout of a tensor.

    ``overlapping`` errs on the safe side: a few exotic stride combinations without a real overlap are called so too.

    Args:
        shape: sizes, each at least 0.
        strides: strides in elements, one a dimension; they may be negative (numpy).

    Raises:
        ValueError: the two differ in length, or a size is negative.
    """
    if len(shape) != len(strides) or any(n < 0 for n in shape):
        raise ValueError(f"no tensor has shape {tuple(shape)} and strides {tuple(strides)}")
    everything = tuple(range(len(shape)))
    if is_dense(shape, strides):
        return Layout("dense", everything)
    real = [i for i in everything if shape[i] > 1]
    # Slowest first; equal strides keep their order. Dimensions of size 1 go where row-major would have them.
    by_stride = sorted(real, key=lambda i: -abs(strides[i]))
    order = _with_unit_dimensions(by_stride, shape)
    extent, compact = 1, True
    for i in reversed(by_stride):
        if abs(strides[i]) < extent:
            return Layout("overlapping", order)
        compact = compact and strides[i] == extent
        # One past the last place that the dimensions so far can reach.
        extent += abs(strides[i]) * (shape[i] - 1)
    return Layout("permuted" if compact else "gapped", order)


def _with_unit_dimensions(by_stride: list[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The order of all dimensions: those of size 1 directly before the next larger dimension of the tensor."""
    order: list[int] = []
    placed: set[int] = set()
    for i in by_stride:
        j = i
        while j > 0 and shape[j - 1] == 1 and j - 1 not in placed:
            j -= 1
        order += range(j, i + 1)
        placed |= set(range(j, i + 1))
    return tuple(order + [i for i in range(len(shape)) if i not in placed])
