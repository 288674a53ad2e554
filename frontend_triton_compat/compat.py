"""The private corner of Dynamo that a launch inside a compiled function needs.

Input: Dynamo's variables for a kernel, a grid and arguments. Output: one call of ``torch_pallas::launch`` in the graph
that is traced. Law: no other file of this package touches `torch._dynamo` or `torch._ops`; importing this file does not
import Dynamo, and nothing of Dynamo changes but that it knows one name more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch._ops import HigherOrderOperator

from bridge.compat import is_retyped
from bridge.diagnostics import Where
from bridge.diagnostics.where import is_library, is_ours


class LaunchInGraph(HigherOrderOperator):
    """Stands for a launch where Dynamo traces; nobody else calls it."""

    def __init__(self) -> None:
        super().__init__("torch_pallas_launch")

    def __call__(self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What Dynamo replaces by `LaunchVariable`."""
        raise NotImplementedError("launches reach this in Dynamo only")


#: Called with (kernel, grid, args, kwargs) by what Dynamo traces.
in_graph = LaunchInGraph()


def prepare() -> bool:
    """Tell Dynamo about `in_graph`. It calls this while it traces, and takes the result for a constant."""
    from torch._dynamo.variables import higher_order_ops

    table: dict[str, Any] = higher_order_ops._hop_name_to_variable_class
    if in_graph.__name__ not in table:
        table[in_graph.__name__] = _variable()
    return True


prepare._dynamo_marked_constant = True  # what torch.compiler.assume_constant_result sets, after importing Dynamo


def users_line() -> Where | None:
    """The line of the user's that Dynamo traces now."""
    from torch._guards import TracingContext

    for frame in reversed(TracingContext.extract_stack()):
        if not is_ours(frame.filename) and not is_library(frame.filename):
            return Where(frame.filename, frame.lineno or 0, function=frame.name)
    for frame in reversed(TracingContext.extract_stack()):
        if not is_ours(frame.filename):
            return Where(frame.filename, frame.lineno or 0, function=frame.name)
    return None


def _variable() -> type:
    """The class of Dynamo's variable for `in_graph`; made here, because Dynamo is imported late."""
    import torch
    from torch._dynamo.exc import unimplemented
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.builder import wrap_fx_proxy
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.higher_order_ops import TorchHigherOrderOperatorVariable
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.tensor import SymNodeVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    from frontend_triton_compat.captured import Function, Made, Traced, Tracer, capture, operator
    from frontend_triton_compat.descriptors import TensorDescriptor

    class Dynamo(Tracer):
        """Evaluates the user's functions by tracing them."""

        def __init__(self, tx: Any):
            self.tx = tx
            self.seen: dict[int, tuple[Any, Any]] = {}

        def value(self, variable: Any) -> Any:
            """What a variable stands for, `Traced` in place of tensors and symbolic numbers."""
            variable = variable.realize()
            if isinstance(variable, SymNodeVariable):
                kind = variable.python_type()
                if kind is bool:
                    return bool(variable.evaluate_expr())
                return Traced("number" if kind is int else "float", variable.sym_num, variable)
            if variable.is_tensor():
                return Traced("tensor", variable.as_proxy().node.meta["example_value"], variable)
            if isinstance(variable, BaseListVariable):
                kind = variable.python_type()
                items = [self.value(v) for v in variable.items]
                if hasattr(kind, "_fields"):
                    return kind(*items)
                return tuple(items) if kind not in (list, tuple) else kind(items)
            if isinstance(variable, UserDefinedObjectVariable) and variable.value_type is TensorDescriptor:
                return self.descriptor(variable)
            if isinstance(variable, UserDefinedObjectVariable) and not variable.is_python_constant():
                if variable.source is not None:
                    install_guard(variable.source.make_guard(GuardBuilder.ID_MATCH))
                return self.keep(variable.value, variable)
            return self.keep(variable.guard_as_python_constant(), variable)

        def descriptor(self, variable: Any) -> Any:
            names = ("base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32")
            return Made(TensorDescriptor, tuple(self.value(variable.var_getattr(self.tx, n)) for n in names))

        def keep(self, value: Any, variable: Any) -> Any:
            self.seen[id(value)] = (value, variable)
            return value

        def variable(self, value: Any) -> Any:
            """The way back."""
            if isinstance(value, Traced):
                return value.handle
            if id(value) in self.seen:
                return self.seen[id(value)][1]
            if type(value) in (tuple, list):
                return VariableTracker.build(self.tx, type(value)()).__class__([self.variable(v) for v in value])
            return VariableTracker.build(self.tx, value)

        def evaluate(self, function: Any, named: Mapping[str, Any]) -> Any:
            """As `Tracer.evaluate`, by tracing it."""
            variable = function.variable if isinstance(function, Function) else VariableTracker.build(self.tx, function)
            items = {VariableTracker.build(self.tx, n): self.variable(v) for n, v in named.items()}
            return self.value(variable.call_function(self.tx, [ConstDictVariable(items, dict)], {}))

        def constant(self, number: Traced) -> Any:
            """As `Tracer.constant`, with a guard."""
            return number.handle.evaluate_expr()

    class LaunchVariable(TorchHigherOrderOperatorVariable):
        """``in_graph`` in Dynamo."""

        _HOP_NAME = "torch_pallas_launch"

        def _call_function(self, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            tracer = Dynamo(tx)
            kernel, grid, positional, named = (a.realize() for a in args)
            launched = kernel.value
            if kernel.source is not None:
                install_guard(kernel.source.make_guard(GuardBuilder.ID_MATCH))
            if not isinstance(grid, BaseListVariable | SymNodeVariable) and not grid.is_python_constant():
                size: Any = Function(grid)
            elif callable(size := tracer.value(grid)):
                size = Function(grid)
            found = capture(
                launched,
                size,
                [tracer.value(v) for v in positional.items],
                {k.vt.as_python_constant(): tracer.value(v) for k, v in named.items.items()},
                tracer,
                users_line(),
            )
            if not found.written:
                unimplemented(
                    gb_type="torch-pallas launch without tensors",
                    context=str(launched),
                    explanation="A Triton kernel was launched without a tensor, so there is nothing to trace.",
                    hints=["Launch it outside of the compiled function."],
                )
            written, read = ([self._tensor(tx, t) for t in part] for part in (found.written, found.read))
            plain = [
                v.call_method(tx, "clone", [], {}) if is_retyped(t.example) else v
                for v, t in zip(written, found.written)
            ]
            proxies = [v.as_proxy() for v in plain]
            lists = [[v.as_proxy() for v in read], [t.handle.as_proxy() for t in found.numbers]]
            lists.append([self._as_tensor(tx, t.handle) for t in found.floats])
            tx.output.create_proxy("call_function", operator(len(written)), (found.form.key, *proxies, *lists), {})
            for variable, new in zip(written, plain):
                if new is not variable:
                    variable.call_method(tx, "copy_", [new], {})
            return VariableTracker.build(tx, None)

        @staticmethod
        def _as_tensor(tx: Any, number: Any) -> Any:
            """A symbolic float's proxy as a tensor: torch makes a constant of one that no tensor operator takes."""
            one = wrap_fx_proxy(
                tx, tx.output.create_proxy("call_function", torch.ones, ((),), {"dtype": torch.float64})
            )
            return wrap_fx_proxy(
                tx, tx.output.create_proxy("call_function", torch.mul, (one.as_proxy(), number.as_proxy()), {})
            ).as_proxy()

        @staticmethod
        def _tensor(tx: Any, traced: Traced) -> Any:
            """A tensor's variable, detached: gradients do not flow through a kernel, as outside of a graph."""
            variable = traced.handle
            if torch.is_grad_enabled() and traced.example.requires_grad:
                variable = variable.call_method(tx, "detach", [], {})
            return variable

    return LaunchVariable
