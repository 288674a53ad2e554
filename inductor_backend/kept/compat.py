"""AOTAutograd's cache, as far as keeping our runners in it needs private names.

Input: what identifies a compilation beside torch's own key; where bytes are kept. Output: a context for `compile_fx`,
and the class of what is kept. Law: nothing of torch is changed outside the context or for other threads; whatever goes
wrong with a kept entry is a graph that is compiled.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.compiler.config as compiler_config
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import graph_compile
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache, BypassAOTAutogradCache
from torch._inductor import codecache
from torch._inductor.output_code import OutputCode

_KIND = "graphs"
_MISSING = object()
_lock = threading.RLock()
#: Keys that this process has written: it has the compiled graph already, or was told to forget it.
_own: set[str] = set()


class Kept(OutputCode):
    """One compiled graph, as AOTAutograd writes it to disk and calls it.

    Args:
        state: what the runner is made from again; None when it can't be written down.
        run: the runner.
    """

    def __init__(self, state: bytes | None, run: Callable[[list[Any]], Any]):
        self.state, self.run = state, run
        self._boxed_call = True  # of the object: what torch wraps it with copies its attributes

    def __call__(self, inputs: Any) -> Any:
        """Run the graph."""
        return self.run(inputs)

    def prepare_for_serialization(self) -> None:
        """Keep what can be pickled.

        Raises:
            BypassAOTAutogradCache: this graph can't be written down.
        """
        if self.state is None:
            raise BypassAOTAutogradCache("the graph holds what can't be written down")
        self.run = _unmade

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Make the runner again, in the process that reads the entry."""
        from inductor_backend.kept import restore

        assert self.state is not None
        self.run = restore(self.state)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing of Triton's is in a graph of ours."""


def _unmade(inputs: Any) -> Any:
    raise RuntimeError("a kept graph was called before it was made")


@dataclass(frozen=True)
class Folder:
    """Where bytes are kept: functions of a kind of value and a key."""

    get: Callable[[str, str], bytes | None]
    put: Callable[[str, str, bytes], None]
    drop: Callable[[str, str], None]


@contextlib.contextmanager
def caching(tag: str, folder: Folder) -> Iterator[None]:
    """AOTAutograd looks for graphs in our folder, and keeps them there, in this thread.

    Args:
        tag: what is added to the key of every entry.
        folder: where the entries are.
    """
    if not _lock.acquire(blocking=False):
        # Another thread compiles. To wait for it could be to wait for each other: it may want Dynamo's lock.
        yield
        return
    try:
        with (
            _replaced(_replacements(tag, folder)),
            cast(Any, compiler_config).patch(cache_key_tag=f"{compiler_config.cache_key_tag}{tag}"),
            functorch_config.patch(
                enable_autograd_cache=True, bundled_autograd_cache=True, enable_remote_autograd_cache=False
            ),
        ):
            yield
    finally:
        _lock.release()


def _replacements(tag: str, folder: Folder) -> list[tuple[Any, str, Callable[..., Any]]]:
    """(owner, name, what stands there meanwhile): looking up, writing, saving after a backward graph, versions."""
    info = graph_compile._cache_autograd_info

    def candidates(local: bool, remote: Any, key: str) -> Iterator[tuple[Any, bytes, bool]]:
        content = None if key in _own else folder.get(_KIND, key)
        if content is None:
            return
        try:
            entry = pickle.loads(content)
        except Exception:  # whatever an entry of other packages raises
            folder.drop(_KIND, key)
            return
        yield entry, content, True

    def write(key: str, content: bytes) -> None:
        _own.add(key)
        folder.put(_KIND, key, content)

    def with_backward(*args: Any, **kwargs: Any) -> Any:
        save, entry = cast(Any, info)(*args, **kwargs)

        def saving(*compiled: Any, **named: Any) -> Any:
            # The backward graph is compiled when it is needed: after the context.
            with caching(tag, folder):
                return save(*compiled, **named)

        return saving if save is not None else None, entry

    # torch's own are digests of its sources and of Triton's library, which take half a second.
    built = f"{torch.__version__} {torch.version.git_version}"
    return [
        (AOTAutogradCache, "iterate_over_candidates", candidates),
        (AOTAutogradCache, "_write_to_local_cache", write),
        (graph_compile, "_cache_autograd_info", with_backward),
        (codecache, "torch_key", lambda: built.encode()),
        (codecache.CacheBase, "get_system", lambda: {"torch": built}),
    ]


@contextlib.contextmanager
def _replaced(replacements: list[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """For this thread, functions of torch's are others; what other threads call is what was there."""
    thread = threading.get_ident()

    def either(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (ours if threading.get_ident() == thread else theirs)(*args, **kwargs)

    before = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in replacements]
    try:
        for owner, name, ours in replacements:
            chosen = either(ours, getattr(owner, name))
            setattr(owner, name, staticmethod(chosen) if isinstance(owner, type) else chosen)
        yield
    finally:
        for owner, name, value in before:
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
