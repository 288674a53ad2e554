"""The module's text: the kernel and the function that calls it.

Input: the statements and specs of a kernel. Output: a `Module`. Law: what is written is what a Pallas programmer would
write by hand; it imports jax only.
"""

from __future__ import annotations

from collections.abc import Sequence

from frontend_triton_compat.emit.expr import shape_of, tuple_of
from frontend_triton_compat.emit.module import Module, Operand, Result
from frontend_triton_compat.emit.tpu.outside import Clamped, Spec
from frontend_triton_compat.emit.tpu.sums import Sums
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op


class Text(Sums):
    """The text around the statements."""

    vmem_limit: int
    after: Sequence[str] = ()  # lines that close what a target opened around the statements

    def check_types(self, op: Op) -> None:
        """Refuse what the chip has no registers for."""
        raise NotImplementedError

    def module(self) -> Module:
        """Emit the kernel and the function that calls it."""
        plan, grid = self.plan, self.blocks.grid
        for op in plan.kernel.body.ops:
            if op.kind == "arg" and not op.result.type.is_pointer and op.result in plan.demand.live:
                self.env[op.result] = self.assign(op["name"], self.arg_(op), op)
        for op in plan.kernel.body.ops:
            self.check_types(op)
        self.by_steps(lambda: [self.op(op) for op in plan.kernel.body.ops if op.kind != "arg"])
        self.indent = 1
        self.lines += self.after
        self.keep_old_values()
        name = self.entry_name()
        reads = [s for s in self.inputs if any(s.ref in line for line in self.lines)]
        outputs = [s for p in plan.written for s in self.outputs if s.param == p]
        others = {**self.scalar_outputs, **self.hbm_outputs}
        written = [p for p in plan.written if p in others or any(s.param == p for s in outputs)]
        scalars = list(self.scalars)
        patched = [s.param for s in outputs if s.patch]
        arrays = list(dict.fromkeys([*(s.param for s in reads), *patched]))
        refs = [s.ref for s in reads] + [f"{s}_ref" for s in scalars]
        refs += [*self.smem.values(), *(ref for ref, _ in self.hbm.values())]
        arrays = list(dict.fromkeys([*arrays, *self.smem, *self.hbm]))
        outs = [*(s.ref for s in outputs), *others.values()]
        scratch = [*(ref for ref, _, _ in self.scratch), *self.more_scratch]
        text = [
            f'"""`{name}` for a TPU, written from {self.origin()}."""',
            "",
            "import jax",
            "import jax.numpy as jnp",
            "from jax import lax",
            "from jax.experimental import pallas as pl",
            "from jax.experimental.pallas import tpu as pltpu",
            *(line for helper in self.helper_text() for line in ("", helper)),
            "",
            "",
            f"def {name}_kernel({', '.join([*refs, *outs, *scratch])}):",
            *(self.lines or ["    pass"]),
            "",
            "",
            f"def {name}({', '.join([*arrays, *scalars])}{', ' if arrays or scalars else ''}interpret=False):",
        ]
        letters = [self._letter(v, i) for i, v in enumerate(grid)]
        specs = [self._block_spec(s, letters) for s in reads]
        specs += ["pl.BlockSpec(memory_space=pltpu.SMEM)"] * (len(scalars) + len(self.smem))
        specs += ["pl.BlockSpec(memory_space=pl.ANY)"] * len(self.hbm)
        shapes = [f"jax.ShapeDtypeStruct({s.shape}, jnp.{self.element_of(s.param).numpy_name})" for s in outputs]
        for p in self.scalar_outputs:
            shapes.append(f"jax.ShapeDtypeStruct(({plan.views[p].size},), jnp.{self.element_of(p).numpy_name})")
        for p in self.hbm_outputs:
            shapes.append(f"jax.ShapeDtypeStruct({self.hbm[p][1]}, jnp.{self.element_of(p).numpy_name})")
        # an output that comes back along an axis is one block in several steps: no two cores may share them
        visited = [all(v in s.index for s in outputs) for v in grid]
        semantics = ["parallel" if once else "arbitrary" for once in visited]
        if self.orderly:
            semantics = ["arbitrary"] * len(grid)
        elif self.blocks.fold is not None:
            semantics[-1] = "arbitrary"
        if "arbitrary" in semantics:  # parallel axes come first
            first = semantics.index("arbitrary")
            semantics[first:] = ["arbitrary"] * (len(semantics) - first)
        steps = ", ".join(str(self.blocks.steps(v)) for v in grid)
        axes = ", ".join(f"{v.name} by {self.extent(v)}" for v in grid)
        call = [
            "    results = pl.pallas_call(",
            f"        {name}_kernel,",
            f"        grid=({steps}{',' if len(grid) == 1 else ''}),  # {axes}",
            "        in_specs=[",
            *(f"            {s}," for s in specs),
            "        ],",
            "        out_specs=[",
            *(f"            {self._block_spec(s, letters)}," for s in outputs),
            *("            pl.BlockSpec(memory_space=pltpu.SMEM)," for _ in self.scalar_outputs),
            *("            pl.BlockSpec(memory_space=pl.ANY)," for _ in self.hbm_outputs),
            "        ],",
            "        out_shape=[",
            *(f"            {s}," for s in shapes),
            "        ],",
        ]
        if self.hbm_outputs:
            first, held = len(reads) + len(scalars) + len(self.smem), list(self.hbm)
            alias = {
                first + held.index(p): len(outs) - len(self.hbm_outputs) + i for i, p in enumerate(self.hbm_outputs)
            }
            call.append(f"        input_output_aliases={alias},")
        if scratch:
            rows = [f"pltpu.VMEM({shape_of(dims, self.extent)}, jnp.{dt})" for _, dims, dt in self.scratch]
            rows += self.more_scratch.values()
            call.append(f"        scratch_shapes=[{', '.join(rows)}],")
        proved = ", disable_bounds_checks=True" if self.orderly else ""  # every row number is clipped
        order = f"dimension_semantics={tuple(semantics)}, " if grid else ""
        call.append(
            f"        compiler_params=pltpu.CompilerParams(\n"
            f"            {order}vmem_limit_bytes={self.vmem_limit}{proved}\n        ),"
        )
        call += [
            f"        name={name!r},",
            "        interpret=interpret,",
            f"    )({', '.join([*(s.array(s.param) for s in reads), *scalars, *self._kept_whole()])})",
        ]
        operands = []
        for p in arrays:
            operand, lines = self._handed_over(p)
            operands.append(operand)
            text += lines
        text += call
        finals, results = [], []
        for p in written:
            whole = p
            for i, s in enumerate(outputs):
                if s.param == p:
                    whole = s.put_back(whole, f"results[{i}]")
            if p in self.scalar_outputs:
                shape = plan.views[p].shape
                whole = f"results[{len(outputs) + list(others).index(p)}]"
                whole += f".reshape{shape}" if len(shape) > 1 else ""
            if p in self.hbm_outputs:
                shape, widths = self.hbm[p][1], plan.views[p].widths
                whole = f"results[{len(outputs) + list(others).index(p)}]"
                if shape != widths:
                    whole += f"[{', '.join(':' if n == w else f':{w}' for n, w in zip(shape, widths))}]"
            result, cut = self._handed_back(p)
            results.append(result)
            finals.append(f"{whole}{cut}")
        operands += [Operand(s, (1,), scalar=True) for s in scalars]
        plain = finals == [f"results[{i}]" for i in range(len(outputs))]
        text.append("    return tuple(results)" if plain else f"    return {tuple_of(finals)}")
        return Module("\n".join(text) + "\n", name, tuple(operands), tuple(results))

    def _kept_whole(self) -> list[str]:
        """Source of the arrays that stay whole: small ones in scalar memory, others in HBM."""
        out = [p if len(self.plan.views[p].shape) == 1 else f"{p}.reshape(-1)" for p in self.smem]
        for p, (_, shape) in self.hbm.items():
            widths = self.plan.views[p].widths
            room = ", ".join(f"(0, {n - w})" for n, w in zip(shape, widths))
            out.append(p if shape == widths else f"jnp.pad({p}, ({room}{',' if len(shape) == 1 else ''}))")
        return out

    def _handed_over(self, param: str) -> tuple[Operand, list[str]]:
        """How an argument's memory arrives, and what makes the view of it that the kernel sees."""
        view = self.plan.views[param]
        operand, lines = Operand(param, view.shape, view.origin), []
        if view.pad != (0, 0):
            operand = Operand(param, (view.size - sum(view.pad),), view.origin + view.pad[0])
            lines.append(f"    {param} = jnp.pad({param}, {view.pad}).reshape{view.shape}")
        if view.widened:
            room = tuple((0, w - n) for w, n in zip(view.widths, view.shape))
            lines.append(f"    {param} = jnp.pad({param}, {room})  # room for masked blocks that run over the end")
        return operand, lines

    def _handed_back(self, param: str) -> tuple[Result, str]:
        """What a result is a window of, and what takes it back from the view that the kernel sees."""
        view, cut = self.plan.views[param], ""
        if view.widened:
            cut = f"[{', '.join(':' if w == n else f':{n}' for w, n in zip(view.widths, view.shape))}]"
        if view.pad == (0, 0):
            box = tuple((0, n) for n in view.shape)
            return Result(param, view.shape, view.origin, view.strides, box), cut
        n = view.size - sum(view.pad)
        cut += f".reshape(-1)[{view.pad[0]}:{view.pad[0] + n}]"
        return Result(param, (n,), view.origin + view.pad[0], (1,), ((0, n),)), cut

    def _letter(self, var: Var, i: int) -> str:
        return "ijkl"[i] if i < 4 else f"g{i}"

    def _block_spec(self, spec: Spec, letters: Sequence[str]) -> str:
        grid = self.blocks.grid
        index = [letters[grid.index(v)] if isinstance(v, Var) else str(v) for v in spec.picks]
        for i, picked in enumerate(spec.index):
            if isinstance(picked, Clamped):
                index[i] = f"jnp.minimum({index[i]}, {picked.last})"
        inside = f"{index[0]}," if len(index) == 1 else ", ".join(index)
        return f"pl.BlockSpec({spec.block}, lambda {', '.join(letters)}: ({inside}))"
