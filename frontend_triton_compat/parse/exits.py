"""Ways out of loops and functions: `break`, `continue` and `return`, also where only a run-time value decides.

Input: a frame and its statements. Output: one flag per scope that can be left, among the frame's variables. Law: a flag
is False, True, or a run-time int1 where some programs have left and others have not; what follows in the scope runs for
the others only, and what a variable holds is what Python would give it on the path that was taken.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.language import operators
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.calls import Calls

#: Where a function keeps what it returns until every path has come to its end.
RETURNED = "$value"
_SCOPE_OF = {"return": "function", "break": "loop", "continue": "turn"}


@dataclass(frozen=True)
class Scope:
    """A function, a loop or one turn of a loop; `flag` is the variable that says whether it was left."""

    kind: str
    flag: str


class Exits(Calls):
    """Keeps the scopes around the current statement."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.scopes: list[Scope] = []

    def enter(self, kind: str) -> Scope:
        """Open a scope that nobody has left yet."""
        scope = Scope(kind, f"${kind}{len(self.scopes)}")
        self.scopes.append(scope)
        self.env[scope.flag] = False
        return scope

    def close(self, scope: Scope) -> None:
        """Close the innermost scope: those that left it go on behind it."""
        self.scopes.remove(scope)
        self.env.pop(scope.flag, None)

    def leave(self, word: str) -> None:
        """A statement `return`, `break` or `continue` is reached."""
        scope = next(s for s in reversed(self.scopes) if s.kind == _SCOPE_OF[word])
        self.env[scope.flag] = True

    def pending(self) -> bool | tensor:
        """Whether the current place was left behind: True, False, or a run-time int1."""
        flags = [self.env[s.flag] for s in self.scopes]
        if any(f is True for f in flags):
            return True
        some = [f for f in flags if f is not False]
        out: bool | tensor = False
        for flag in some:
            out = flag if out is False else operators.or_(out, flag)
        return out

    def returned(self, env: dict[str, Any]) -> bool:
        """Whether those whose variables these are have returned from the function."""
        return env.get(self.scopes[0].flag) is True


def leaves(node: ast.AST, of: tuple[str, ...] = ("return", "break", "continue")) -> bool:
    """Whether a statement holds a return, or a break or continue of a loop around it."""

    def search(n: ast.AST, loop: bool) -> bool:
        if isinstance(n, (ast.FunctionDef, ast.Lambda)):
            return False
        word = type(n).__name__.lower()
        if word in of and (word == "return" or not loop) and word in _SCOPE_OF:
            return True
        inner = loop or isinstance(n, (ast.For, ast.While))
        if isinstance(n, (ast.For, ast.While)):  # `else` of a loop is outside of it
            return any(search(c, True) for c in n.body) or any(search(c, loop) for c in n.orelse)
        return any(search(c, inner) for c in ast.iter_child_nodes(n))

    return search(node, False)


def always_leaves(statements: list[Any]) -> bool:
    """Whether control certainly does not come to the end of these statements."""
    for s in statements:
        if isinstance(s, (ast.Return, ast.Break, ast.Continue)):
            return True
        if isinstance(s, ast.If) and s.orelse and always_leaves(s.body) and always_leaves(s.orelse):
            return True
    return False
