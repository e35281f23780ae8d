"""What the machine can do at most: fp32 arithmetic from registers, and reading memory.

Both loops are emitted through llvmlite, the way the kernels are, so that the ceiling is the one
that generated code meets on this machine and not the data sheet's.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir

__all__ = ["measure"]

LANES = 16
CHAINS = 12  # more than latency times throughput of any present core
FMA_ROUNDS = 40_000_000
READ_BYTES = 256 << 20
REPEATS = 3

_FLOAT, _COUNT = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def measure(threads: int) -> dict[str, float]:
    """`gflops` (fp32, a multiply-add counts two) and `read_gbs` of `threads` cores together."""
    fma, read = _compile("fma"), _compile("read")
    source = np.full(READ_BYTES // 4 + LANES, 1e-9, np.float32)
    start = -source.ctypes.data % 64 + source.ctypes.data
    sinks = [np.zeros(2 * LANES, np.float32) for _ in range(threads)]
    sink_at = [-sink.ctypes.data % 64 + sink.ctypes.data for sink in sinks]
    share = READ_BYTES // threads // (4 * LANES * CHAINS)

    def compute(k: int) -> None:
        fma(start, sink_at[k], FMA_ROUNDS)

    def stream(k: int) -> None:
        read(start + k * share * 4 * LANES * CHAINS, sink_at[k], share)

    flops = 2.0 * LANES * CHAINS * FMA_ROUNDS * threads
    moved = 4.0 * LANES * CHAINS * share * threads
    return {
        "gflops": flops / _seconds(compute, threads) / 1e9,
        "read_gbs": moved / _seconds(stream, threads) / 1e9,
    }


def _seconds(work: Callable[[int], None], threads: int) -> float:
    """Best time of `work(0) … work(threads - 1)`, each pinned to a core of its own."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    barrier = threading.Barrier(threads)
    spans: list[tuple[float, float]] = []

    def one(k: int) -> None:
        os.sched_setaffinity(0, {cores[k]})
        barrier.wait()
        start = time.perf_counter()
        work(k)
        spans.append((start, time.perf_counter()))

    best = float("inf")
    for _ in range(REPEATS):
        spans.clear()
        team = [threading.Thread(target=one, args=(k,)) for k in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        best = min(best, max(end for _, end in spans) - min(start for start, _ in spans))
    return best


def _compile(kind: str) -> Callable[[int, int, int], None]:
    """`f(source, sink, n)`: n rounds of `CHAINS` independent multiply-adds, or loads and sums."""
    module = ir.Module()
    module.triple = llvm.get_default_triple()
    pointer = ir.PointerType(_VECTOR)
    function = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [pointer, pointer, _COUNT]), "peak"
    )
    _emit(module, function, kind)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    native = prototype(engine.get_function_address("peak"))
    native.engine = engine  # type: ignore[attr-defined]  # keeps the code alive
    return native


def _emit(module: ir.Module, function: ir.Function, kind: str) -> None:
    source, sink, count = function.args
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "loop", "done"))
    build = ir.IRBuilder(entry)
    x = build.load(source)
    build.branch(loop)
    build.position_at_end(loop)
    index = build.phi(_COUNT)
    sums = [build.phi(_VECTOR) for _ in range(CHAINS)]
    fma = ir.Function(module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{LANES}f32")

    def advance(k: int, total: Any) -> Any:  # noqa: ANN401 - llvmlite is not typed
        if kind == "fma":
            return build.call(fma, [x, x, total])
        at = build.add(build.mul(index, ir.Constant(_COUNT, CHAINS)), ir.Constant(_COUNT, k))
        return build.fadd(total, build.load(build.gep(source, [at])))

    results = [advance(k, total) for k, total in enumerate(sums)]
    following = build.add(index, ir.Constant(_COUNT, 1))
    index.add_incoming(ir.Constant(_COUNT, 0), entry)
    index.add_incoming(following, loop)
    for total, result in zip(sums, results, strict=True):
        total.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), entry)
        total.add_incoming(result, loop)
    build.cbranch(build.icmp_signed("<", following, count), loop, done)
    build.position_at_end(done)
    for k, result in enumerate(results):  # so that no chain is dead code
        results[0] = build.fadd(results[0], result) if k else result
    build.store(results[0], sink)
    build.ret_void()
