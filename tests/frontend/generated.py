"""Random kernels: source text and launch arguments from a seed.

Law: a generated kernel has one meaning: programs store to different elements, loads stay inside the tensors (masked
where they would not), and no program reads what another writes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

TILES = (1, 2, 4, 8, 16)


@dataclass
class Generated:
    """A kernel's source with the launch that it is meant for."""

    source: str
    grid: tuple[int, ...]
    tensors: dict[str, torch.Tensor]
    ints: dict[str, int]
    floats: dict[str, float] = field(default_factory=dict)


class Writer:
    """Writes one kernel."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.early = False  # whether some programs store and return early

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def pick(self, *options):
        return self.r.choice(options)

    # -- pieces

    def base(self) -> str:
        """An integer scalar made of program ids and arguments."""
        p = self.pick("pid", "pid", "pid // 2", "pid % 3", "p0", "p1", "p0 * G1 + p1", "G1 - 1 - p1")
        return self.pick(p, f"({p}) * {self.r.randint(1, 7)}", f"({p}) * n", f"{p} + {self.r.randint(0, 5)}", "0")

    def index(self, lane: str) -> str:
        """An integer tile: affine most of the time, sometimes wrapped, divided or clamped."""
        affine = f"({self.base()}) + ({lane}) * {self.pick(1, 1, 1, 2, 3)} + {self.r.randint(0, 4)}"
        return self.pick(
            affine,
            affine,
            affine,
            f"(({affine}) % {self.pick('n', 13)})",
            f"(({affine}) // {self.r.randint(2, 5)})",
            f"tl.minimum({affine}, n - 1)",
            f"({self.r.randint(20, 40)} - ({lane}))",
        )

    def load(self, tensor: str, lane: str) -> str:
        name, at = self.fresh("v"), self.fresh("i")
        self.put(f"{at} = {self.index(lane)}")
        if self.r.random() < 0.2:
            self.put(f"{at} = tl.load(idx + {at}, mask=({at} >= 0) & ({at} < NI), other=0)")
        mask = f"({at} >= 0) & ({at} < NX)"
        if self.r.random() < 0.4:
            mask += f" & (({lane}) < {self.pick('n', 'n', 'm', 'pid + 1', 'pid')})"
        other = self.pick(
            "", ", other=0.0", ", other=1.5", ", other=-float('inf')" if self.r.random() < 0.3 else ", other=2.0"
        )
        self.put(f"{name} = tl.load({tensor} + {at}, mask={mask}{other})")
        return name

    def math(self, a: str, b: str) -> str:
        return self.pick(
            f"{a} + {b}",
            f"{a} - {b}",
            f"{a} * 0.5 + {b}",
            f"tl.maximum({a}, {b})",
            f"tl.where({a} > {b}, {a}, -{b})",
            f"{a} * scale",
            f"tl.abs({a}) + {b}",
        )

    def kernel(self) -> Generated:
        r = self.r
        g0, g1 = r.randint(1, 4), r.randint(1, 3)
        two = r.random() < 0.5
        a, b = r.choice(TILES), r.choice(TILES)
        if not two:
            b = 1
        n, m = r.randint(1, 20), r.randint(1, 9)
        constants = ", ".join(f"{name}: tl.constexpr" for name in ("NX", "NI", "G1", "A", "B"))
        params = f"x, y, idx, o, n, m, scale, {constants}"
        self.put("p0 = tl.program_id(0)")
        self.put("p1 = tl.program_id(1)")
        self.put("pid = p0 * G1 + p1")
        if two:
            self.put("i = tl.arange(0, A)[:, None]")
            self.put("j = tl.arange(0, B)[None, :]")
            self.put(f"lane = i * {self.pick('B', 'n', '1')} + j * {self.pick('1', '2', 'm')}")
            self.put("spot = i * B + j")
        else:
            self.put("lane = tl.arange(0, A)")
            self.put("spot = lane")
        current = self.load("x", "lane")
        if r.random() < 0.5:
            other = self.load(self.pick("x", "y"), "lane")
            name = self.fresh("v")
            self.put(f"{name} = {self.math(current, other)}")
            current = name
        self.early = r.random() < 0.25
        if self.early:
            early = self.pick("pid == 1", "p0 == G1", f"n < {r.randint(1, 20)}", "tl.load(idx + pid % NI) > 3")
            self.put(f"if {early}:")
            self.put(f"    tl.store(o + pid * (A * B) + spot, {current} - 7.0)")
            self.put("    return")
        if r.random() < 0.6:
            current = self.loop(current, two)
        if r.random() < 0.4:
            current = self.reduction(current, two)
        if r.random() < 0.4:
            cond = self.pick("pid % 2 == 0", "p1 > 0", "tl.load(idx + pid % NI) > 4")
            name = self.fresh("v")
            self.put(f"if {cond}:")
            self.put(f"    {name} = {current} + 1.0")
            self.put("else:")
            self.put(f"    {name} = {current} * 2.0")
            current = name
        shifted = self.store(current)
        if r.random() < 0.3 and not shifted:  # a shifted store reaches into the next program's elements
            self.put("back = tl.load(o + pid * (A * B) + spot)")
            self.put(f"tl.store(o + pid * (A * B) + spot, back + {current}, mask=spot < {self.pick('n', 'm', 'A')})")
        body = "\n".join(self.lines)
        source = f"@triton.jit\ndef kernel({params}):\n{body}\n"
        nx = r.randint(30, 90)
        tensors = {
            "x": torch.randn(nx, generator=torch.Generator().manual_seed(r.randint(0, 999))),
            "y": torch.randn(nx, generator=torch.Generator().manual_seed(r.randint(0, 999))),
            "idx": torch.randint(
                0, 9, (r.randint(5, 30),), generator=torch.Generator().manual_seed(r.randint(0, 999))
            ).to(self.pick(torch.int32, torch.int64)),
            "o": torch.full((g0 * g1 * a * b + 3,), -5.0),
        }
        ints = {"n": n, "m": m, "NX": nx, "NI": tensors["idx"].numel(), "G1": g1, "A": a, "B": b}
        return Generated(source, (g0, g1), tensors, ints, {"scale": 1.25})

    def loop(self, current: str, two: bool) -> str:
        acc = self.fresh("acc")
        kind = self.pick("sum", "sum", "max", "decay", "pointer")
        trip = self.pick("m", "n", "3", "pid + 1", "tl.load(idx + pid % NI)", "tl.cdiv(n, A)")
        lo, step = self.pick(("0", "1"), ("0", "2"), ("1", "1"), ("p1", "1"), ("0", "A"))
        self.put(f"{acc} = tl.zeros_like({current})")
        if kind == "pointer":
            self.put("ptr = x + lane % NX")
        self.put(f"for k in range({lo}, {trip}, {step}):")
        self.depth += 1
        if kind == "pointer":
            term = self.fresh("v")
            self.put(f"{term} = tl.load(ptr + k * 0, mask=(lane % NX) + k < NX, other=0.0)")
            self.put("ptr += 1")
        else:
            term = self.load("y", f"lane + k * {self.pick('1', 'A', 'n')}")
            self.put(f"{term} = tl.where({term} == -float('inf'), 0.0, {term})")
        update = {
            "sum": f"{acc} += {term}",
            "max": f"{acc} = tl.maximum({acc}, {term})",
            "decay": f"{acc} = {acc} * 0.5 + {term}",
            "pointer": f"{acc} += {term} * 0.25",
        }[kind]
        self.put(update)
        self.depth -= 1
        name = self.fresh("v")
        self.put(f"{name} = {acc} + tl.where({current} == -float('inf'), 0.0, {current})")
        return name

    def reduction(self, current: str, two: bool) -> str:
        name, axis = self.fresh("v"), self.pick(0, 1) if two else 0
        fn = self.pick("sum", "max", "min")
        self.put(f"{name}r = tl.{fn}({current}, axis={axis})")
        expand = "" if not two else ("[None, :]" if axis == 0 else "[:, None]")
        finite = f"tl.where({name}r == -float('inf'), 0.0, {name}r)"
        self.put(f"{name}f = {finite}")
        self.put(f"{name} = {current} * 0.5 + {name}f{expand}")
        return name

    def store(self, current: str) -> bool:
        mask = self.pick(
            "", f", mask=spot < {self.pick('n', 'm')}", f", mask={current} > 0.0", ", mask=lane < n", ", mask=pid != 2"
        )
        shift = 0 if self.early else self.r.choice((0, 0, 0, 1, 3))  # two stores of one kernel share no elements
        where = (
            self.pick("pid * (A * B) + spot", "pid * (A * B) + (A * B - 1 - spot)")
            if not shift
            else f"pid * (A * B) + spot + {shift}"
        )
        self.put(f"tl.store(o + {where}, {current}{mask})")
        return bool(shift)


def generate(seed: int) -> Generated:
    """The kernel of a seed."""
    return Writer(seed).kernel()
