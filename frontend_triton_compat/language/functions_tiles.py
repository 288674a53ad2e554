"""Functions of the emitted module on a TPU: elements of a tile that meet or change places.

Input: none. Output: the TPU texts of `HELPERS`; rows of `rows_tile`, `rows_scan` and `rows_move` call them. Law: Mosaic
has sums, maxima, products of matrices, and a roll along an axis; all else is made of these. A scan doubles the distance
it combines each round, a reduction without a form of its own halves the axis, a sort is a bitonic network.
"""

from __future__ import annotations

from frontend_triton_compat.language.table import HELPERS


def _add(name: str, text: str) -> None:
    HELPERS.setdefault(name, {})["tpu"] = text


_add(
    "moved",
    '''
def moved(x, by, axis):
    """Every element `by` places further along an axis; those that leave come in at the other end."""
    if by % x.shape[axis] == 0:
        return x
    if x.ndim == 1:
        return pltpu.roll(x[None, :], by % x.shape[0], 1)[0]
    return pltpu.roll(x, by % x.shape[axis], axis)
''',
)
_add(
    "in_32_bits",
    '''
def in_32_bits(fn, *tiles):
    """What `fn` makes of tiles of one type, narrow ones held in 32 bits meanwhile."""
    dtype = tiles[0].dtype
    if dtype.itemsize == 4:
        return fn(*tiles)
    wide = jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32
    found = fn(*(x.astype(wide) for x in tiles))
    back = lambda x: x != 0 if dtype == jnp.bool_ else x.astype(dtype)
    return tuple(map(back, found)) if isinstance(found, tuple) else back(found)
''',
)
_add(
    "running",
    '''
def running(combine, x, axis, reverse):
    """Running combination along an axis: each round doubles the distance that is combined."""
    if x.dtype.itemsize < 4:
        return in_32_bits(lambda v: running(combine, v, axis, reverse), x)
    n, by = x.shape[axis], 1
    at = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    while by < n:
        there = at < n - by if reverse else at >= by
        x = jnp.where(there, combine(x, moved(x, -by if reverse else by, axis)), x)
        by *= 2
    return x
''',
)
_add(
    "running_sum",
    '''
def running_sum(x, axis, reverse):
    """Running sum. Of fp32 along lanes: 128 at a time by products with a triangle of ones.

    A finite x is the sum of three bf16 numbers, whose products with 1 are exact. Infinities and NaN are counted apart.
    """
    n = x.shape[axis]
    if x.dtype != jnp.float32 or x.ndim != 2 or axis != 1 or n < 32:
        return running(lambda a, b: a + b, x, axis, reverse)
    finite = jnp.abs(x) < jnp.inf
    rest, parts = jnp.where(finite, x, 0.0), []
    for _ in range(2):
        top = lax.bitcast_convert_type(lax.bitcast_convert_type(rest, jnp.int32) & -65536, jnp.float32)
        parts.append(top.astype(jnp.bfloat16))
        rest = rest - top
    parts = [rest.astype(jnp.bfloat16), *reversed(parts)]
    kinds = jnp.where(x > 0, 1.0, jnp.where(x < 0, 1 / 256, 256.0))
    kinds = jnp.where(finite, 0.0, kinds).astype(jnp.bfloat16)
    size = min(n, 128)
    i, j = (lax.broadcasted_iota(jnp.int32, (size, size), d) for d in (0, 1))
    half = jnp.where(i >= j if reverse else i <= j, 1.0, 0.0).astype(jnp.bfloat16)
    starts = range(0, n, size)
    found, before = {}, 0.0
    for start in reversed(starts) if reverse else starts:
        stop = min(start + size, n)
        ones = half[: stop - start, : stop - start]
        cut = jnp.concatenate([part[:, start:stop] for part in parts], axis=1)
        inside = jnp.dot(cut, jnp.concatenate([ones] * 3, axis=0), preferred_element_type=jnp.float32)
        count = jnp.dot(kinds[:, start:stop], ones, preferred_element_type=jnp.float32)
        both = (count != jnp.floor(count)) | (count >= 256)
        known = jnp.where(count >= 1, jnp.where(both, jnp.nan, jnp.inf), -jnp.inf)
        found[start] = jnp.where(count > 0, known, inside) + before
        before = found[start][:, :1] if reverse else found[start][:, -1:]
    return jnp.concatenate([found[start] for start in starts], axis=1) if n > size else found[0]
''',
)
_add(
    "backwards",
    '''
def backwards(x, axis):
    """Elements in reverse order: neighbours change places, then pairs, then fours."""
    at, by = lax.broadcasted_iota(jnp.int32, x.shape, axis), 1
    while by < x.shape[axis]:
        x = jnp.where((at & by) == 0, moved(x, -by, axis), moved(x, by, axis))
        by *= 2
    return x
''',
)
_add(
    "folded",
    '''
def folded(combine, x, axis):
    """All elements of an axis combined, in any order: halves first, then at distances that double."""
    if x.dtype.itemsize < 4:
        return in_32_bits(lambda v: folded(combine, v, axis), x)
    n, by = x.shape[axis], 1
    whole = 128 if axis == x.ndim - 1 else 8
    while n % (2 * whole) == 0:
        n //= 2
        first, second = (lax.slice_in_dim(x, s, s + n, axis=axis) for s in (0, n))
        x = combine(first, second)
    at = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    while by < n:
        x = jnp.where(at < n - by, combine(x, moved(x, -by, axis)), x)
        by *= 2
    return lax.slice_in_dim(x, 0, 1, axis=axis)
''',
)
_add(
    "small_sum",
    '''
def small_sum(x, axis):
    """The sum of integers that fp32 holds, and all their sums with it."""
    return jnp.sum(x.astype(jnp.float32), axis=axis, keepdims=True).astype(x.dtype)
''',
)
_add(
    "bounded_max",
    '''
def bounded_max(x, axis):
    """The max of what is not NaN, of numbers that are never -infinity."""
    n, found = x.shape[axis], -jnp.inf
    if axis == x.ndim - 1 and n % 128 == 0 and 128 < n <= 8192:
        for start in range(0, n, 128):  # NaN compares as false
            part = x[..., start : start + 128]
            found = jnp.where(part > found, part, found)
    else:
        found = jnp.where(x == x, x, -jnp.inf)
    found = jnp.max(found, axis=axis, keepdims=True)
    return jnp.where(found == -jnp.inf, jnp.nan, found)
''',
)
_add(
    "lanes_around",
    '''
def lanes_around(ref, n, place_of, place):
    """One element of every row of a ref, 0 where its place is not below n: of the 128 lanes around it."""
    many, parts = 32 // ref.dtype.itemsize, []
    for top in range(0, ref.shape[0], many):
        row, found = lax.broadcasted_iota(jnp.int32, (many, 128), 0), jnp.zeros((many, 128), jnp.float32)
        for r in range(many):
            start = pl.multiple_of(jnp.clip(place_of(top + r), 0, n - 1) // 128 * 128, 128)
            part = ref[top : top + many, pl.ds(start, 128)].astype(jnp.float32)
            found = jnp.where(row == r, part, found)
        parts.append(found)
    found = jnp.concatenate(parts, axis=0) if len(parts) > 1 else parts[0]
    lane = lax.broadcasted_iota(jnp.int32, (1, 128), 1) + (jnp.clip(place, 0, n - 1) & -128)
    hit = (lane == place) & (place < n)
    return jnp.sum(jnp.where(hit, found, 0.0), axis=1, keepdims=True).astype(ref.dtype)
''',
)
_add(
    "integer_sum",
    '''
def integer_sum(x, axis):
    """The sum of integers, modulo 2**32."""
    return jnp.sum(x.astype(jnp.int32), axis=axis, keepdims=True).astype(x.dtype)
''',
)
_add(
    "unsigned_extreme",
    '''
def unsigned_extreme(fn, x, axis):
    """The largest or smallest of unsigned integers, by the order of signed ones."""
    signed = (x ^ jnp.uint32(1 << 31)).astype(jnp.int32)
    return fn(signed, axis=axis, keepdims=True).astype(jnp.uint32) ^ jnp.uint32(1 << 31)
''',
)


def _found(name: str, compare: str, edge: str) -> str:
    """Source of the extreme element of floats and its index: NaN counts as extreme, and the first one counts.

    Rows of several registers come down to one, element by element; lanes meet only there.
    """
    order, far = (">", "-jnp.inf") if compare == "max" else ("<", "jnp.inf")
    return f'''
def {name}_by_lanes(x):
    """The {name} element a lane, where it was and where the first NaN was; then those of the lanes."""
    n, shape = x.shape[-1], (*x.shape[:-1], 128)
    best, at, lost = jnp.full(shape, {far}), jnp.full(shape, 0.0), jnp.full(shape, float(n))
    for start in reversed(range(0, n, 128)):  # the first one is the last that is found
        part = x[..., start : start + 128]
        better = part {order}= best
        best, at = jnp.where(better, part, best), jnp.where(better, float(start), at)
        lost = jnp.where(part == part, lost, float(start))
    lane = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1).astype(jnp.float32)
    top = jnp.{compare}(best, axis=-1, keepdims=True)
    place = jnp.where(lost < n, lost, jnp.where(best == top, at + n, 2.0 * n)) + lane
    return top, jnp.min(place, axis=-1, keepdims=True)


def {name}_found(x, axis):
    """The {name} element and its index, or the first NaN: its index is not raised by the length."""
    n, wide = x.shape[axis], x.astype(jnp.float32)
    if axis == x.ndim - 1 and n % 128 == 0 and 128 < n <= 8192:
        best, place = {name}_by_lanes(wide)
        index = jnp.where(place < n, place, place - n).astype(jnp.int32)
        return jnp.where(place < n, jnp.nan, best).astype(x.dtype), index
    at = lax.broadcasted_iota(jnp.int32, x.shape, axis).astype(jnp.float32)
    best = jnp.{compare}(jnp.where(wide == wide, wide, {edge}), axis=axis, keepdims=True)
    place = jnp.where(wide == wide, jnp.where(wide == best, at + n, 2.0 * n), at)
    place = jnp.min(place, axis=axis, keepdims=True)
    index = jnp.where(place < n, place, place - n).astype(jnp.int32)
    return jnp.where(place < n, jnp.nan, best).astype(x.dtype), index
'''


def _first(name: str, compare: str) -> str:
    """Source of the index of the first extreme element; NaN counts as extreme."""
    return f'''
def first_{name}(x, axis):
    """Index of the first {name} element, or of the first NaN."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return {name}_found(x, axis)[1]
    n, at = x.shape[axis], lax.broadcasted_iota(jnp.int32, x.shape, axis).astype(jnp.float32)
    x = x.astype(jnp.int32) if x.dtype != jnp.uint32 else (x ^ jnp.uint32(1 << 31)).astype(jnp.int32)
    hit = x == jnp.{compare}(x, axis=axis, keepdims=True)
    return jnp.min(jnp.where(hit, at, float(n)), axis=axis, keepdims=True).astype(jnp.int32)
'''


_add("largest_found", _found("largest", "max", "jnp.inf"))
_add("smallest_found", _found("smallest", "min", "-jnp.inf"))
_add("first_largest", _first("largest", "max"))
_add("first_smallest", _first("smallest", "min"))

_add(
    "in_key_order",
    '''
def in_key_order(key, axis, descending, size=2):
    """Integers in order by a bitonic network; from `size` on, runs of half that length are ordered already."""
    n, at = key.shape[axis], lax.broadcasted_iota(jnp.int32, key.shape, axis)
    while size <= n:
        by = size // 2
        while by:
            low = (at & by) == 0
            other = jnp.where(low, moved(key, -by, axis), moved(key, by, axis))
            side = at // by if size == n else (at // by) ^ (at // size)
            first = (side & 1) == (1 if descending else 0)
            key = jnp.where(first, jnp.minimum(key, other), jnp.maximum(key, other))
            by //= 2
        size *= 2
    return key
''',
)
_add(
    "by_keys",
    '''
def by_keys(fn, x):
    """What `fn` makes of int32 keys that have the order of x; NaN is the largest."""
    top = 2**31 - 1
    if jnp.issubdtype(x.dtype, jnp.floating):
        raw = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32)
        key = fn(jnp.where(x != x, top, jnp.where(raw < 0, raw ^ top, raw)))
        back = lax.bitcast_convert_type(jnp.where(key < 0, key ^ top, key), jnp.float32)
        return jnp.where(key == top, jnp.nan, back).astype(x.dtype)
    if x.dtype == jnp.uint32:
        return fn((x ^ jnp.uint32(1 << 31)).astype(jnp.int32)).astype(jnp.uint32) ^ jnp.uint32(1 << 31)
    if x.dtype == jnp.bool_:
        return fn(x.astype(jnp.int32)) != 0
    return fn(x)
''',
)
_add(
    "in_order",
    '''
def in_order(x, axis, descending):
    """Elements in order; NaN is the largest."""
    return by_keys(lambda key: in_key_order(key, axis, descending), x)
''',
)
_add(
    "largest",
    '''
def largest(x, k):
    """The k largest elements of the last dimension, in order."""
    return by_keys(lambda key: in_key_order(key, x.ndim - 1, True)[..., :k], x)
''',
)
_add(
    "merge_bitonic",
    '''
def merge_bitonic(x, descending):
    """Two halves of the last dimension, ordered in opposite directions, as one in order."""
    return by_keys(lambda key: in_key_order(key, x.ndim - 1, descending, x.shape[-1]), x)
''',
)
_add(
    "picked",
    '''
def picked(x, index, axis):
    """Elements picked by index along an axis: each of its places is offered to all who ask."""
    n = x.shape[axis]
    index, found = jnp.clip(index, 0, n - 1), jnp.zeros(index.shape, x.dtype)
    for i in range(n):
        found = jnp.where(index == i, lax.slice_in_dim(x, i, i + 1, axis=axis), found)
    return found
''',
)
_add(
    "count_bins",
    '''
def count_bins(x, mask, bins):
    """How often each number below `bins` occurs in the last dimension, where the mask is true."""
    x = jnp.where(mask, x.astype(jnp.int32), -1)
    place = lax.broadcasted_iota(jnp.int32, (*x.shape[:-1], bins), x.ndim - 1)
    counts = jnp.zeros(place.shape, jnp.float32)
    for i in range(bins):
        counts = jnp.where(place == i, jnp.sum(jnp.where(x == i, 1.0, 0.0), axis=-1, keepdims=True), counts)
    return counts.astype(jnp.int32)
''',
)
_add(
    "reduce_by",
    '''
def reduce_by(combine, tiles, axis):
    """Tiles combined along an axis, neighbours first, until one element of each is left."""
    tiles, combine = jnp.broadcast_arrays(*tiles), jnp.vectorize(combine)
    flags = [t.dtype == jnp.bool_ for t in tiles]
    tiles = [t.astype(jnp.int32) if f else t for t, f in zip(tiles, flags)]
    n, by = tiles[0].shape[axis], 1
    at = lax.broadcasted_iota(jnp.int32, tiles[0].shape, axis)
    given = lambda ts: [t != 0 if f else t for t, f in zip(ts, flags)]
    while by < n:
        found = combine(*given(tiles), *given(moved(t, -by, axis) for t in tiles))
        found = found if isinstance(found, tuple) else (found,)
        tiles = [jnp.where(at < n - by, f.astype(t.dtype), t) for t, f in zip(tiles, found)]
        by *= 2
    return tuple(given(lax.slice_in_dim(t, 0, 1, axis=axis) for t in tiles))
''',
)
_add(
    "scan_by",
    '''
def scan_by(combine, tiles, axis, reverse):
    """Running combination of tiles along an axis: each round doubles the distance that is combined."""
    tiles, combine = jnp.broadcast_arrays(*tiles), jnp.vectorize(combine)
    flags = [t.dtype == jnp.bool_ for t in tiles]
    tiles = [t.astype(jnp.int32) if f else t for t, f in zip(tiles, flags)]
    n, by = tiles[0].shape[axis], 1
    at = lax.broadcasted_iota(jnp.int32, tiles[0].shape, axis)
    given = lambda ts: [t != 0 if f else t for t, f in zip(ts, flags)]
    while by < n:
        before = given(moved(t, -by if reverse else by, axis) for t in tiles)
        found = combine(*before, *given(tiles))
        found = found if isinstance(found, tuple) else (found,)
        there = at < n - by if reverse else at >= by
        tiles = [jnp.where(there, f.astype(t.dtype), t) for t, f in zip(tiles, found)]
        by *= 2
    return tuple(given(tiles))
''',
)
