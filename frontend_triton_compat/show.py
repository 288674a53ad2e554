"""Prints tile IR as text that a person reads.

Input: a kernel. Output: one line an operation, indented by region. Law: the text depends on the IR only; values are
numbered in order of definition and carry the user's variable name where there is one.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Block, Kernel, Op, Value

_HIDDEN = ("hints", "body")


def show(kernel: Kernel) -> str:
    """The kernel as text."""
    return _Printer().kernel(kernel)


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.lines: list[str] = []

    def kernel(self, kernel: Kernel) -> str:
        params = ", ".join(f"{p.name}: {self.param(p)}" for p in kernel.params)
        self.lines.append(f"kernel {kernel.name}({params}) grid={kernel.grid}")
        self.block(kernel.body, 1)
        return "\n".join(self.lines) + "\n"

    def param(self, p: object) -> str:
        kind = p.kind  # type: ignore[attr-defined]
        if kind == "pointer":
            return f"*{p.type}"  # type: ignore[attr-defined]
        if kind == "float":
            return str(p.type)  # type: ignore[attr-defined]
        if kind == "tuple":
            return "(" + ", ".join(self.param(i) for i in p.items) + ")"  # type: ignore[attr-defined]
        return f"{p.type or 'constexpr'} = {p.value!r}"  # type: ignore[attr-defined]

    def name(self, value: Value) -> str:
        if value not in self.names:
            base = value.name or str(len(self.names))
            candidate, n = base, 1
            while candidate in self.used:
                candidate, n = f"{base}.{n}", n + 1
            self.used.add(candidate)
            self.names[value] = f"%{candidate}"
        return self.names[value]

    def block(self, block: Block, depth: int) -> None:
        for op in block.ops:
            self.op(op, depth)
        if block.yields:
            self.lines.append("  " * depth + "yield " + ", ".join(self.name(v) for v in block.yields))

    def op(self, op: Op, depth: int) -> None:
        pad = "  " * depth
        results = ", ".join(self.name(v) for v in op.results)
        shown = {k: v for k, v in op.attrs.items() if k not in _HIDDEN and k != "fn"}
        attrs = [f"{k}={v!r}" for k, v in shown.items() if v not in ("", None)]
        head = f"{op.kind} {op.attrs['fn']}" if "fn" in op.attrs else op.kind
        line = pad + (f"{results} = " if results else "") + head
        if op.kind == "for":
            lo, hi, step = (self.name(v) for v in op.operands[:3])
            induction, *carried = op.regions[0].args
            line += f" {self.name(induction)} in ({lo}, {hi}, {step})"
            line += self.carried(carried, op.operands[3:])
        elif op.kind == "while":
            line += self.carried(list(op.regions[0].args), op.operands)
        elif op.operands:
            line += " " + ", ".join(self.name(v) for v in op.operands)
        if attrs and not op.regions:
            line += " {" + ", ".join(attrs) + "}"
        if op.results and not op.regions:
            line += " : " + ", ".join(str(v.type) for v in op.results)
        self.lines.append(f"{line}  # line {op.where.line}")
        labels = {"for": ("",), "while": ("test", "do"), "if": ("then", "else")}.get(op.kind, ("",) * len(op.regions))
        for label, region in zip(labels, op.regions):
            if label:
                args = f"({', '.join(self.name(a) for a in region.args)})" if region.args else ""
                self.lines.append(f"{pad}{label}{args}:")
            self.block(region, depth + 1)
        if "body" in op.attrs:
            body = op["body"]
            self.lines.append(f"{pad}by({', '.join(f'{self.name(a)} : {a.type}' for a in body.args)}):")
            self.block(body, depth + 1)

    def carried(self, args: list[Value], inits: tuple[Value, ...]) -> str:
        pairs = ", ".join(f"{self.name(a)} = {self.name(i)} : {a.type}" for a, i in zip(args, inits))
        return f" with {pairs}" if pairs else ""
