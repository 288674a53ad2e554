"""Code from outside of Triton: functions of a device library, inline assembly.

Input: what `tl.extern_elementwise` and `tl.inline_asm_elementwise` are given. Output: handles for functions of CUDA's
device library, found by symbol. Law: nobody guesses at machine code: assembly is a diagnostic that quotes it and says
what Triton has instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import as_dtype
from frontend_triton_compat.language.semantic import broadcast, cast, to_tensor
from frontend_triton_compat.language.tensor import tensor

#: first words of PTX instructions -> what a kernel writes instead
_INSTEAD = {
    "tanh": "libdevice.tanh(x)",
    "ex2": "tl.exp2(x)",
    "lg2": "tl.log2(x)",
    "rcp": "1.0 / x",
    "rsqrt": "tl.rsqrt(x)",
    "sqrt": "tl.sqrt(x)",
    "sin": "tl.sin(x)",
    "cos": "tl.cos(x)",
    "fma": "tl.fma(x, y, z)",
    "mad": "x * y + z",
    "mul.hi": "tl.umulhi(x, y), or libdevice.mulhi(x, y) for signed operands",
    "mul24": "libdevice.mul24(x, y)",
    "shf": "(high << n) | (low >> (32 - n))",
    "shl": "x << n",
    "shr": "x >> n",
    "prmt": "libdevice.byte_perm(x, y, selector)",
    "lop3": "& | ^ on integers",
    "bfe": "(x >> start) & mask",
    "bfi": "(x & ~mask) | (y << start)",
    "popc": "libdevice.popc(x)",
    "clz": "libdevice.clz(x)",
    "brev": "libdevice.brev(x)",
    "max": "tl.maximum(x, y)",
    "min": "tl.minimum(x, y)",
    "abs": "tl.abs(x)",
    "div": "x / y, or tl.div_rn(x, y)",
    "ld": "tl.load(pointer)",
    "st": "tl.store(pointer, value)",
    "atom": "tl.atomic_add and its kin",
    "red": "tl.atomic_add and its kin",
    "bar": "tl.debug_barrier()",
    "and": "x & y",
    "or": "x | y",
    "xor": "x ^ y",
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
}
_CONVERSIONS = {
    "e4m3": "x.to(tl.float8e4nv)",
    "e5m2": "x.to(tl.float8e5)",
    "bf16": "x.to(tl.bfloat16)",
    "f16": "x.to(tl.float16)",
    "s8": "x.to(tl.int8)",
    "s32": "x.to(tl.int32)",
    "f32": "x.to(tl.float32)",
}


def _instead(asm: str) -> str:
    """What Triton has for the instructions of some PTX."""
    found: dict[str, None] = {}
    if "%globaltimer" in asm or "%clock" in asm:
        return "time the launch on the host: there is no clock inside a kernel"
    if "%smid" in asm or "%laneid" in asm or "%tid" in asm:
        return "use tl.program_id: a program has no processor, lane or thread number"
    for line in re.split(r"[;\n{}]", asm):
        words = re.sub(r"//.*|@!?%?\w+", "", line).split()
        instruction = words[0] if words else ""
        name = instruction.split(".")[0]
        if name == "cvt":
            target = next((v for k, v in _CONVERSIONS.items() if f".{k}" in instruction.partition("cvt")[2]), None)
            found[target or "x.to(dtype)"] = None
        elif name == "mul" and ".hi" in instruction:
            found[_INSTEAD["mul.hi"]] = None
        elif name in _INSTEAD:
            found[_INSTEAD[name]] = None
    if not found:
        return "write the operation with tl functions: bit operations, tl.fma, casts with bitcast=True, libdevice"
    return "write " + ", ".join(list(found)[:4])


def inline_asm_elementwise(
    asm: Any, constraints: Any = "", args: Any = (), dtype: Any = None, is_pure: Any = True, pack: Any = 1
) -> Any:
    """Inline assembly: a diagnostic that names what Triton has instead.

    Raises:
        Diagnostic: always (``inline-asm``).
    """
    current("tl.inline_asm_elementwise")
    text = str(unwrap(asm))
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t{}")]
    shown = " ".join(lines[:2])[:100] + (" ..." if len(lines) > 2 or len(" ".join(lines[:2])) > 100 else "")
    raise fail(
        "inline-asm",
        f"inline assembly: `{shown}`",
        why="PTX and GCN are machine code of GPUs; Pallas has no form for them",
        do=_instead(text),
    )


def extern_elementwise(
    lib_name: Any, lib_path: Any, args: Sequence[Any], arg_type_symbol_dict: Mapping[Any, Any], is_pure: Any = True
) -> tensor:
    """A function of CUDA's device library, by its symbol.

    Args:
        lib_name: the library; not looked at.
        lib_path: its file; not looked at.
        args: the operands.
        arg_type_symbol_dict: operand types -> (symbol, result type).
        is_pure: not looked at.

    Raises:
        Diagnostic: the operands have none of these types (``operand-type``), or the symbol is none of the device
            library's (``not-translated``).
    """
    from frontend_triton_compat.language.extra import libdevice  # imported late: it needs this package

    current("tl.extern_elementwise")
    operands = [to_tensor(a) for a in unwrap(args)]
    types = tuple(str(x.dtype) for x in operands)
    table = {tuple(str(as_dtype(t)) for t in unwrap(key)): unwrap(v) for key, v in arg_type_symbol_dict.items()}
    if types not in table:
        accepted = "; ".join(", ".join(key) for key in table)
        raise fail(
            "operand-type",
            f"extern_elementwise of {', '.join(types) or 'nothing'}",
            why=f"the functions given take {accepted}",
            do="cast the operands to one of these: x.to(tl.float32)",
        )
    symbol, result = table[types]
    fn = libdevice.symbol(symbol)
    if fn is None:
        library = f" of {unwrap(lib_name)!r}" if unwrap(lib_name) else ""
        raise fail(
            "not-translated",
            f"the extern function {symbol}{library}",
            why="a library of GPU code can't be linked in; only functions of CUDA's libdevice (__nv_...) are known",
            do="write the function with tl functions, or use triton.language.extra.libdevice",
        )
    for i, x in enumerate(operands):
        for other in operands:
            x, _ = broadcast(x, other)
        operands[i] = x
    return cast(fn(*operands), as_dtype(result))
