"""The private corners of torch and jax that the Inductor backend needs, in one place.

Input: public-looking arguments. Output: what the private entry returns. Law: no other file of this package touches
`torch._inductor`, `torch._functorch`, `torch._dynamo`, `torch._C`, `torch._logging` or `jax._src`; a version bump is
read here first. Importing this file imports neither Inductor nor jax.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any, cast

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import clone_preserve_strides, elementwise_dtypes
from torch.utils import _pytree as pytree

from inductor_backend import decompositions

__all__ = [
    "PROMOTION",
    "HigherOrderOperator",
    "OpOverload",
    "copy_all",
    "elementwise_dtypes",
    "empty_strided",
    "evaluated",
    "front_half",
    "increment_version",
    "is_known_backend",
    "is_zero_tensor",
    "load_prims",
    "operator_named",
    "output_code_log",
    "pytree",
    "register_backend",
]

#: torch._foreach_copy_: several copies in one call.
copy_all = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]

#: Tells autograd that tensors of a list were written to, by somebody whom torch does not see.
increment_version = torch._C._increment_version

#: A tensor of (shape, strides, dtype) without contents: a fourth of the time of torch.empty_strided.
empty_strided = torch._C._dynamo.guards._empty_strided_cpu  # pyright: ignore[reportAttributeAccessIssue]

#: Whether a tensor is one of autograd's zeros without memory.
is_zero_tensor = torch.Tensor._is_zerotensor


def is_known_backend(name: str) -> bool:
    """Whether Dynamo has a backend of this name, or will find it among the installed entry points.

    Registering a name that an entry point carries as well would make Dynamo's own look-up fail on a duplicate.
    """
    from torch._dynamo.backends import registry

    installed = entry_points(group="torch_dynamo_backends")
    return name in registry._COMPILER_FNS or any(e.name == name for e in installed)


def register_backend(name: str, backend: Callable[..., Any]) -> None:
    """Register a Dynamo backend."""
    from torch._dynamo.backends import registry

    registry.register_backend(compiler_fn=backend, name=name)


def load_prims() -> None:
    """Import Inductor, so that the prims which the table of operators names exist."""
    with warnings.catch_warnings():
        # torch warns about its own deprecated modules while Inductor is imported; nothing of that is the user's.
        warnings.simplefilter("ignore")
        import torch._inductor.compile_fx
        import torch._inductor.inductor_prims  # noqa: F401


def front_half(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    inner_compile: Callable[..., Any],
    undecomposed: frozenset[str],
    cache: AbstractContextManager[None] | None = None,
) -> Callable[..., Any]:
    """Inductor's front half (pre-grad passes, AOTAutograd, decompositions, partitioner) with our inner compiler.

    AOTAutograd's cache does not know `inner_compile`: with a shared cache directory it would return Inductor's C++
    artifact for the same graph, so it is off while we compile, unless `cache` makes the key ours. Freezing and the C++
    wrapper would bypass us too.
    Folding of constants makes 0 of ``x * 0`` and x of ``x + zeros``, whatever NaN, infinity or sign x has; conversions
    by way of another half precision are dropped unless `emulate_precision_casts` asks for eager's rounding.

    Args:
        gm: Dynamo's graph.
        inputs: its inputs.
        inner_compile: takes ATen graphs.
        undecomposed: operators that reach it as they are.
        cache: see `inductor_backend.kept.context`.
    """
    load_prims()
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import compile_fx

    _scale_by_floats(gm)
    _own_results_of_scans(gm)
    with (
        functorch_config.patch(enable_autograd_cache=False),
        cache or contextlib.nullcontext(),
        _early_decompositions(decompositions.early()),
        inductor_config.patch(
            cpp_wrapper=False,
            fx_wrapper=False,
            freezing=False,
            joint_graph_constant_folding=False,
            emulate_precision_casts=True,
        ),
    ):
        table = decomposition_table(undecomposed)
        return cast(Any, compile_fx(gm, inputs, inner_compile=inner_compile, decompositions=table))


_SCALINGS = {
    operator.truediv, operator.itruediv, torch.div, torch.divide, torch.true_divide, "div", "divide", "true_divide",
    "div_", "divide_", "true_divide_", operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "multiply",
    "mul_", "multiply_",
}  # fmt: skip


def _scale_by_floats(gm: torch.fx.GraphModule) -> None:
    """Whole numbers that floats are divided or multiplied by become floats, which is the same result.

    Inductor's pattern of attention, ``softmax(q @ k.mT / 3, -1) @ v``, takes a whole number for a size without an
    origin, and Dynamo fails at its guard (torch 2.13).
    """
    for module in gm.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.target not in _SCALINGS or len(node.args) != 2 or node.kwargs:
                continue
            for place, number in enumerate(node.args):
                if type(number) is int and abs(number) <= 1 << 53 and _is_float(node.args[1 - place]):
                    node.update_arg(place, float(number))
        module.recompile()


def _own_results_of_scans(gm: torch.fx.GraphModule) -> None:
    """What a scan's function returns is memory of its own.

    Where the derivative needs a result (tanh, sigmoid, exp), torch saves another name of it, and then refuses the scan
    because results share memory (torch 2.13). The copies cost nothing in a jitted function.
    """
    for module in [m for m in gm.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan):
            inner: Any = module.get_submodule(str(node.args[0].target))
            output = inner.graph.output_node()
            with inner.graph.inserting_before(output):
                results = [inner.graph.call_function(torch.clone, (r,)) if _is_float(r) else r for r in output.args[0]]
            for result, old in zip(results, output.args[0], strict=True):
                if result is not old:
                    result.meta.update(old.meta)
            output.args = (tuple(results),)
            inner.recompile()


def _is_float(node: Any) -> bool:
    example = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return isinstance(example, torch.Tensor) and (example.is_floating_point() or example.is_complex())


@contextlib.contextmanager
def _early_decompositions(entries: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Replace what torch does with operators of composite kind before the table of decompositions is asked.

    Dynamo compiles one graph at a time, in whatever thread; nothing of it stays.
    """
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    found = [(op, key, op.py_kernels[key]) for op in entries for key in keys if key in op.py_kernels]
    try:
        for op, key, plain in found:
            op.py_kernels[key] = functools.partial(entries[op], plain)
            op._dispatch_cache.clear()
        yield
    finally:
        for op, key, plain in found:
            op.py_kernels[key] = plain
            op._dispatch_cache.clear()


def decomposition_table(undecomposed: frozenset[str]) -> dict[Any, Any]:
    """Inductor's decompositions without those of the operators in `undecomposed`, and with ours."""
    from torch._inductor.decomposition import select_decomp_table

    table = {op: how for op, how in select_decomp_table().items() if str(op) not in undecomposed}
    return table | decompositions.ours(table)


def traced(run: Callable[..., Any], examples: Sequence[Any], undecomposed: frozenset[str]) -> torch.fx.GraphModule:
    """A function of example tensors without contents as a graph of decomposed operators, sizes as they are."""
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    table = decomposition_table(undecomposed)
    table[_scatter_operator()] = _zeros_and_scatter
    mode = detect_fake_mode(list(examples))
    with torch.no_grad(), _no_unrolled_vmap(), mode or contextlib.nullcontext():
        return make_fx(run, decomposition_table=table)(*examples)


@contextlib.contextmanager
def _no_unrolled_vmap() -> Iterator[None]:
    """An operator without a rule for vmap is an error: as a loop over all elements it would take minutes."""
    _functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009  unknown to type checkers
    before = _functorch._is_vmap_fallback_enabled()
    _functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        _functorch._set_vmap_fallback_enabled(before)


def _scatter_operator() -> OpOverload:
    """The operator that sums the gradients of a tensor which attention's functions have read, element by element."""
    import torch._dynamo._trace_wrapped_higher_order_op  # registers it

    return torch.ops.flex_lib.zeros_and_scatter.default


def _zeros_and_scatter(shape: Any, indices: Any, vals: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index_put(vals.new_zeros(shape), indices, vals, accumulate=True)


def eager_form(target: HigherOrderOperator) -> Callable[..., Any]:
    """What a higher-order operator does on plain tensors."""
    return target.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]


def number_of(t: torch.Tensor) -> Any:
    """The number that a tensor of one element holds; None for an example without contents."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    if isinstance(t, FakeTensor):
        return None
    with unset_fake_temporarily():
        return t.item()


def fills_new_memory() -> bool:
    """Whether eager fills memory that nothing was written to."""
    from torch.utils import deterministic

    return torch.are_deterministic_algorithms_enabled() and cast(Any, deterministic).fill_uninitialized_memory


def output_code_log() -> logging.Logger:
    """The logger behind TORCH_LOGS=output_code."""
    from torch._logging import getArtifactLogger  # pyright: ignore[reportPrivateImportUsage]

    return getArtifactLogger("torch._inductor.codecache", "output_code")


def evaluated(eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of one equation of a jaxpr."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    results = eqn.primitive.bind(*functions, *operands, **params)
    return results if eqn.primitive.multiple_results else [results]


def operator_named(name: str) -> OpOverload:
    """The operator that prints as ``aten.add.Tensor``."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def functional_form(target: Any) -> bool:
    """Whether a node's target is the functional form of an operator that writes to its arguments."""
    return getattr(target, "__name__", "") == "auto_functionalized_v2" and isinstance(target, HigherOrderOperator)


def views_of(op: Any, kwargs: dict[str, Any], bases: Sequence[Any]) -> list[Any]:
    """The views of `bases` that the functional form of an operator has written to."""
    from torch._higher_order_ops.auto_functionalize import get_mutable_args, read_view_information_from_args

    names, types = get_mutable_args(op)
    found = read_view_information_from_args(names, types, dict(kwargs), list(bases))
    return [found[name] for name in names]


def regenerated(view: Any, examples: Sequence[Any]) -> Any:
    """The view as an example tensor."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    mode = next((e.fake_mode for e in examples if hasattr(e, "fake_mode")), None)
    numbers = {n: v.meta["val"] for n, v in vars(view).items() if isinstance(v, torch.fx.Node)}
    lists = {
        n: [x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in v]
        for n, v in vars(view).items()
        if isinstance(v, (list, tuple, torch.Size))
    }
    view = copy.copy(view)
    vars(view).update({**numbers, **lists})
    if mode is None:
        with unset_fake_temporarily():
            return view.regenerate_view(list(examples))
    with mode:
        return view.regenerate_view(list(examples))


def fake_mode_of(examples: Sequence[Any]) -> Any:
    """The mode that example tensors with symbolic sizes were made in, or None."""
    return next((e.fake_mode for e in examples if hasattr(e, "fake_mode") and e.fake_mode.shape_env is not None), None)


def memory_of(example: Any) -> Any:
    """What two example tensors have in common that share a storage."""
    return example.untyped_storage()._cdata if isinstance(example, torch.Tensor) else None


def clone_as_it_lies(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, whatever they are."""
    return clone_preserve_strides(t)
