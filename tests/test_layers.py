"""The layering rule, private imports in one place a package, and an ARCHITECTURE that names the files there are."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: From left to right; a package may import those before it.
PACKAGES = ("bridge", "pallas_core", "frontend_triton_compat", "inductor_backend")
FILES = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
PRIVATE = re.compile(r"^(jax\._src|jaxlib|torch\._(?!dynamo\.(reset|config)\b)|triton\._)")
#: Files that may reach private names beside the compat.py of each package; they import nothing of ours.
ALSO_PRIVATE = {"pallas_core/offline/worker.py", "pallas_core/offline/gpu_worker.py"}
#: What translates and compiles never sees a tensor: torch is imported in bridge, inductor_backend and the launchers.
WITHOUT_TORCH = (
    *(f"frontend_triton_compat/{name}" for name in ("parse/", "language/", "schedule/", "emit/", "ir.py", "types.py")),
    *(f"frontend_triton_compat/{name}.py" for name in ("spec", "show", "dims", "affine", "forms", "demand", "access")),
    *(f"pallas_core/{name}" for name in ("offline/", "schedule/", "targets/", "laws.py", "budget.py", "lowering.py")),
    *(f"pallas_core/{name}.py" for name in ("call", "function", "grid", "refs", "captures", "index_maps", "reasons")),
)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, absolute, including those inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_leftward(package):
    right = PACKAGES[PACKAGES.index(package) + 1 :]
    for path in (ROOT / package).rglob("*.py"):
        wrong = {m for m in imports(path) if m.split(".")[0] in right}
        assert not wrong, f"{name(path)} imports {sorted(wrong)}"


def test_diagnostics_know_neither_torch_nor_jax():
    for path in (ROOT / "bridge" / "diagnostics").glob("*.py"):
        wrong = {m for m in imports(path) if m.split(".")[0] in ("torch", "jax", "jaxlib", "triton", "numpy")}
        assert not wrong, f"{name(path)} imports {sorted(wrong)}"


def test_private_names_come_through_compat():
    for path in FILES:
        private = {m for m in imports(path) if PRIVATE.match(m)}
        if private and path.name != "compat.py":
            assert name(path) in ALSO_PRIVATE, f"{name(path)} imports {sorted(private)}; go through compat.py"


def test_what_translates_never_sees_a_tensor():
    seen = set()
    for path in FILES:
        room = next((r for r in WITHOUT_TORCH if name(path).startswith(r)), None)
        if room:
            seen.add(room)
            assert not any(m.split(".")[0] == "torch" for m in imports(path)), f"{name(path)} imports torch"
    assert seen == set(WITHOUT_TORCH)


def test_import_linter_agrees():
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if linter is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_architecture_names_every_file():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 120
    words = set(re.findall(r"[\w*/]+\.py|\w+/", text))
    for path in FILES:
        inside = path.relative_to(ROOT).parts[1:]
        if path.name == "__init__.py" and len(inside) == 1:
            continue
        by_folder = any(f"{folder}/" in words for folder in inside[:-1])
        known = path.name in words or (path.name.startswith("rows_") and "rows_*.py" in words)
        assert known or (by_folder and path.name == "__init__.py") or inside[0] in ("cli", "runtime", "language"), (
            f"ARCHITECTURE.md does not name {name(path)}"
        )


def test_architecture_names_nothing_else():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    names = {p.name for p in [*FILES, *(ROOT / "tests").rglob("*.py")]}
    for word in re.findall(r"\b([\w/]+\.py)\b", text):
        assert Path(word).name in names, f"ARCHITECTURE.md names {word}"
