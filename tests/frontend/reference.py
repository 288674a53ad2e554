"""What a kernel means: a NumPy interpreter of the tile IR, one program after the other.

Input: a kernel, memories (parameter name -> flat 1-D array whose element 0 is the pointer's address, written in
place), float arguments. Output: none; the memories change. Law: the op table's references decide what an operation
gives; an access outside of a memory that no mask forbids is an error.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np

import frontend_triton_compat.language  # noqa: F401 - fills the op table
from frontend_triton_compat import ir
from frontend_triton_compat.language.table import row_for
from frontend_triton_compat.types import dtype

SPAN = 1 << 40  # elements between the pretended addresses of two memories


def numpy_dtype(t):
    """The NumPy dtype of an element type; pointers are 64-bit pretended addresses."""
    if not isinstance(t, dtype):
        return np.dtype(np.int64)
    name = t.numpy_name
    if name == "bool_":
        return np.dtype(bool)
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def run(kernel: ir.Kernel, memories: dict[str, np.ndarray], floats: dict[str, float] | None = None) -> None:
    """Run every program of the grid."""
    with np.errstate(all="ignore"):
        for pid in itertools.product(*(range(n) for n in reversed(kernel.grid))):
            Program(kernel, memories, floats or {}, tuple(reversed(pid))).block(kernel.body)


class Program:
    """One program of the grid."""

    def __init__(self, kernel, memories, floats, pid):
        self.kernel, self.memories, self.floats, self.pid = kernel, memories, floats, pid
        self.names = list(memories)
        self.values: dict[ir.Value, np.ndarray] = {}

    def block(self, block: ir.Block) -> None:
        for op in block.ops:
            self.op(op)

    def get(self, value: ir.Value) -> np.ndarray:
        return self.values[value]

    def set(self, op: ir.Op, *results) -> None:
        assert len(results) == len(op.results), op.kind
        for value, result in zip(op.results, results):
            result = np.asarray(result)
            expected = numpy_dtype(value.type.element)
            assert result.dtype == expected, f"{op.kind} {dict(op.attrs)}: {result.dtype} is not {value.type}"
            assert result.shape == value.shape, f"{op.kind} {dict(op.attrs)}: {result.shape} is not {value.type}"
            self.values[value] = result

    def op(self, op: ir.Op) -> None:
        getattr(self, f"do_{op.kind.strip('_')}")(op, *(self.get(v) for v in op.operands))

    # -- values ------------------------------------------------------------------------------------------------------

    def do_arg(self, op):
        t = op.result.type.element
        if isinstance(t, dtype):
            self.set(op, np.asarray(self.floats[op["name"]], numpy_dtype(t)))
        else:
            self.set(op, np.asarray(SPAN * (self.names.index(op["name"]) + 1), np.int64))

    def do_const(self, op):
        self.set(op, np.asarray(op["value"]).astype(numpy_dtype(op.result.type.element)))

    def do_program_id(self, op):
        self.set(op, np.asarray(self.pid[op["axis"]], np.int32))

    def do_arange(self, op):
        self.set(op, np.arange(op["start"], op["end"], dtype=np.int32))

    def do_splat(self, op, x):
        self.set(op, np.broadcast_to(x, op.result.shape))

    do_broadcast = do_splat

    def do_expand_dims(self, op, x):
        self.set(op, np.expand_dims(x, op["axis"]))

    def do_trans(self, op, x):
        self.set(op, np.transpose(x, op["perm"]))

    def do_reshape(self, op, x):
        self.set(op, np.reshape(x, op.result.shape))

    def do_ptr_add(self, op, p, i):
        self.set(op, p + i.astype(np.int64))

    def do_cast(self, op, x):
        self.set(op, cast(x, op.operands[0].type.element, op.result.type.element, op.attrs.get("rounding")))

    def do_bitcast(self, op, x):
        self.set(op, np.ascontiguousarray(x).view(numpy_dtype(op.result.type.element)).reshape(x.shape))

    def do_map(self, op, *xs):
        row = row_for("map", op["fn"])
        if row.reference is not None:
            out = row.reference(*xs)
        else:
            out = eval(row.code.format(*(f"x[{i}]" for i in range(len(xs)))), {"jnp": np, "x": xs})
        self.set(op, np.asarray(out).astype(numpy_dtype(op.result.type.element)))

    def do_reduce(self, op, x):
        self.set(op, row_for("reduce", op["fn"]).reference(x, axis=op["axis"]))

    def do_scan(self, op, x):
        self.set(op, row_for("scan", op["fn"]).reference(x, axis=op["axis"], reverse=op["reverse"]))

    def do_reduce_by(self, op, *xs):
        self.set(op, *(np.take(x, -1, op["axis"]) for x in self.running(op["body"], xs, op["axis"])))

    def do_scan_by(self, op, *xs):
        flip = (lambda x: np.flip(x, op["axis"])) if op["reverse"] else (lambda x: x)
        self.set(op, *map(flip, self.running(op["body"], [flip(x) for x in xs], op["axis"])))

    def running(self, body, xs, axis):
        """Every element combined with all before it, one after the other."""
        xs = [np.moveaxis(np.array(x), axis, 0) for x in xs]
        for place in np.ndindex(xs[0].shape[1:]):
            for i in range(1, xs[0].shape[0]):
                before, now = ([x[(k, *place)] for x in xs] for k in (i - 1, i))
                for x, value in zip(xs, self.scalars(body, [*before, *now])):
                    x[(i, *place)] = value
        return [np.moveaxis(x, 0, axis) for x in xs]

    def do_each(self, op, *xs):
        outs = [np.empty(r.shape, numpy_dtype(r.type.element)) for r in op.results]
        for place in np.ndindex(xs[0].shape):
            for out, value in zip(outs, self.scalars(op["body"], [x[place] for x in xs])):
                out[place] = value
        self.set(op, *outs)

    def scalars(self, body, values):
        self.bind(body.args, [np.asarray(v) for v in values])
        self.block(body)
        return [self.get(v) for v in body.yields]

    def do_call(self, op, *xs):
        attrs = {k: v for k, v in op.attrs.items() if k != "fn"}
        out = row_for("call", op["fn"]).reference(*xs, **attrs)
        self.set(op, *(out if isinstance(out, tuple) else (out,)))

    def do_dot(self, op, a, b, acc):
        t = numpy_dtype(op.result.type.element)
        wide = np.int64 if t.kind == "i" else np.float64
        self.set(op, (np.matmul(a.astype(wide), b.astype(wide)) + acc.astype(wide)).astype(t))

    # -- memory ------------------------------------------------------------------------------------------------------

    def places(self, p, mask):
        """(memory, index) of every address that is accessed, with their positions in the tile."""
        p, mask = p.reshape(-1), np.broadcast_to(mask, p.shape).reshape(-1)
        positions = np.nonzero(mask)[0]
        addresses = p[positions] + SPAN // 2
        which, index = addresses // SPAN, addresses % SPAN - SPAN // 2
        for w in np.unique(which):
            name = self.names[w - 1]
            memory, here = self.memories[name], which == w
            at = index[here]
            if at.size and (at.min() < 0 or at.max() >= memory.size):
                raise IndexError(f"{self.kernel.name}: access to {name}[{at.min()}..{at.max()}] of {memory.size}")
            yield memory, at, positions[here]

    def do_load(self, op, p, mask=True, other=None):
        t = numpy_dtype(op.result.type.element)
        out = np.zeros(p.size, t) if other is None else np.array(other.reshape(-1))
        for memory, at, positions in self.places(p, mask):
            out[positions] = memory[at].astype(t) if memory.dtype != t else memory[at]
        self.set(op, out.reshape(p.shape))

    def do_store(self, op, p, v, mask=True):
        v = v.reshape(-1)
        for memory, at, positions in self.places(p, mask):
            memory[at] = v[positions]

    def do_atomic(self, op, p, v, *rest):
        flat, old = v.reshape(-1), np.zeros(v.size, v.dtype)
        new = rest[0].reshape(-1) if op["fn"] == "cas" else None
        mask = rest[-1] if op["has_mask"] else True
        update = {
            "add": np.add,
            "max": np.maximum,
            "min": np.minimum,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "xchg": lambda a, b: b,
        }
        for memory, at, positions in self.places(p, mask):
            for place, position in zip(at, positions):
                old[position] = memory[place]
                if op["fn"] == "cas":
                    if memory[place] == flat[position]:
                        memory[place] = new[position]
                else:
                    memory[place] = update[op["fn"]](memory[place], flat[position])
        self.set(op, old.reshape(v.shape))

    # -- control -----------------------------------------------------------------------------------------------------

    def bind(self, args, values) -> None:
        for arg, value in zip(args, values, strict=True):
            self.values[arg] = value

    def do_for(self, op, low, high, step, *carried):
        (block,) = op.regions
        i, t = int(low), low.dtype
        assert int(step) > 0 or i >= int(high), "a loop needs a positive step"
        while i < int(high):
            self.bind(block.args, [np.asarray(i, t), *carried])
            self.block(block)
            carried = [self.get(v) for v in block.yields]
            i += int(step)
        self.set(op, *carried)

    def do_while(self, op, *carried):
        test, body = op.regions
        while True:
            self.bind(test.args, carried)
            self.block(test)
            if not self.get(test.yields[0]):
                break
            self.bind(body.args, carried)
            self.block(body)
            carried = [self.get(v) for v in body.yields]
        self.set(op, *carried)

    def do_if(self, op, condition):
        region = op.regions[0 if condition else 1]
        self.block(region)
        self.set(op, *(self.get(v) for v in region.yields))

    def do_assert(self, op, condition):
        assert condition.all(), op["message"]

    def do_print(self, op, *xs):
        print(op["prefix"], *xs)


def cast(x, source, target, rounding=None):
    """A cast as the GPU does it; what is undefined there gives some value."""
    t = numpy_dtype(target)
    if target.is_bool():
        return x != 0
    if rounding == "rtz":
        return toward_zero(x, t)
    if source.is_floating() and target.is_int():
        return (
            np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2.0**62, neginf=-(2.0**62)).astype(np.int64).astype(t)
        )
    return x.astype(t)


def toward_zero(x, t):
    """A narrower float, never larger in magnitude."""
    wide = x.astype(np.float64)
    out = np.asarray(x.astype(t))
    bits = out.view(f"u{t.itemsize}")
    too_big = np.abs(out.astype(np.float64)) > np.abs(wide)
    return np.asarray(np.where(too_big, bits - 1, bits).astype(bits.dtype)).view(t).reshape(x.shape)
