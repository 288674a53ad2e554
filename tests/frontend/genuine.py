"""Ask the real Triton front end, in a process of its own: does it accept a kernel, and which types does it give?

Input: a Python file of kernels written against `triton`, and their signatures. Output: for each kernel, what its
`tl.static_print("T", ...)` calls printed, or the message with which it was refused. No GPU is needed: the kernel is
taken to Triton's own IR only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys

TYPES = {
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp32": "fp32",
    "fp64": "fp64",
}


def normal(text: str) -> list[str]:
    """The printed lines with shapes written alike by both implementations."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("T ")]
    return [
        re.sub(r"constexpr\[(\d+)\]|'(\d+)'", lambda m: m[1] or m[2], line)
        .replace("(", "[")
        .replace(")", "]")
        .replace(",]", "]")
        for line in lines
    ]


def main(path: str, wanted: str) -> None:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    spec = importlib.util.spec_from_file_location("probes", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["probes"] = module
    spec.loader.exec_module(module)
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    answers = {}
    for name, (signature, constexprs) in json.loads(open(wanted).read()).items():
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                source = ASTSource(
                    getattr(module, name),
                    signature,
                    {(k,) if isinstance(k, int) else k: v for k, v in constexprs.items()},
                )
                text = source.make_ir(target, options, functions, modules, context)
            assert text.verify() if hasattr(text, "verify") else True
            answers[name] = {"ok": True, "types": normal(out.getvalue())}
        except Exception as problem:
            cause = problem
            while cause.__cause__ is not None:
                cause = cause.__cause__
            answers[name] = {"ok": False, "why": f"{type(problem).__name__}: {problem} <- {cause}"[-400:]}
    print("@@" + json.dumps(answers))


def ask(path: str, wanted: dict, tmp_path) -> dict:
    """Answers of the real front end for the kernels of a file."""
    request = tmp_path / "wanted.json"
    request.write_text(json.dumps(wanted))
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, __file__, str(path), str(request)], capture_output=True, text=True, timeout=240, env=env
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[-1][2:])


if __name__ == "__main__":
    main(*sys.argv[1:])
