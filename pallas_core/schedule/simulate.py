"""Run the scalar code of a schedule: how often each bundle runs, what the copies move, how long it all takes.

Input: parsed bundles, clock and HBM bandwidth. Output: `Run`. The model: one bundle is one cycle; a taken branch runs
its four delay slots; HBM is one queue with a fixed latency, and a wait stalls until the oldest copy on its semaphore
is done. Law: deterministic; a branch on data is counted in `unknown_branches` and runs the guarded region (a bound
from above); a value that is not known stays unknown and never becomes a guess.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from pallas_core.schedule.listing import Address, Guard, Op, Operand, Register, signed

#: Seconds from the issue of a copy to its first byte; fitted to one measured figure (128-blocks matmul on a v5e).
LATENCY_S = 0.43e-6
DELAY_SLOTS = 4
#: Bytes in one unit of a copy's printed size.
GRANULE = 32
#: Steps after which the outermost running loop is scaled to its trip count, and after which the run is given up.
MAX_STEPS = 1_000_000
GIVE_UP = 20 * MAX_STEPS

Value = int | bool | Address | None


@dataclass(frozen=True)
class Run:
    """One run of a kernel.

    Attributes:
        cycles: bundles issued and stalls.
        stall_cycles: cycles spent waiting for copies.
        visits: how often each bundle runs.
        trips: (first bundle, branch bundle) of each loop -> times its back branch was taken.
        hbm_bytes: moved between HBM and the chip.
        copies: DMAs issued.
        unsized_copies: DMAs whose size is not known.
        unknown_branches: branches on data.
        extrapolated: what was scaled, or "".
    """

    cycles: float
    stall_cycles: float
    visits: tuple[float, ...]
    trips: dict[tuple[int, int], float]
    hbm_bytes: float
    copies: float
    unsized_copies: int
    unknown_branches: int
    extrapolated: str


def loops(program: tuple[tuple[Op, ...], ...]) -> list[tuple[int, int]]:
    """(first bundle, branch bundle) of every backward branch."""
    return [
        (op.target, at)
        for at, bundle in enumerate(program)
        for op in bundle
        if op.target is not None and op.target <= at
    ]


class _Machine:
    """Registers, scalar memory and the copy queue."""

    def __init__(self, bytes_per_cycle: float, latency_cycles: float):
        self.registers: dict[str, Value] = {}
        self.memory: dict[Value, Value] = {}
        self.compared: dict[str, tuple[int, int]] = {}  # predicate -> (counter, constant) of its last comparison
        self.queues: dict[Value, deque[float]] = defaultdict(deque)
        self.bytes_per_cycle, self.latency = bytes_per_cycle, latency_cycles
        self.time = self.stall = self.hbm_free = 0.0
        self.hbm_bytes = self.copies = self.unsized = self.unknown = 0

    def value(self, operand: Operand) -> Value:
        return self.registers.get(operand.name) if isinstance(operand, Register) else operand

    def allowed(self, guard: Guard | None) -> bool | None:
        if guard is None:
            return True
        known = self.registers.get(guard.register)
        return None if known is None else bool(known) != guard.negated

    def run(self, bundle: tuple[Op, ...]) -> tuple[int, Op] | None:
        """One bundle: all reads before all writes. Returns the branch taken, as (target, operation)."""
        writes: list[tuple[dict, Value | str, Value]] = []
        taken = None
        for op in bundle:
            allowed = self.allowed(op.guard)
            if op.code.startswith("sbr"):
                if op.target is None:
                    continue
                self.unknown += allowed is None
                if allowed:
                    taken = (op.target, op)
                continue
            if op.base == "smov":
                writes.append((self.registers, op.to, self._move(op, allowed)))
                continue
            if allowed is False:
                continue
            if op.code == "sst":
                if isinstance(op.args[0], Address):
                    writes.append((self.memory, op.args[0], self.value(op.args[1]) if allowed else None))
            elif op.code.startswith("dma.done"):
                self._wait(op)
            elif op.code.startswith("dma."):
                self._copy(op)
            elif op.to is not None:
                writes.append((self.registers, op.to, self._compute(op) if allowed else None))
        for store, key, value in writes:
            store[key] = value
        return taken

    def _move(self, op: Op, allowed: bool | None) -> Value:
        value = self.value(op.args[0]) if op.args else None
        if op.guard is None or allowed:
            return value
        kept = self.value(op.guard.otherwise) if op.guard.otherwise is not None else self.registers.get(op.to or "")
        return kept if allowed is False or kept == value else None

    def _compute(self, op: Op) -> Value:
        args = [self.value(a) for a in op.args]
        if op.code == "sld":
            return self.memory.get(op.args[0]) if isinstance(op.args[0], Address) else None
        if op.base == "scmp":
            if len(op.args) > 1 and isinstance(args[0], int) and isinstance(op.args[1], int):
                self.compared[op.to or ""] = (args[0], op.args[1])
            return _compare(op.code.split("."), args)
        if op.base == "scalar_select":
            return None if args[0] is None else args[1] if args[0] else args[2]
        if op.to is not None and op.to[0] == "p":
            return _logic(op.base, args)
        return _arithmetic(op.base, args)

    def _copy(self, op: Op) -> None:
        size = self.value(op.args[1]) if len(op.args) > 1 else None
        semaphore = self.value(op.args[3]) if len(op.args) > 3 else None
        self.copies += 1
        if not isinstance(size, int):
            self.unsized += 1
            size = 0
        moved = size * GRANULE
        done = self.time + self.latency
        if "hbm" in op.code:
            self.hbm_free = max(done, self.hbm_free) + moved / self.bytes_per_cycle
            self.hbm_bytes += moved
            done = self.hbm_free
        self.queues[semaphore].append(done)

    def _wait(self, op: Op) -> None:
        queue = self.queues.get(self.value(op.args[0])) if op.args else None
        if queue:
            done = queue.popleft()
            if done > self.time:
                self.stall += done - self.time
                self.time = done


def simulate(program: tuple[tuple[Op, ...], ...], clock_hz: float, hbm_bytes_per_s: float) -> Run:
    """Run a kernel's scalar code once.

    Args:
        program: of `listing.parse`.
        clock_hz: cycles a second.
        hbm_bytes_per_s: bandwidth.
    """
    size = len(program)
    machine = _Machine(hbm_bytes_per_s / clock_hz, LATENCY_S * clock_hz)
    following = [size] * (size + 1)  # the next bundle that steers anything, from here on
    for i in range(size - 1, -1, -1):
        following[i] = i if program[i] else following[i + 1]
    edges = [0] * (size + 2)  # +1 where a run of bundles begins, -1 where it ends
    trips: dict[tuple[int, int], float] = defaultdict(float)
    nested = loops(program)
    at, steps, scale, extrapolated = 0, 0, 1.0, ""
    pending: tuple[int, int] | None = None  # (last delay slot, branch target)

    def advance(end: int) -> None:
        edges[at] += 1
        edges[end] -= 1
        machine.time += end - at

    while at < size:
        stop = size if pending is None else pending[0] + 1
        steering = min(following[at], stop)
        if steering > at:
            advance(steering)
            at = steering
        if at < stop:
            advance(at + 1)
            steps += 1
            taken = machine.run(program[at])
            if taken is not None and pending is None:
                target, branch = taken
                if target <= at:
                    trips[target, at] += 1
                    if steps > MAX_STEPS:
                        outer = not any(first < target and last > at for first, last in nested)
                        known = machine.compared.get(branch.guard.register) if branch.guard and outer else None
                        if known and 0 < known[0] < known[1]:
                            scale = known[1] / known[0]
                            extrapolated = f"loop {target}..{at}: {known[0]} of {known[1]} iterations run"
                            break
                        if steps > GIVE_UP:
                            extrapolated = "given up"
                            break
                pending = (min(at + DELAY_SLOTS, size - 1), target)
            at += 1
        if pending is not None and at == pending[0] + 1:
            at, pending = pending[1], None

    visits, running = [], 0
    for i in range(size):
        running += edges[i]
        visits.append(running * scale)
    return Run(
        cycles=machine.time * scale,
        stall_cycles=machine.stall * scale,
        visits=tuple(visits),
        trips={k: v * scale for k, v in trips.items()},
        hbm_bytes=machine.hbm_bytes * scale,
        copies=machine.copies * scale,
        unsized_copies=machine.unsized,
        unknown_branches=machine.unknown,
        extrapolated=extrapolated,
    )


_COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _compare(code: list[str], args: list[Value]) -> bool | None:
    a, b = (*args, None)[:2] if len(args) < 2 else args[:2]
    if isinstance(a, Address) and isinstance(b, Address) and a.allocation == b.allocation:
        return _COMPARISONS[code[1]](a.offset, b.offset)
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    if code[2].startswith("u"):
        a, b = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    return _COMPARISONS[code[1]](a, b)


def _logic(base: str, args: list[Value]) -> bool | None:
    known = [None if a is None else bool(a) for a in args]
    if base in ("pmov", "pneg"):
        return known[0] if base == "pmov" or known[0] is None else not known[0]
    if base in ("pand", "pnand"):
        result = False if False in known else None if None in known else True
    elif base in ("por", "pnor"):
        result = True if True in known else None if None in known else False
    elif base == "pxor":
        result = None if None in known else known[0] != known[1]
    else:
        return None
    return result if result is None or base not in ("pnand", "pnor") else not result


_ARITHMETIC = {
    "sadd": lambda a, b: a + b,
    "scalar_lea": lambda a, b: a + b,
    "ssub": lambda a, b: a - b,
    "smul": lambda a, b: a * b,
    "sand": lambda a, b: a & b,
    "sor": lambda a, b: a | b,
    "sxor": lambda a, b: a ^ b,
    "sshll": lambda a, b: a << b if 0 <= b < 32 else 0,
    "sshrl": lambda a, b: (a & 0xFFFFFFFF) >> b if 0 <= b < 32 else 0,
    "sshra": lambda a, b: a >> min(max(b, 0), 31),
    "smin": min,
    "smax": max,
}


def _arithmetic(base: str, args: list[Value]) -> Value:
    if base not in _ARITHMETIC or len(args) < 2 or None in args[:2]:
        return None
    a, b = args[:2]
    if isinstance(a, Address) or isinstance(b, Address):
        base_address, offset = (a, b) if isinstance(a, Address) else (b, a)
        if base in ("sadd", "scalar_lea") and isinstance(base_address, Address) and isinstance(offset, int):
            return Address(base_address.allocation, base_address.offset + offset)
        return None
    return signed(_ARITHMETIC[base](int(a), int(b)))  # type: ignore[arg-type]
