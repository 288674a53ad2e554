"""How large a block of a TPU kernel should be: figures, measured on the static schedules of v5e, v6e and 7x.

Input: a chip's name. Output: bytes, elements and tiles to aim at. Law: below the least bytes a grid step's overhead
shows; above the most, the first block's way in and the last one's way out do, which nothing overlaps.
"""

from __future__ import annotations

#: Bytes of the largest operand's block: least, most.
BLOCK_BYTES = {"7x": (1 << 20, 2 << 20)}
BLOCK_BYTES_ELSEWHERE = (1 << 19, 2 << 20)
#: Steps that a kernel should have at least, so that the first and the last copy are a small part of it.
STEPS = 8
#: Lanes that a block has before it gets more rows: long enough for whole bursts.
FEW_LANES = 1024
#: Elements of a block whose arrays have one dimension only.
ONE_DIM = 512 * 1024
#: Rows and columns of a product's block.
TILES = {"v6e": (1024, 1024), "7x": (1024, 512)}
TILES_ELSEWHERE = (512, 512)
#: Rows, columns and contracted elements where the whole contraction does not fit into VMEM.
SPLIT_TILES = {"v6e": (2048, 2048, 1024), "7x": (2048, 2048, 512)}
SPLIT_TILES_ELSEWHERE = (512, 1024, 1024)


def block_bytes(chip: str) -> tuple[int, int]:
    """Least and most bytes of the largest operand's block."""
    return BLOCK_BYTES.get(chip, BLOCK_BYTES_ELSEWHERE)
