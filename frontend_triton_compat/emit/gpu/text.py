"""The module's text: the kernel and the function that calls it.

Input: the statements and buffers of a kernel. Output: a `Module`. Law: what is written is what a Pallas programmer
would write by hand; it imports jax only.
"""

from __future__ import annotations

import math

from bridge.diagnostics import error
from frontend_triton_compat.emit.gpu.loops import Loops
from frontend_triton_compat.emit.gpu.memory import Array, itemsize
from frontend_triton_compat.emit.module import Module, Operand, Result
from frontend_triton_compat.ir import Op


class Lean(Exception):
    """The tiles do not fit: write the kernel again, with results that go straight to global memory."""


class Text(Loops):
    """The text around the statements."""

    def check_types(self, op: Op) -> None:
        """Refuse what the chip has no registers for."""
        raise NotImplementedError

    def module(self) -> Module:
        """Emit the kernel and the function that calls it."""
        plan = self.plan
        for op in plan.kernel.body.ops:
            if op.kind == "arg" and not op.result.type.is_pointer and op.result in plan.demand.live:
                self.env[op.result] = self.assign(op["name"], self.arg_(op), op)
        for op in plan.kernel.body.ops:
            if op.kind != "arg":
                self.check_types(op)
                self.op(op)
        if any("copy_smem_to_gmem" in line for line in self.lines):
            self.put("plgpu.wait_smem_to_gmem(0)")
        self.check_memory()
        name, scalars = self.entry_name(), list(self.scalars)
        written = [p for p in plan.written if any(a.param == p for a in self.outputs)]
        kept = [p for p in written if not self.covered(p)]
        takes = dict.fromkeys([*(a.param for a in self.inputs), *kept])
        refs = [f"{a.name}_ref" for a in self.inputs] + [f"{s}_ref" for s in scalars]
        outs = [f"{a.name}_ref" for a in self.outputs]
        scratch = {
            **{b: f"plgpu.SMEM({shape}, jnp.{dt})" for b, (shape, dt) in self.memory.buffers.items()},
            **self.memory.others,
            **{b: f"plgpu.Barrier(num_arrivals={n})" for b, n in self.memory.barriers.items()},
        }
        lines = [f'    {n} = lax.axis_index("{n}")' for n in self.grid.values()]
        lines += ["    " + line for line in self.head]
        lines += ["    plgpu.barrier_wait(loaded)"] if self.head else []
        lines += self.lines
        text = [
            f'"""`{name}` for {self.chip.name}, written from {self.origin()}."""',
            "",
            "import jax",
            "import jax.numpy as jnp",
            "from jax import lax",
            "from jax.experimental import pallas as pl",
            "from jax.experimental.pallas import mosaic_gpu as plgpu",
            *([] if self.share.rows else ["", f"LAYOUT = plgpu.Layout.{self.layout_name()}"]),
            *(line for helper in self.helper_text() for line in ("", helper)),
            "",
            "",
            f"def {name}_kernel({', '.join([*refs, *outs, *scratch])}):",
            *(lines or ["    pass"]),
            "",
            "",
            f"def {name}({', '.join([*takes, *scalars])}{', ' if takes or scalars else ''}interpret=None):",
        ]
        text += [line for a in self.inputs for line in self._prepared(a)]
        shapes = [self._out_type(a) for a in self.outputs]
        grid = [str(self.share.steps(v)) for v in self.share.grid]
        one = "," if len(grid) == 1 else ""
        text += [
            "    results = plgpu.kernel(",
            f"        {name}_kernel,",
            "        out_type=[",
            *(f"            {s}," for s in shapes),
            "        ],",
            f"        grid=({', '.join(grid)}{one}),{self._grid_note()}",
            f"        grid_names=({', '.join(repr(n) for n in self.grid.values())}{one}),",
            "        scratch_types=[",
            *(f"            {s}," for s in scratch.values()),
            "        ],",
            "        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),",
            "        interpret=interpret,",
            f"    )({', '.join([*(a.name for a in self.inputs), *scalars])})",
        ]
        for i, p in enumerate(written):
            text += self._finished(p, i)
        text.append(f"    return ({', '.join(f'result_{i}' for i in range(len(written)))},)")
        operands = [Operand(p, plan.views[p].shape, plan.views[p].origin) for p in takes]
        operands += [Operand(s, (1,), scalar=True) for s in scalars]
        results = [
            Result(p, v.shape, v.origin, v.strides, tuple((0, n) for n in v.shape))
            for p, v in ((p, plan.views[p]) for p in written)
        ]
        return Module("\n".join(text) + "\n", name, tuple(operands), tuple(results))

    def layout_name(self) -> str:
        """The register layout of tiles: that of the matrix unit where there is a contraction."""
        return self.chip.layout if self.share.dots else "WGMMA"

    def _grid_note(self) -> str:
        if not self.share.grid:
            return ""
        sizes = self.share.sizes
        return "  # " + ", ".join(f"{self.grid[v]} by {sizes.get(v, 1)}" for v in self.share.grid)

    def _prepared(self, array: Array) -> list[str]:
        """The lines that make an argument what the kernel needs."""
        source, out = array.param, []
        if any(c is not None for c in array.cut):
            parts = ", ".join(_part(c) for c in array.cut)
            source = f"{source}[{parts}]"
        by = [n - m for n, m in zip(array.padded, array.shape)]
        if any(by):
            out.append(f"    {array.name} = jnp.pad({source}, {_widths(by)})")
        elif source != array.name:
            out.append(f"    {array.name} = {source}")
        more = [n - m for n, m in zip(array.whole, array.padded)]
        if any(more):
            out.append("    if interpret:  # which, unlike a GPU, copies nothing past an array's edge")
            out.append(f"        {array.name} = jnp.pad({array.name}, {_widths(more)})")
        return out

    def _out_type(self, array: Array) -> str:
        shape = str(array.padded)
        if array.whole != array.padded:
            shape = f"{array.whole} if interpret else {array.padded}"
        return f"jax.ShapeDtypeStruct({shape}, jnp.{self.element_of(array.param).numpy_name})"

    def _finished(self, param: str, i: int) -> list[str]:
        """The lines that make a result what the caller gets."""
        stores = [s for s in self.stored if s.param == param]
        if self.covered(param):
            return [f"    result_{i} = {self._result(stores[0].array)}"]
        out = [f"    result_{i} = {param}"]
        for store in stores:
            assert store.region is not None
            parts = ", ".join(f"{lo}:{hi}" for lo, hi in store.region)
            own = [c[0] if isinstance(c, tuple) else 0 for c in store.array.cut]
            inside = ", ".join(f"{lo - o}:{hi - o}" for (lo, hi), o in zip(store.region, own))
            out.append(f"    result_{i} = result_{i}.at[{parts}].set({self._result(store.array)}[{inside}])")
        return out

    def _result(self, array: Array) -> str:
        """What the kernel gave for an array, without its padding."""
        cut = "".join(f", :{n}" if n != m else ", :" for n, m in zip(array.shape, array.whole))[2:]
        return f"results[{self.outputs.index(array)}]" + (f"[{cut}]" if array.shape != array.whole else "")

    def covered(self, param: str) -> bool:
        """Whether the stores to a parameter write all of it."""
        stores = [s for s in self.stored if s.param == param]
        shape, regions = self.plan.views[param].shape, [s.region for s in stores]
        if any(r is None for r in regions):
            access = next(a for a in self.plan.accesses.values() if a.param == param and a.op.kind != "load")
            raise error(
                "gpu-not-translated",
                f"the store to {param!r} goes to places that are known at run time only",
                where=access.op.where,
                why="what no block writes has to keep its old values, so the written part must be known",
                do="store one tile a program at a place that follows from its program id",
            )
        if len({id(s.array) for s in stores}) > 1:
            return False
        boxes = [r for r in regions if r is not None]
        if any(all(lo <= 0 and hi >= n for (lo, hi), n in zip(box, shape)) for box in boxes):
            return True
        partial = {i for box in boxes for i, ((lo, hi), n) in enumerate(zip(box, shape)) if (lo, hi) != (0, n)}
        if len(partial) != 1:
            return False
        (axis,) = partial
        reached = 0
        for lo, hi in sorted(box[axis] for box in boxes):
            reached = max(reached, hi) if lo <= reached else reached
        return reached >= shape[axis]

    def check_memory(self) -> None:
        """Refuse a kernel whose tiles do not fit shared memory."""
        used = {b: math.prod(shape) * itemsize(dt) for b, (shape, dt) in self.memory.buffers.items()}
        if self.memory.bytes() > self.chip.smem_bytes:
            if not self.lean:
                raise Lean
            rows = ", ".join(f"{b} {n / 1024:.4g} KiB" for b, n in used.items())
            raise error(
                "smem-budget",
                f"the tiles of one block take {sum(used.values()) / 1024:.4g} KiB of shared memory",
                where=self.plan.kernel.where,
                why=f"a block of {self.chip.name} has {self.chip.smem_bytes / 1024:.4g} KiB: {rows}",
                do="use a smaller BLOCK, or walk the row in a loop",
            )


def _part(cut: tuple[int, int] | int | None) -> str:
    return ":" if cut is None else str(cut) if isinstance(cut, int) else f"{cut[0]}:{cut[1]}"


def _widths(by: list[int]) -> str:
    return f"(0, {by[0]})" if len(by) == 1 else str(tuple((0, n) for n in by))
