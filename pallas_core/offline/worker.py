"""The process that holds the TPU compiler: reads StableHLO modules on stdin, answers on a private pipe.

Runs as a script with nothing of this project imported, so that it starts fast and a crash takes only itself along.
Protocol: pickled dicts, each behind its length in 8 bytes. A request has ``module`` (MLIR bytecode) and ``topology``;
an answer has ``ok`` and either the program's text and figures or the compiler's message. Flags are read once per
process: whoever starts it decides on ``LIBTPU_INIT_ARGS`` (schedule dumps) beforehand.
"""

import os
import pickle
import struct
import sys
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


def _compile(request, topologies):
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]
    from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental.topologies import get_topology_desc

    name = request["topology"]
    if name not in topologies:
        topologies[name] = get_topology_desc(name, platform="tpu").devices[0]
    device = topologies[name]
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[device]]))
    with mlir.make_ir_context():
        module = ir.Module.parse(request["module"])
        start = time.perf_counter()
        executable = compiler.backend_compile_and_load(device.client, module, _jax.DeviceList((device,)), options, [])
        seconds = time.perf_counter() - start
    stats = executable.get_compiled_memory_stats()
    memory = {k: getattr(stats, k) for k in dir(stats) if k.endswith("_in_bytes") and not k.startswith("host")}
    cost = executable.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    text = "\n\n".join(m.to_string() for m in executable.hlo_modules())
    return {"ok": True, "text": text, "memory": memory, "cost": dict(cost or {}), "seconds": seconds}


def main():
    """Answer requests until stdin closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libtpu prints: keep it out of the answers
    topologies = {}
    while (request := _read(sys.stdin.buffer)) is not None:
        try:
            answer = _compile(request, topologies)
        except Exception as exc:  # the compiler's verdict is the answer, whatever its type
            answer = {"ok": False, "type": type(exc).__name__, "message": str(exc)}
        _write(answers, answer)


if __name__ == "__main__":
    main()
