"""The private corners of jax that `pallas_core` needs, and the names that differ between jax 0.10 and 0.12.

Everything else in this package sees plain values: `PallasCall` and `Operand` describe a traced `pallas_call`
without a jax type in them. A version bump of jax touches this file (and the worker's three lines), nothing else.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax._src import config as jax_config
from jax._src import core as jax_core
from jax._src import source_info_util
from jax._src.pallas import core as pallas_core
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax._src.state import indexing as state_indexing
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bridge.compat import cpu_device, quiet_cpu_start
from bridge.diagnostics import Where
from bridge.diagnostics.where import is_ours

#: Identity on a tangent that can't be transposed; its parameter `refuse` makes the exception to raise then.
_tangent_p = Primitive("pallas_core_tangent")
_tangent_p.def_impl(lambda tangent, *, refuse: tangent)
_tangent_p.def_abstract_eval(lambda tangent, *, refuse: tangent)
batching.defvectorized(_tangent_p)
mlir.register_lowering(_tangent_p, lambda ctx, tangent, *, refuse: [tangent])


def _transpose_tangent(cotangent: Any, tangent: Any, *, refuse: Callable[[], Exception]) -> Any:
    raise refuse()


ad.deflinear2(_tangent_p, _transpose_tangent)


def forward_only(tangent: Any, refuse: Callable[[], Exception]) -> Any:
    """The tangent itself; who transposes it, to get a gradient, gets the exception that `refuse` makes."""
    return _tangent_p.bind(tangent, refuse=refuse)


#: Types of what names a memory: the TPU's, Pallas' own, and jax's for whole arrays.
MEMORY_SPACES = (type(pltpu.VMEM), type(pl.ANY), jax.memory.Space)
#: Primitives that index a Ref, with the place of the Ref's transforms tree in their parameters.
_REF_PRIMITIVES = ("get", "swap", "addupdate", "load", "masked_load", "masked_swap")


# ------------------------------------------------------------------------------------------- tracing modes
def x64(on: bool) -> contextlib.AbstractContextManager[None]:
    """Scoped 64-bit mode, on or off."""
    return jax.enable_x64(on)


def is_x64() -> bool:
    """Whether 64-bit mode is on in this context."""
    return bool(jax_config.enable_x64.value)


@contextlib.contextmanager
def refuse_64_bit_dtypes() -> Iterator[None]:
    """While tracing with x64 off, asking for a 64-bit dtype raises where it is written instead of being narrowed."""
    with jax_config.explicit_x64_dtypes(jax_config.ExplicitX64Mode.ERROR):
        yield


@contextlib.contextmanager
def narrowing() -> Iterator[None]:
    """While tracing with x64 off, a 64-bit dtype that is asked for silently means the 32-bit one."""
    with jax_config.explicit_x64_dtypes(jax_config.ExplicitX64Mode.WARN), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield


def is_64_bit_request(exc: BaseException) -> bool:
    """Whether an exception is the one that `refuse_64_bit_dtypes` provokes."""
    return isinstance(exc, ValueError) and str(exc).startswith("Explicitly requested dtype")


@contextlib.contextmanager
def abstract_tpu(device_kind: str) -> Iterator[None]:
    """Lowering in here sees a TPU of this kind, though none is attached."""
    mesh = jax.sharding.AbstractMesh((1,), ("_",), abstract_device=jax.sharding.AbstractDevice(device_kind, 1, "tpu"))
    with jax.sharding.use_abstract_mesh(mesh):
        yield


@dataclass(frozen=True, repr=False)
class _AbstractGpu(jax.sharding.AbstractDevice):
    """A GPU by name; Mosaic GPU's lowering asks it for its compute capability."""

    compute_capability: str = "9.0"


@contextlib.contextmanager
def abstract_gpu(board: str, capability: str) -> Iterator[None]:
    """Lowering in here sees a GPU of this kind, though none is attached."""
    device = _AbstractGpu(board, 1, "cuda", capability)
    mesh = jax.sharding.AbstractMesh((1,), ("_",), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        yield


def is_tracing(values: Sequence[Any]) -> bool:
    """Whether any value is a tracer: the call happens inside jit, grad or vmap."""
    return any(isinstance(v, jax_core.Tracer) for v in values)


def is_library_frame(filename: str) -> bool:
    """Whether jax counts a file as its own."""
    return "/jaxlib/" in filename or not source_info_util.is_user_filename(filename)


def is_layout_mismatch(exc: BaseException) -> bool:
    """Whether an ahead-of-time executable refused an argument for its memory layout."""
    return isinstance(exc, ValueError) and "input layouts that disagree" in str(exc)


def bytecode(lowered: jax.stages.Lowered) -> bytes:
    """The StableHLO module of a lowering as MLIR bytecode, locations included."""
    buffer = io.BytesIO()
    module: Any = lowered.compiler_ir("stablehlo")
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


# ------------------------------------------------------------------------------------ a traced pallas_call
@dataclass(frozen=True)
class Operand:
    """One input, output or scratch buffer of a traced `pallas_call`.

    Attributes:
        kind: ``"prefetch"``, ``"input"``, ``"output"`` or ``"scratch"``.
        name: as jax names it (``x``, ``args[0]``, ``outputs[0]``, ``scratch[0]``).
        index: position among operands of its kind.
        array_shape: shape of the whole array (of the buffer for scratch).
        dtype: numpy dtype; None for semaphores.
        block_shape: extent of the block in every dimension of the array; squeezed dimensions are 1.
        squeezed: per dimension, whether the kernel does not see it.
        blocked: per dimension, whether the index map counts in blocks (False: in elements).
        memory_space: ``"vmem"``, ``"smem"``, ``"any"``, ``"semaphore"`` ...
        buffers: how many copies of a block are held; None when the pipeline decides.
        index_map: the traced index map, for `index_maps.evaluate`; None for scratch.
    """

    kind: str
    name: str
    index: int
    array_shape: tuple[int, ...]
    dtype: np.dtype | None
    block_shape: tuple[int, ...]
    squeezed: tuple[bool, ...]
    blocked: tuple[bool, ...]
    memory_space: str
    buffers: int | None = None
    index_map: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class PallasCall:
    """A traced `pallas_call`: its grid, operands, aliases and kernel.

    Attributes:
        name: the kernel's name.
        where: the user's line that made the call.
        grid: static grid; a dynamic dimension is None.
        operands: prefetch operands, inputs, outputs, scratch, in that order.
        aliases: pairs (input position, output position).
        vmem_limit: ``vmem_limit_bytes`` asked for, or None.
        semantics: ``dimension_semantics`` asked for, as strings, or ().
        kernel: the kernel's jaxpr.
    """

    name: str
    where: Where | None
    grid: tuple[int | None, ...]
    operands: tuple[Operand, ...]
    aliases: tuple[tuple[int, int], ...]
    vmem_limit: int | None
    semantics: tuple[str, ...]
    kernel: Any = field(compare=False, repr=False)

    def of_kind(self, *kinds: str) -> tuple[Operand, ...]:
        """The operands of these kinds."""
        return tuple(o for o in self.operands if o.kind in kinds)


def frame_where(eqn: Any) -> Where | None:
    """The user's place of a jaxpr equation: its innermost frame outside jax and jaxlib."""
    traceback = getattr(eqn.source_info, "traceback", None)
    if traceback is None:
        return None
    for frame in source_info_util.user_frames(traceback):
        if is_library_frame(frame.file_name) or is_ours(frame.file_name):
            continue
        same_line = frame.end_line in (0, frame.start_line)
        col = frame.start_column + 1 if frame.end_column else 0
        end = frame.end_column + 1 if col and same_line else 0
        return Where(frame.file_name, frame.start_line, col, end, frame.function_name)
    return None


def sub_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs held in an equation's parameters."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def located(jaxpr: Any, outer: Where | None = None) -> Iterator[tuple[Any, Where | None]]:
    """Every equation of a jaxpr, nested ones included, with the user's place (the enclosing one's if it has none)."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        where = frame_where(eqn) or outer
        yield eqn, where
        for inner in sub_jaxprs(eqn):
            yield from located(inner, where)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, nested ones included, in order."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for inner in sub_jaxprs(eqn):
            yield from equations(inner)


def pallas_calls(jaxpr: Any) -> tuple[PallasCall, ...]:
    """Every `pallas_call` in a jaxpr, in order."""
    return tuple(_describe(eqn) for eqn in equations(jaxpr) if eqn.primitive.name == "pallas_call")


def _space_name(space: Any) -> str:
    if space is None:
        return "default"
    value = getattr(space, "value", space)
    return str(value).lower()


def _dim(dim: Any) -> tuple[int, bool, bool]:
    """(extent, squeezed, counted in blocks) of one block dimension."""
    if dim is None or isinstance(dim, pl.Squeezed):
        return 1, True, True
    if isinstance(dim, pl.Blocked):
        return dim.block_size, False, True
    if isinstance(dim, int):
        return dim, False, True
    return int(getattr(dim, "block_size", 1)), False, False


def _describe(eqn: Any) -> PallasCall:
    params = eqn.params
    mapping = params["grid_mapping"]
    operands: list[Operand] = []
    kernel = params["jaxpr"]
    for i in range(mapping.num_index_operands):
        aval = kernel.invars[i].aval
        operands.append(_buffer("prefetch", f"prefetch[{i}]", i, aval))
    for position, block in enumerate(mapping.block_mappings):
        is_input = position < mapping.num_inputs
        dims = [_dim(d) for d in block.block_shape]
        operands.append(
            Operand(
                kind="input" if is_input else "output",
                name=str(block.origin),
                index=position if is_input else position - mapping.num_inputs,
                array_shape=tuple(block.array_aval.shape),
                dtype=np.dtype(block.array_aval.dtype),
                block_shape=tuple(d[0] for d in dims),
                squeezed=tuple(d[1] for d in dims),
                blocked=tuple(d[2] for d in dims),
                memory_space=_space_name(block.transformed_block_aval.memory_space),
                buffers=getattr(block.pipeline_mode, "buffer_count", None),
                index_map=block.index_map_jaxpr,
            )
        )
    for i, aval in enumerate(mapping.scratch_avals):
        operands.append(_buffer("scratch", f"scratch[{i}]", i, aval))
    compiler = params.get("compiler_params")
    if isinstance(compiler, dict):  # keyed by backend in some versions
        compiler = next(iter(compiler.values()), None)
    semantics = getattr(compiler, "dimension_semantics", None) or ()
    grid = tuple(g if isinstance(g, int) else None for g in mapping.grid)
    return PallasCall(
        name=str(getattr(params.get("name_and_src_info"), "name", "") or params.get("name") or "kernel"),
        where=frame_where(eqn),
        grid=grid,
        operands=tuple(operands),
        aliases=tuple((int(a), int(b)) for a, b in params.get("input_output_aliases", ())),
        vmem_limit=getattr(compiler, "vmem_limit_bytes", None),
        semantics=tuple(_space_name(s) for s in semantics),
        kernel=kernel,
    )


def _buffer(kind: str, name: str, index: int, aval: Any) -> Operand:
    inner = getattr(aval, "inner_aval", aval)
    shape = tuple(getattr(inner, "shape", ()))
    space = _space_name(getattr(aval, "memory_space", None))
    try:
        dtype = np.dtype(inner.dtype)
    except TypeError:  # semaphore dtypes are not numpy's
        dtype, space = None, "semaphore"
    flat = (False,) * len(shape)
    return Operand(kind, name, index, shape, dtype, shape, flat, flat, space, 1)


# ---------------------------------------------------------------------------------------- questions on kernels
def ref_accesses(eqn: Any, values: Sequence[Any]) -> Iterator[tuple[Any, int, int, bool]]:
    """The indices with which an equation reads or writes a Ref, one a dimension.

    Args:
        eqn: of a kernel.
        values: per input of the equation, its value where it is known (None where it is not).

    Yields:
        The index (a start for a slice; None when unknown), how far the access reaches beyond it, the Ref's extent, and
        whether a mask may leave elements out.
    """
    if eqn.primitive.name not in _REF_PRIMITIVES:
        return
    if (tree := eqn.params.get("args_tree")) is not None:
        parts = tree.unflatten([_UNKNOWN if v is None else v for v in values])
        masked = len(parts) > 2 and any(p is not None for p in parts[2:])
    else:
        tree = next((eqn.params[n] for n in ("tree", "transforms_treedef") if n in eqn.params), None)
        if tree is None or not hasattr(tree, "unflatten"):
            return
        leaves = [_UNKNOWN if v is None else v for v in values]
        parts, masked = tree.unflatten(leaves[len(leaves) - tree.num_leaves :]), False
    for indexer in _indexers(parts):
        for index, extent in zip(indexer.indices, indexer.shape):
            reach = 0
            if isinstance(index, pl.Slice):
                if not isinstance(index.size, int):
                    continue
                index, reach = index.start, max(index.size - 1, 0) * index.stride
            if index is not _UNKNOWN and isinstance(extent, int):
                yield index, reach, extent, masked


#: In place of a value that is not known before the kernel runs.
_UNKNOWN = object()


def _indexers(tree: Any) -> Iterator[Any]:
    is_leaf = lambda x: isinstance(x, state_indexing.NDIndexer)
    for leaf in jax.tree_util.tree_leaves(tree, is_leaf=is_leaf):
        if is_leaf(leaf):
            yield leaf


def wide_values(call: PallasCall) -> Iterator[tuple[str, Where | None]]:
    """64-bit values inside a kernel: (dtype name, the user's place)."""
    for eqn, where in located(call.kernel, call.where):
        for out in eqn.outvars:
            dtype = str(getattr(out.aval, "dtype", None))
            if dtype in ("int64", "uint64", "float64", "complex64", "complex128"):
                yield dtype, where


def find_primitive(jaxpr: Any, name: str) -> Where | None:
    """The user's place of the first equation with this primitive inside a pallas_call, else anywhere."""
    for call in pallas_calls(jaxpr):
        for eqn, where in located(call.kernel, call.where):
            if eqn.primitive.name == name:
                return where
    return next((where for e, where in located(jaxpr) if e.primitive.name == name), None)


def evaluate_by_jax(index_map: Any, axes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """An index map at many grid points, run by jax on the CPU, outside of any trace that is going on."""
    run = jax_core.jaxpr_as_fun(index_map)
    with jax.ensure_compile_time_eval(), jax.default_device(cpu_device()):
        found = jax.jit(jax.vmap(run))(*axes) if axes else jax.jit(run)()
        return [np.asarray(v) for v in found]


def count_flops(jaxpr: Any, times: float = 1.0) -> float:
    """Floating point operations of the dots in a traced program: two per multiply-add, grids and loops multiplied out.

    A ``while`` loop of unknown trip count counts once; elementwise work is not counted.
    """
    total = 0.0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = eqn.primitive.name
        if name == "dot_general":
            (contract, _), _ = eqn.params["dimension_numbers"]
            left = eqn.invars[0].aval.shape
            inner = int(np.prod([left[d] for d in contract], dtype=np.int64))
            total += 2.0 * times * inner * int(np.prod(eqn.outvars[0].aval.shape, dtype=np.int64))
            continue
        factor = times
        if name == "pallas_call":
            factor *= float(np.prod([g for g in eqn.params["grid_mapping"].grid if isinstance(g, int)] or [1]))
            total += count_flops(eqn.params["jaxpr"], factor)
            continue
        if name == "scan":
            factor *= eqn.params["length"]
        for inner_jaxpr in sub_jaxprs(eqn):
            total += count_flops(inner_jaxpr, factor)
    return total


def has_platform(kind: str) -> bool:
    """Whether jax has devices of this kind; starts jax quietly."""
    quiet_cpu_start()
    try:
        return any(d.platform in (kind, {"gpu": "cuda"}.get(kind, kind)) for d in jax.devices())
    except RuntimeError:  # no backend at all
        return False


def is_inside_kernel() -> bool:
    """Whether a kernel is being traced here, so that there is a grid to ask about."""
    environment = pallas_core._pallas_tracing_env
    return environment.grid_context is not None or bool(environment.grid_env_stack)


@contextlib.contextmanager
def interpreted_tpu(**options: Any) -> Iterator[None]:
    """Within this context, TPU kernels run on the TPU interpreter (``detect_races``, ``uninitialized_memory`` ...)."""
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(**options)):
        yield


def races_found() -> bool | None:
    """Whether the TPU interpreter's last run saw a race; None when this jax can't say."""
    races = getattr(interpret_pallas_call, "races", None)
    return None if races is None else bool(races.races_found)


def reset_interpreter() -> None:
    """Forget the TPU interpreter's state; needed after a run that raised."""
    pltpu.reset_tpu_interpret_mode_state()


def with_name(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A new function object that calls `fn`: jax keys its trace caches by function identity."""

    def call(*args: Any) -> Any:
        return fn(*args)

    call.__name__ = call.__qualname__ = name
    return call
