"""Start, keep, feed and replace the worker processes that hold a compiler.

Input: a StableHLO module and a chip. Output: the worker's answer as a dict, plus the folder with the schedule dump
when one was asked for. Law: the user's process loads no compiler and its environment is not touched; a worker that dies
or overruns its time is replaced, and says so in a diagnostic.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pickle
import selectors
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bridge.diagnostics import error
from pallas_core.targets.tpu import TpuChip

#: Passes whose listings the schedule reader needs.
_DUMPS = "packed-bundles-post-ra|pre-delay_hlo-static|final_bundles|deduplication-map"
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def require_libtpu() -> None:
    """Check that the TPU compiler is installed, without loading it.

    Raises:
        Diagnostic: ``missing-dependency``.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise error(
            "missing-dependency",
            "compiling for a TPU needs the package libtpu",
            why="libtpu is the real TPU compiler. It needs no TPU, but it is not installed.",
            do="install the extra:\n    pip install 'torch-pallas[tpu]'",
        )


class Process:
    """One compiler process; started at the first request.

    Attributes:
        name: of the compiler, for messages.
        script: what runs, beside this file.
        slugs: of the diagnostics of a crash and of an overrun.
    """

    name = "the TPU compiler"
    script = "worker.py"
    slugs = ("tpu-compiler-crash", "tpu-compiler-timeout")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def environment(self, folder: Path) -> dict[str, str]:
        """What is set in the process' environment, beside what this process has."""
        raise NotImplementedError

    def arguments(self) -> list[str]:
        """The script's arguments."""
        return []

    def ask(self, request: dict[str, Any], chip: str, timeout: float) -> dict[str, Any]:
        """Send a request and wait for its answer; the caller holds the lock.

        Raises:
            Diagnostic: the process died, or overran its time.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        data = pickle.dumps(request)
        try:
            self._process.stdin.write(struct.pack("<Q", len(data)) + data)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
            return pickle.loads(self._receive(timeout))
        except (BrokenPipeError, EOFError):
            raise self._crashed() from None
        except TimeoutError:
            self.stop()
            raise error(
                self.slugs[1],
                f"compiling for {chip} took longer than {timeout:g} s",
                why=f"{self.name} was stopped; large unrolled loops and very large tiles take minutes.",
                do=["unroll less, or use smaller blocks", "give it longer: timeout=..."],
            ) from None

    def _start(self) -> None:
        self.stop()
        self._folder = Path(tempfile.mkdtemp(prefix="torch-pallas-compiler-"))
        environment = {k: v for k, v in os.environ.items() if k not in ("JAX_ENABLE_X64", "LIBTPU_INIT_ARGS")}
        environment |= self.environment(self._folder)
        with open(self._folder / "stderr", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name(self.script)), *self.arguments()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )

    def _receive(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        size = struct.unpack("<Q", self._read(8, deadline))[0]
        return self._read(size, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        descriptor = self._process.stdout.fileno()  # type: ignore[union-attr]
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while count:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                part = os.read(descriptor, min(count, 1 << 20))
                if not part:
                    raise EOFError
                parts.append(part)
                count -= len(part)
        return b"".join(parts)

    def _crashed(self):
        status = self._process.wait() if self._process else None
        log = (self._folder / "stderr").read_text(errors="replace") if self._folder else ""
        lines = [line for line in log.splitlines() if line.strip()]
        self.stop()
        reason = next(
            (line for line in lines if "Check failed" in line or line.startswith("F0")), lines[-1] if lines else ""
        )
        return error(
            self.slugs[0],
            f"{self.name} died with status {status}",
            why=reason.strip()[:400] or "it left no message.",
            do="simplify the kernel until it compiles; the next compile starts a new compiler process",
        )

    def stop(self) -> None:
        """End the process and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:  # unsent bytes to a dead process
                        pass
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class Worker(Process):
    """The TPU compiler's process."""

    def __init__(self, dump: bool):
        super().__init__()
        self.dump = dump

    def environment(self, folder: Path) -> dict[str, str]:
        """Flags of libtpu."""
        found = _ENVIRONMENT | {"TPU_LOG_DIR": str(folder / "log")}
        if self.dump:
            found["LIBTPU_INIT_ARGS"] = (
                f"--xla_jf_dump_to={folder / 'dump'} --xla_jf_dump_llo_text=true "
                f"--xla_jf_dump_llo_pass_label_regex={_DUMPS}"
            )
        return found

    def compile(self, module: bytes, chip: TpuChip, timeout: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Compile one module.

        Args:
            module: StableHLO as MLIR bytecode.
            chip: what to compile for.
            timeout: seconds until the worker is given up.

        Returns:
            The worker's answer, and the schedule dump as file name -> text (empty unless this worker dumps).

        Raises:
            Diagnostic: ``missing-dependency``, ``tpu-compiler-crash`` or ``tpu-compiler-timeout``.
        """
        require_libtpu()
        with self._lock:
            if self._folder is not None:
                shutil.rmtree(self._folder / "dump", ignore_errors=True)
            answer = self.ask({"module": module, "topology": chip.topology}, chip.name, timeout)
            assert self._folder is not None
            dumps = self._folder / "dump"
            found: dict[str, str] = {}
            if self.dump and answer["ok"] and dumps.is_dir():
                found = {p.name: p.read_text(errors="replace") for p in dumps.iterdir() if p.suffix == ".txt"}
            shutil.rmtree(dumps, ignore_errors=True)
            return answer, found


#: One process that only compiles, and one that also writes the schedule (1.5 to 2 times slower).
_workers = {False: Worker(dump=False), True: Worker(dump=True)}


def worker(dump: bool) -> Worker:
    """The process for plain compiles, or the one that dumps schedules."""
    return _workers[dump]


@atexit.register
def _stop_all() -> None:
    for one in _workers.values():
        one.stop()
