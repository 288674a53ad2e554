"""`device_print` on the CPU: a line for each program that gets there, as Triton's interpreter writes it.

Input: a print operation and the statements around it. Output: a statement that calls Python. Law: a kernel that prints
runs its programs one after the other, so each line has one program's values; programs and turns of loops print in their
order, the prints of one turn in any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend_triton_compat.ir import Op
from frontend_triton_compat.language.table import HELPERS

if TYPE_CHECKING:
    from frontend_triton_compat.emit.control import Control

HELPERS["print_values"] = {
    "cpu": '''
def print_values(prefix, hexadecimal, holds, program, *values):
    """A line for each value, if the program gets here."""
    shown = {"formatter": {"int": hex}} if hexadecimal else {}
    for value in values if holds else ():
        text = np.array2string(np.asarray(value), **shown)
        print(f"({', '.join(str(int(p)) for p in program)}) {prefix}{text}")
'''
}


def print_(emitter: Control, op: Op) -> None:
    """The statement of a print operation."""
    plan = emitter.plan
    mask = emitter.mask(plan.walker.conditions[op])
    emitter.with_helpers("print_values")
    program = [emitter.counters[v] if v is not None else "0" for v in plan.affine.programs]
    values = [emitter.shaped(emitter.value(v), plan.axes(v), v) for v in op.operands]
    arguments = ", ".join([mask.code if mask is not None else "True", f"({', '.join(program)})", *values])
    prefix = op["prefix"] if not op["prefix"] or op["prefix"].endswith(" ") else op["prefix"] + ": "
    called = f"lambda *v: print_values({prefix!r}, {op['hex']}, *v)"
    emitter.put(f"jax.debug.callback({called}, {arguments})", op)
