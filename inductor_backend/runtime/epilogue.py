"""The end of a call: results as eager's tensors, then the writes to inputs, then the return.

Input: an assembly whose segments have run. Output: its last lines. Law: inputs are written after everything that can
fail; a cell is given back when all that may read it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx import Node

from inductor_backend.emit import np_bytes
from inductor_backend.graph import Graph, Spec, Write, flat, name_of
from inductor_backend.runtime.slots import HELD

if TYPE_CHECKING:
    from inductor_backend.runtime.assembly import Assembly

#: Larger writes are torch's, which uses its threads for them.
_MOVED = 1 << 18
#: So many bytes are written by the machine code of a segment, which keeps them until the end.
_LATE = 1 << 22


def epilogue(assembly: Assembly, bases: dict[Node, Node]) -> None:
    """Outputs as eager's tensors, then the writes to inputs, then the return."""
    plan, lines = assembly.plan, assembly.lines
    targets = {w.target: w for w in plan.writes}
    final: dict[Node, str] = {}

    def produce(node: Node, own: bool) -> str:
        if node in final:
            return final[node]
        base, spec = bases[node], plan.specs[node]
        lies = base is not node and base in assembly.arrays and base.op != "placeholder" and base not in plan.aten
        lies = lies and plan.specs[base].dtype == spec.dtype and plan.specs[base].numel and base not in assembly.tensors
        name = assembly.exported(base) if lies else assembly.tensor(base)
        if base.op == "placeholder" and base in targets:
            name = f"{name}.clone()"
        if base is not node:
            start = plan.specs[base].offset
            view = f"v_{node.name}"
            if base.op == "placeholder" and base not in assembly.checked:
                assembly.checked.add(base)
                strides = assembly.bind("strides", plan.specs[base].strides)
                lines.append(
                    f"if {name}.stride() != {strides}: {name} = restride({name}, {plan.specs[base].shape!r}, {strides})"
                )
            if base in plan.aten:
                strides = assembly.bind("strides", plan.specs[base].strides)
                lines.append(
                    f"if {name}.stride() != {strides}: {name} = restride({name}, {plan.specs[base].shape!r}, {strides})"
                )
            if plan.specs[base].dtype != spec.dtype:
                dtype = assembly.bind("dtype", spec.dtype)
                lines.append(f"{view} = {name}.as_strided(({plan.specs[base].numel},), (1,)).view({dtype})")
                name = view
            offset = f"{spec.offset - start}"
            if base.op == "placeholder" or base in plan.aten:
                offset = f"{name}.storage_offset() + {offset}"
            lines.append(f"{view} = {name}.as_strided({spec.shape!r}, {spec.strides!r}, {offset})")
            name = view
        elif node in plan.aten and isinstance(spec, Spec):
            strides = assembly.bind("strides", spec.strides)
            lines.append(f"if {name}.stride() != {strides}: {name} = restride({name}, {spec.shape!r}, {strides})")
        if name.endswith(")"):
            lines.append(f"c_{node.name} = {name}")
            name = f"c_{node.name}"
        final[node] = name
        return name

    moved = [_moved(w, assembly, bases) for w in plan.writes]
    sources = [None if m else produce(w.source, True) for w, m in zip(plan.writes, moved, strict=True)]
    outs: list[str] = []
    for position, out in enumerate(plan.outputs):
        if isinstance(out, Node) and position in plan.saved and out not in final and _is_held(out, assembly, bases):
            lines.append(f"{produce(out, False)}.{HELD} = {assembly.arrays[out]}")
        if not isinstance(out, Node):
            outs.append(repr(out) if isinstance(out, (int, float, bool, type(None))) else assembly.bind("value", out))
        elif out in plan.static:
            outs.append(
                repr(plan.static[out])
                if not isinstance(plan.static[out], float)
                else assembly.bind("value", plan.static[out])
            )
        elif name_of(out.target) == "aten.copy_.default" and out.args[0] in targets:
            outs.append(assembly.targets[out.args[0]])
        elif isinstance(plan.specs.get(out), Spec):
            outs.append(produce(out, False))
        else:
            outs.append(assembly.tensor(out))
    copied = [(assembly.targets[w.target], s) for w, s in zip(plan.writes, sources, strict=True) if s is not None]
    lazy = any(v.is_conj() or v.is_neg() for v in (w.target.meta["val"] for w in plan.writes))
    # The sources may lie in a cell (a copy of one input that is written to another one) only until it is given back.
    if len(copied) == 1 or lazy:
        # A batched copy doesn't take lazy conjugates.
        lines.extend(f"{target}.copy_({source})" for target, source in copied)
    elif copied:
        lines.append(f"copy_all([{', '.join(t for t, _ in copied)}], [{', '.join(s for _, s in copied)}])")
    lines.extend(m[0] for m in moved if m)
    if any(moved):
        lines.append(f"changed([{', '.join(m[1] for m in moved if m)}])")
    lines.extend(f"if {cell} is not None: {cells}.append({cell})" for cell, cells in assembly.cells)
    if assembly.cells:
        lines.insert(0, f"{' = '.join(cell for cell, _ in assembly.cells)} = None")
    lines.append(f"return ({''.join(o + ', ' for o in outs)})")


def _is_held(node: Node, assembly: Assembly, bases: dict[Node, Node]) -> bool:
    """Whether a value that is saved for the backward graph leaves as a tensor of its own, over a result's memory."""
    plan, spec = assembly.plan, assembly.plan.specs.get(node)
    made = node.op != "placeholder" and node not in plan.aten and node in assembly.arrays and bases[node] is node
    return made and isinstance(spec, Spec) and spec.order() is not None and spec.numel > 0


def late_writes(plan: Graph, bases: dict[Node, Node]) -> dict[Node, Write]:
    """Results of the last segment that only go into an input each, which nobody reads afterwards: value -> write.

    Machine code may write them itself, when all else is computed.
    """
    users: dict[Node, int] = {}
    for node in [*flat(plan.outputs), *(w.source for w in plan.writes)]:
        if name_of(node.target) != "aten.copy_.default" and node in bases:
            users[bases[node]] = users.get(bases[node], 0) + 1
    last = set(plan.segments[-1].nodes) if plan.segments and plan.segments[-1].jitted else set()
    found: dict[Node, Write] = {}
    room = _LATE
    for write in plan.writes:
        base = bases[write.source]
        if base in last and users.get(base) == 1 and write.target not in users and _lies_alike(write, plan, base):
            nbytes = np_bytes(plan.specs[write.target])
            if nbytes <= room:
                room -= nbytes
                found[base] = write
    return found


def _lies_alike(write: Write, plan: Graph, base: Node) -> bool:
    """Whether the memory of a result is laid out as the input's that it is written to."""
    source, target = plan.specs.get(write.source), plan.specs.get(write.target)
    result, meta = plan.specs.get(base), write.target.meta["val"]
    if not (isinstance(source, Spec) and isinstance(target, Spec) and isinstance(result, Spec)):
        return False
    if meta.is_conj() or meta.is_neg():
        return False
    dense = target.order() is not None and result.order() is not None and result.numel == target.numel
    alike = target.shape == source.shape and target.dtype == source.dtype == result.dtype
    where = all(n == 1 or a == b for n, a, b in zip(target.shape, target.strides, source.strides))
    return dense and alike and where and source.offset == result.offset and 0 < np_bytes(target) <= _MOVED


def _moved(write: Write, assembly: Assembly, bases: dict[Node, Node]) -> tuple[str, str] | None:
    """A write as a move of bytes, and its target; None where the result's memory is not laid out as the target's.

    A result that only goes into an input need not become a tensor, which costs more than the write.
    """
    plan, base = assembly.plan, bases[write.source]
    name = assembly.targets[write.target]
    if base in assembly.late:
        return f"if {assembly.late[base]} is not None: {name}.copy_({assembly.late[base]})", name
    if base.op == "placeholder" or base in plan.aten or base not in (assembly.arrays | assembly.addresses):
        return None
    if not _lies_alike(write, plan, base):
        return None
    source, target = plan.specs[write.source], plan.specs[write.target]
    array = assembly.arrays.get(base)
    strides = assembly.bind("strides", target.strides)
    address = assembly.addresses[base] if array is None else f"{array}.unsafe_buffer_pointer()"
    text = f"move({name}.data_ptr(), {address}, {np_bytes(target)})"
    copy = assembly.tensor(base) if array is None else f"tensor(capsule({array}))"
    copy += f".as_strided({source.shape!r}, {source.strides!r})"
    return f"{text} if {name}.stride() == {strides} else {name}.copy_({copy})", name
