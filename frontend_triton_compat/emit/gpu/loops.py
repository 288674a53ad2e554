"""Loops on a GPU: a contraction's loop is a pipeline of copies; any other runs in each block as often as it has to.

Input: loops of the IR. Output: statements. Law: a pipeline's copies run ahead of the products by a few steps; a block
runs the trips of its own programs, so that no program waits for another's.
"""

from __future__ import annotations

import math
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.demand import Conjunct
from frontend_triton_compat.emit.expr import Expr, literal
from frontend_triton_compat.emit.gpu.dots import Dots, Shared
from frontend_triton_compat.emit.gpu.memory import itemsize
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, walk
from frontend_triton_compat.schedule import Fold

#: Steps of a pipeline that are in flight.
STEPS = 4


class Loops(Dots):
    """Statements of loops."""

    _acc = ""
    _late = False  # whether a step waits for its own products, because they read what the next step overwrites

    def for_(self, op: Op) -> None:
        """A contraction's loop as a pipeline, others as on every target."""
        fold = self.plan.folds.get(op)
        if fold is None or self.plan.top(fold.loop.var) not in self.share.pipes:
            super().for_(op)
            return
        sums = [(i, arg) for i, arg in enumerate(op.regions[0].args[1:]) if arg in fold.sums]
        sums = [(i, arg) for i, arg in sums if arg in self.plan.demand.live]
        if len(sums) != 1 or any(inner.kind == "store" for inner in walk(op.regions[0])):
            raise error(
                "gpu-not-translated",
                "a loop that contracts and does more than add to one accumulator",
                where=op.where,
                why="its turns are steps of one pipeline, which fills one accumulator",
                do="split the loop in two",
            )
        ((i, arg),) = sums
        total = self.pipelined(op, fold, self.plan.top(fold.loop.var), fold.sums[arg][1])
        init, result = self.value(op.operands[3 + i]), op.results[i]
        self.env[result] = self.assign(result.name or "acc", self.plus(init, total), op)
        self.advanced(op)

    def pipelined(self, op: Op, fold: Fold, k: Var, adder: Op) -> Expr:
        """Write the pipeline; the sum of its products."""
        hopper = self.chip.matmul == "wgmma"
        m, n = self.plan.axes(adder.result)
        assert m is not None and n is not None
        shape, steps = self.dimensions.shape((m, n)), -(-(k.count or 1) // self.share.sizes[k])
        loads = [inner for inner in op.regions[0].ops if inner in self.share.piped]
        self._late = not all(self._stays(inner) for inner in loads)
        if hopper:
            product = self.fresh("product")
            self._acc = self.fresh("acc_ref")
            self.put(f"def {product}({self._acc}):", op)
            self.indent += 1
        else:
            self._acc, self._done = self.fresh("acc_tmem"), self.fresh("multiplied")
            self.memory.others[self._acc] = f"plgpu.TMEM({shape}, jnp.float32)"
            count = "" if self._late else "num_barriers=2, "
            self.memory.others[self._done] = f"plgpu.Barrier({count}orders_tensor_core=True)"
            if not self._late:
                self.put(f"plgpu.barrier_arrive({self._done}.at[1])", op)
        specs, refs, names = [], [], []
        self._turn = self.fresh("turn")
        self.starts[k] = f"{self._turn} * {self.share.sizes[k]}"
        for load in loads:
            spec, ref, dims = self._streamed(load, k)
            specs.append(spec)
            refs.append(ref)
            names.append(self.fresh(f"{self.plan.accesses[load].param}_step"))
            self.shared[load.result] = Shared(names[-1], dims, True)
        step = self.fresh("add_step")
        self.put(f"def {step}(index, {', '.join(names)}):")
        self.indent += 1
        self.put(f"({self._turn},) = index")
        begin = len(self.lines)
        for inner in op.regions[0].ops:
            if inner not in fold.absorbed and inner is not adder:
                self.op(inner)
        self.contract(adder, ())
        if not any(self._turn in line for line in self.lines[begin:]):
            del self.lines[begin - 1]
        self.indent -= 1
        del self.starts[k]
        step_bytes = sum(
            self.bytes_of(
                tuple(self.share.sizes[d] for d in self.shared[load.result].dims),
                self.plan.accesses[load].element.numpy_name,
            )
            for load in loads
        )
        left = (
            self.chip.smem_bytes
            - self.memory.bytes()
            - self.bytes_of((self.share.sizes[m], self.share.sizes[n]), "float32")
        )
        for inner in op.regions[0].ops:  # what was bound in the step is gone
            for value in inner.results:
                self.env.pop(value, None)
                self.shared.pop(value, None)
        ahead = max(2, min(STEPS, steps, left // step_bytes))
        self.put("plgpu.emit_pipeline(")
        self.put(f"    {step},")
        self.put(f"    grid=({steps},),")
        self.put("    in_specs=[")
        for spec in specs:
            self.put(f"        {spec},")
        self.put("    ],")
        self.put(f"    max_concurrent_steps={ahead},")
        self.put(f")({', '.join(refs)})")
        name = self.fresh("total")
        self.dimensions.tiles.add(name)
        if hopper:
            self.put(f"return {self._acc}[...]")
            self.indent -= 1
            self.put(f"{name} = pl.run_scoped({product}, plgpu.ACC({shape}, jnp.float32))", op)
        else:
            if not self._late:
                self.put(f"plgpu.barrier_wait({self._done}.at[{(steps - 1) % 2}])")
            self.put(f"{name} = plgpu.async_load_tmem({self._acc}, layout=LAYOUT)", op)
            self.put("plgpu.wait_load_tmem()")
        kind = adder.result.type.element.numpy_name
        return Expr(name if kind == "float32" else f"{name}.astype(jnp.{kind})", (m, n))

    def _streamed(self, load: Op, k: Var) -> tuple[str, str, tuple[Var, ...]]:
        """A load of the pipeline: its BlockSpec, the array without what does not move, the tile's dimensions."""
        access = self.plan.accesses[load]
        tile = self.tile_of(access, None)
        block = ", ".join(str(self.share.sizes[d]) for d in tile.dims)
        index = ", ".join("k" if d is k else "0" for d in tile.dims)
        at = list(tile.dims).index(k)
        parts = list(tile.index)
        i = [j for j, t in enumerate(parts) if t.startswith("pl.ds(")][at]
        parts[i] = ":"
        ref = f"{tile.array.name}_ref"
        if any(p != ":" for p in parts):
            ref = f"{ref}.at[{', '.join(parts)}]"
        delay = "" if self._late else ", delay_release=1"
        return f"plgpu.BlockSpec(({block}), lambda k: ({index}){delay})", ref, tile.dims

    def accumulated(self, products: Any, dims: Any, op: Op) -> str:
        """The products of one step."""
        if self.chip.matmul == "wgmma":
            for a, b in products:
                self.put(f"plgpu.wgmma({self._acc}, {a}, {b})", op)
            self.put(f"plgpu.wgmma_wait({0 if self._late else 1})")
            return self._acc
        if self._late:
            for i, (a, b) in enumerate(products):
                more = f"{self._turn} > 0" if i == 0 else "True"
                barrier = f", barrier={self._done}" if i == len(products) - 1 else ""
                self.put(f"plgpu.tcgen05_mma({self._acc}, {a}, {b}{barrier}, accumulate={more})", op)
            self.put(f"plgpu.barrier_wait({self._done})")
            return self._acc
        ((a, b),) = products
        slot = self.fresh("slot")
        self.put(f"{slot} = lax.rem({self._turn}, 2)", op)
        self.put(
            f"plgpu.tcgen05_mma({self._acc}, {a}, {b}, barrier={self._done}.at[{slot}], accumulate={self._turn} > 0)"
        )
        self.put(f"plgpu.barrier_wait({self._done}.at[1 - {slot}])")
        return self._acc

    def bytes_of(self, shape: tuple[int, ...], dtype_name: str) -> int:
        """Bytes of a tile."""
        return math.prod(shape) * itemsize(dtype_name)

    # -- serial loops

    def serial(self, op: Op) -> None:
        """A loop that carries values: as often as this block's programs run it."""
        loop, body = self.plan.affine.loops[op], op.regions[0]
        if loop.trips is not None and loop.uniform:
            trips = literal(int(loop.trips.max()))
            bounds = None
        else:
            bounds = self._bounds(op)
            if any(e.dims for e in bounds):
                raise error(
                    "gpu-not-translated",
                    "a loop whose trips differ within a tile",
                    where=op.where,
                    why="a block runs a loop as one; its bounds are numbers",
                    do="let the bounds follow from the program id, not from elements of a tile",
                )
            lo, hi, by = bounds
            gap = hi.operand if lo.literal == 0 else f"{hi.operand} - {lo.operand}"
            text = f"lax.div({gap} + {by.operand} - 1, {by.operand})" if by.literal != 1 else gap
            if loop.step is None or loop.step < 0:
                text = self._trips(op).code
            trips = self.assign("trips", Expr(f"jnp.maximum({text}, 0)"), op)
        data = self.carried(op, body.args[1:], op.operands[3:], body)
        counter = self.fresh(loop.var.name)
        self.stage_ahead(body)

        def enter() -> None:
            self.counters[loop.var] = counter
            index = body.args[0]
            if bounds is not None and (loop.step is None or loop.lo.opaques):
                if index in self.plan.demand.live and index not in self.plan.demand.indexed:
                    text = f"{bounds[0].operand} + {counter} * {bounds[2].operand}"
                    self.env[index] = self.assign(index.name or "i", Expr(text), op)
            self.start_ahead(body)

        self._loop(op, f"lax.fori_loop(0, {trips.code}, {{step}}, {{init}})", [counter], data, body, op.results, enter)
        for inner in walk(body):
            for value in inner.results:
                self.shared.pop(value, None)

    def _condition(self, c: Conjunct) -> Expr:
        if c.loop is not None and c.loop not in self.active:  # a block runs no turn that its programs don't
            return literal(True)
        return super()._condition(c)

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        if var in self.starts:
            return Expr(f"({self.dimensions.counter(var)} + {self.starts[var]})", (var,))
        return super()._counter(var, dtype_name)

    def while_(self, op: Op) -> None:
        """Run-time loops."""
        raise error(
            "gpu-not-translated",
            "a while loop is not translated for a GPU yet",
            where=op.where,
            why="its condition is a value of a tile in general, and a block needs one number",
            do="write it as `for` over a known number of steps, or run the kernel on the CPU",
        )

    def _snapshot(self) -> tuple[Any, ...]:
        memory = self.memory
        mine = (
            *(dict(d) for d in (memory.buffers, memory.barriers, memory.others, memory.staging)),
            *(list(self.inputs), list(self.outputs), list(self.head), list(self.stored)),
            *(dict(self.shared), set(self.dimensions.tiles), dict(self.staged)),
        )
        return (mine, *super()._snapshot())

    def _restore(self, saved: tuple[Any, ...]) -> None:
        mine, *rest = saved
        buffers, barriers, others, staging, self.inputs, self.outputs, self.head, self.stored, *mine = mine
        self.shared, tiles, self.staged = mine
        self.memory.staging = staging
        self.memory.buffers, self.memory.barriers, self.memory.others = buffers, barriers, others
        self.dimensions.tiles = tiles
        super()._restore(tuple(rest))
