"""Which size a dimension is padded to.

Input: the option `buckets` and a size. Output: the bucket. Law: a bucket is never smaller than the size; 0 and 1 stay
as they are (torch treats them as special).
"""

from __future__ import annotations

from collections.abc import Sequence

#: None: sizes as they are; True: powers of two; or the buckets themselves, in ascending order.
Buckets = None | bool | tuple[int, ...]


def bucket(size: int, buckets: bool | Sequence[int]) -> int:
    """The size that `size` is padded to: itself when it is larger than every bucket given."""
    if size <= 1:
        return size
    if isinstance(buckets, bool):
        return 1 << (size - 1).bit_length()
    return next((b for b in buckets if b >= size), size)
