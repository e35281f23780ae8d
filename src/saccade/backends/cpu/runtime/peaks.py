"""What the machine can do at most: arithmetic from registers, reading and copying at each level.

The loops are emitted the way kernels are, so that the ceiling is the one that generated code meets
and not the data sheet's. A time is the best of several short looks: a busy neighbour takes some of
them, hardly ever all, and the shorter they are the fewer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.runtime.driver import JOB_WORDS
from saccade.backends.cpu.runtime.linker import Linked, link
from saccade.backends.cpu.runtime.team import shared_team
from saccade.backends.cpu.runtime.workspace import HUGE_PAGE
from saccade.backends.cpu.target import Target

__all__ = ["Peaks"]

CHAINS = 12  # more than latency times throughput of any present core
_KINDS = ("fma", "read", "copy", "nothing")
# Rounds of `CHAINS` multiply-adds: 1.3 ms where a cycle at 3.7 GHz does one. Threads begin tens of
# microseconds apart, and a core takes longer than that to clock up (72 to 98 GFLOP/s were told of
# a Zen 3 core that does 103, by looks of a tenth of this).
_ROUNDS = 400_000
_PAGE = 4096  # bytes
_FLOAT, _COUNT, _VOID = ir.FloatType(), ir.IntType(64), ir.VoidType()


class Peaks:
    """Loops that do one thing, on as many cores at once as asked for.

    Args:
        target: Decides the width of the vectors.
        nbytes: The largest buffer that will be asked for.
    """

    def __init__(self, target: Target, nbytes: int) -> None:
        text = _text(target)
        self._linked: Linked = link([object_code(text, target)], _KINDS)
        self._step = 4 * target.lanes * CHAINS
        self._memory = mmap.mmap(-1, nbytes + 2 * HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self._memory, np.uint8)
        start = -whole.ctypes.data % HUGE_PAGE
        self._buffer = whole[start : start + nbytes]
        self._buffer[::_PAGE] = 0
        self._lanes = target.lanes

    def flops(self, threads: int, looks: int, rounds: int = _ROUNDS) -> float:
        """fp32 operations per microsecond of so many cores; a multiply-add counts two."""
        call = self._function("fma")
        start = self._buffer.ctypes.data

        def work(k: int, _: int) -> None:
            call(start + _PAGE * k, start + _PAGE * k, rounds)

        return 2.0 * self._lanes * CHAINS * rounds * threads / _micros(work, threads, looks)

    def read(self, nbytes: int, threads: int, looks: int, parts: int = 1) -> float:
        """Bytes per microsecond that so many cores read of a buffer that they divide.

        Each look takes the next of `parts` parts of the buffer, so that short looks at a large one
        do not find in a cache what the look before has read. The first third does not count: there
        the caches still hold what others left, and take lines without writing any back.
        """
        return self._stream("read", nbytes, threads, looks, parts)

    def copy(self, nbytes: int, threads: int, looks: int, parts: int = 1) -> float:
        """Bytes read and written per microsecond, from one half of each part to the other."""
        return self._stream("copy", nbytes, threads, looks, parts)

    def phase(self, threads: int, looks: int, phases: int) -> float:
        """Microseconds of a phase that does nothing: calls, counters and the barrier."""
        nothing = self._linked.addresses["nothing"]
        job = _Job(np.tile(np.array([nothing, 0, True], np.int64), (phases, 1)), threads)
        team = shared_team(threads)
        best = float("inf")
        with team.lock:
            for _ in range(looks):
                began = time.perf_counter()
                team.run(job)
                best = min(best, time.perf_counter() - began)
        return best * 1e6 / phases

    def _stream(self, kind: str, nbytes: int, threads: int, looks: int, parts: int) -> float:
        call, copied = self._function(kind), kind == "copy"
        part = nbytes // parts
        half = part // 2 if copied else part
        rounds = half // threads // self._step
        sink = np.zeros(threads * 64, np.float32)
        start = self._buffer.ctypes.data

        def work(k: int, look: int) -> None:
            at = start + look % parts * part + k * rounds * self._step
            call(at, at + half if copied else sink[64 * k :].ctypes.data, rounds)

        moved = rounds * self._step * threads * (2 if copied else 1)
        return moved / _micros(work, threads, looks, skipped=parts // 3)

    def _function(self, kind: str) -> Callable[[int, int, int], None]:
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        return prototype(self._linked.addresses[kind])


class _Job:
    def __init__(self, table: Any, threads: int) -> None:  # noqa: ANN401 - an array
        self.count = len(table)
        counters = np.zeros(self.count * threads * COUNTER_WORDS, np.int64)
        self._kept = table, counters  # which the words point to
        self.words = np.zeros(JOB_WORDS, np.int64)
        self.words[:4] = table.ctypes.data, self.count, table.ctypes.data, counters.ctypes.data
        self.words[6] = counters.ctypes.data
        self.address = self.words.ctypes.data


def _micros(work: Callable[[int, int], None], threads: int, looks: int, skipped: int = 0) -> float:
    """Best time of a look: `work(0, look) … work(threads - 1, look)`, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    barrier = threading.Barrier(threads)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(looks)]

    def one(k: int) -> None:
        if len(cores) == threads:
            os.sched_setaffinity(0, {cores[k]})
        for look in range(looks):
            barrier.wait()
            start = time.perf_counter()
            work(k, look)
            spans[look].append((start, time.perf_counter()))

    team = [threading.Thread(target=one, args=(k,)) for k in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    counted = spans[skipped:]
    return 1e6 * min(max(end for _, end in s) - min(start for start, _ in s) for s in counted)


def _text(target: Target) -> str:
    """`f(source, sink, n)`: n rounds of `CHAINS` independent multiply-adds, sums or copies."""
    module = ir.Module()
    module.triple = target.triple
    vector = ir.VectorType(_FLOAT, target.lanes)
    pointer = ir.PointerType()
    for kind in _KINDS[:3]:
        function = ir.Function(module, ir.FunctionType(_VOID, [pointer, pointer, _COUNT]), kind)
        _emit(module, function, kind, vector)
    nothing = ir.Function(module, ir.FunctionType(_VOID, [pointer, pointer]), "nothing")
    ir.IRBuilder(nothing.append_basic_block("entry")).ret_void()
    return str(module)


def _emit(module: Any, function: Any, kind: str, vector: Any) -> None:  # noqa: ANN401 - llvmlite is not typed
    source, sink, count = function.args
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "loop", "done"))
    build = ir.IRBuilder(entry)
    x = build.load(source, typ=vector, align=4)
    build.branch(loop)
    build.position_at_end(loop)
    index = build.phi(_COUNT)
    sums = [build.phi(vector) for _ in range(CHAINS)]
    name = f"llvm.fma.v{vector.count}f32"
    fma = module.globals.get(name) or ir.Function(
        module, ir.FunctionType(vector, [vector] * 3), name
    )

    def advance(k: int, total: Any) -> Any:  # noqa: ANN401
        if kind == "fma":
            return build.call(fma, [x, x, total])
        at = build.add(build.mul(index, ir.Constant(_COUNT, CHAINS)), ir.Constant(_COUNT, k))
        value = build.load(build.gep(source, [at], source_etype=vector), typ=vector, align=4)
        if kind == "read":
            return build.fadd(total, value)
        build.store(value, build.gep(sink, [at], source_etype=vector), align=4)
        return total

    results = [advance(k, total) for k, total in enumerate(sums)]
    following = build.add(index, ir.Constant(_COUNT, 1))
    index.add_incoming(ir.Constant(_COUNT, 0), entry)
    index.add_incoming(following, loop)
    for total, result in zip(sums, results, strict=True):
        total.add_incoming(ir.Constant(vector, [0.0] * vector.count), entry)
        total.add_incoming(result, loop)
    build.cbranch(build.icmp_signed("<", following, count), loop, done)
    build.position_at_end(done)
    for k, result in enumerate(results):  # so that no chain is dead code
        results[0] = build.fadd(results[0], result) if k else result
    if kind != "copy":
        build.store(results[0], sink, align=4)
    build.ret_void()
