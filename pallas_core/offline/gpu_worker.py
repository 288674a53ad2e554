"""The process that holds XLA's GPU compiler: reads StableHLO modules on stdin, answers on a private pipe.

Runs as a script with nothing of this project imported. Protocol as of worker.py; a request has ``module`` (MLIR
bytecode), ``target_config`` (text of the device's description) and ``texts`` (whether PTX and SASS are wanted); an
answer has ``ok`` and ``log`` (what the compiler printed: ptxas' figures, PTX, SASS) or the compiler's message.
argv: the folder with jax's CUDA plugin ("" when it is importable), the folder of CUDA's tools. One process per
architecture: ptxas' target is fixed at the first compile.
"""

import ctypes
import os
import pickle
import struct
import sys
import tempfile
import time


def _read(stream):
    header = stream.read(8)
    if len(header) < 8:
        return None
    return pickle.loads(stream.read(struct.unpack("<Q", header)[0]))


def _write(stream, value):
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _kernels(module, ir):
    """Every Mosaic GPU kernel in a module, and the dynamic shared memory of each, largest first."""
    found, kernels = [], []

    def launches(op):
        if op.name.endswith("gpu.launch"):
            constants = [
                o.owner for o in op.operands if o.owner.name.endswith("arith.constant") and "i32" in str(o.type)
            ]
            sizes.extend(ir.IntegerAttr(c.attributes["value"]).value for c in constants)
        return ir.WalkResult.ADVANCE

    def calls(op):
        if op.name == "stablehlo.custom_call" and "mosaic_gpu" in str(op.attributes["call_target_name"]):
            config = ir.DictAttr(op.attributes["mhlo.backend_config"])
            kernels.append(ir.StringAttr(config["module"]).value_bytes)
            inner = ir.Module.parse(kernels[-1])
            sizes.clear()
            inner.operation.walk(launches)
            found.append(max(sizes, default=0))
        return ir.WalkResult.ADVANCE

    sizes = []
    module.operation.walk(calls)
    return tuple(kernels), sorted(found, reverse=True)


def _compile(request, devices, logs):
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]
    from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental.mosaic import gpu as mosaic_gpu
    from jax.experimental.topologies import get_topology_desc

    config = request["target_config"]
    if config not in devices:
        found = get_topology_desc(platform="cuda", target_config=config, topology="1x1x1")
        devices[config] = found.devices[0]
    device = devices[config]
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[device]]))
    os.environ["MOSAIC_GPU_DUMP_PTX"] = "1" if request["texts"] else "0"
    with mlir.make_ir_context() as context, tempfile.TemporaryFile() as log:
        module = ir.Module.parse(request["module"])
        mosaic_gpu.dialect.register_dialect(context)  # pyright: ignore[reportPrivateImportUsage]
        context.allow_unregistered_dialects = True
        kernels, shared = _kernels(module, ir)
        here = os.dup(1)
        os.dup2(log.fileno(), 1)  # the compiler prints its figures
        start = time.perf_counter()
        try:
            arguments = (module, _jax.DeviceList((device,)), options, [])
            executable = compiler.backend_compile_and_load(device.client, *arguments)
        finally:
            seconds = time.perf_counter() - start
            ctypes.CDLL(None).fflush(None)
            os.dup2(here, 1)
            os.close(here)
        log.seek(0)
        printed = log.read().decode(errors="replace")
    key = (kernels, request["texts"])
    if "ptxas info" in printed:
        logs[key] = printed
    printed = logs.get(key, printed)  # a kernel that was compiled before is not compiled again, nor printed
    stats = executable.get_compiled_memory_stats()
    memory = {k: getattr(stats, k) for k in dir(stats) if k.endswith("_in_bytes") and not k.startswith("host")}
    text = "\n\n".join(m.to_string() for m in executable.hlo_modules())
    answer = {"ok": True, "text": text, "memory": memory, "cost": {}, "seconds": seconds}
    return answer | {"log": printed, "shared": shared}


def main():
    """Answer requests until stdin closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    site, tools = sys.argv[1:3]
    if site:
        sys.path.insert(0, site)
    import jax.experimental.mosaic.gpu  # noqa: F401 - registers the dialect, and sets a folder of tools that is replaced

    os.environ.update(MOSAIC_GPU_CUDA_ROOT=tools, MOSAIC_GPU_DUMP_PTXAS="1", MOSAIC_GPU_DUMP_SASS="1")
    devices, logs = {}, {}
    while (request := _read(sys.stdin.buffer)) is not None:
        try:
            answer = _compile(request, devices, logs)
        except Exception as exc:  # the compiler's verdict is the answer, whatever its type
            answer = {"ok": False, "type": type(exc).__name__, "message": str(exc)}
        _write(answers, answer)


if __name__ == "__main__":
    main()
