"""Convolution of small maps with many channels: sums split over taps and channels (OpenPPL's 2SPK).

Where the blocks of results are too few to fill the machine, several programs share the sums of one
block. They write float32 parts [splits, N·P·Q, K'], a second launch adds these in order and does
the epilogue. Floor: the weights' bytes and two launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Temp, Variant, interned
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import STORES, divided, loads_of, stores_of
from saccade.kernels.cuda.conv2d.implicit_gemm_config import (
    MULTIPLES,
    SUMMED,
    ImplicitGemmConfig,
    Tile,
    config_of,
    rounding_of,
    summed,
    tiles_of,
    weights_of,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_times import BEGIN, Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import (
    POINT,
    channels_of,
    excess_of,
    sums_of,
    unfit,
)
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.precision import product_dtype
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_SPLIT_K", "SplitKConfig"]

_SPLITS = (2, 4, 8, 16)  # parts of a sum
_SHORTEST = 4  # steps of a part, for the loop to be worth its start
_WIDE = 128  # edge of blocks that fill the machine without splitting
_CHANGED = 1.3  # times over estimates with a prologue (one H200)
_ENDS = {True: (0.1, 1.9), False: (BEGIN, 1.0)}
"""By whether products are of 16 bits: microseconds on an H200 besides both launches, and how many
times as long as memory parts take, which stay in the L2 cache. Fitted to 557 times of 51 layers of
3x3 taps in float16; float32 was not looked at again."""
_ADDED: Tile = (4, 64, 1, 2, 1)  # of the second launch: 16 bytes of each part for a thread


@dataclass(frozen=True)
class SplitKConfig:
    """What the code depends on.

    Attributes:
        phase: "sum" makes the parts, "add" adds them.
        splits: How many parts there are.
        product: Of the sums; for "add" only y's element, tile, vectors and what is fused count.
    """

    phase: str
    splits: int
    product: ImplicitGemmConfig


_config = interned(SplitKConfig)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    if op.groups != 1:
        return f"{op.groups} groups"
    n, k, p, q = sums_of(call)
    blocks = -(-n * p * q // _WIDE) * -(-k // _WIDE)
    if blocks > call.target.multiprocessors:
        return f"{blocks} blocks without splitting"
    return unfit(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    n, k, p, q = sums_of(call)
    r, s = call.inputs[1].shape[2:]
    c = channels_of(call)
    products = Products(1, k, r * s, c)
    tiles, splits = _parted(tiles_of(call, c, k), products)
    times = tile_times(call, tiles, products, n * p * q, splits)
    # Of writing, reading and adding the parts, which stay in the L2 cache: microseconds.
    rate, nbytes = gpu(call.target.machine).bandwidth, 2.0 * 4 * n * p * q * k
    begin, added = _ENDS[product_dtype(call) is not DType.F32]
    adding = {parts: LAUNCH + added * nbytes * parts / rate for parts in _SPLITS}
    measured = _CHANGED if call.op.prologue != IDENTITY else 1.0
    timed = [
        (measured * (micros + adding[parts]) + begin, tile, parts)
        for (micros, _), tile, parts in zip(times, tiles, splits, strict=True)
    ]
    for micros, tile, parts in sorted(timed, key=itemgetter(0)):
        # How a sum is parted shows in its last bits.
        yield Variant(micros, partial(_launches, call, tile, parts), (rounding_of(tile), parts))


@lru_cache(maxsize=1024)
def _parted(
    tiles: tuple[Tile, ...], products: Products
) -> tuple[tuple[Tile, ...], tuple[int, ...]]:
    """Tiles, each as often as its sums may be parted, and in how many parts."""
    found = []
    for tile in tiles:
        steps = products.taps * -(-products.terms // tile[2])
        # Two parts at any length, as a supported call has to have a variant.
        found += [(tile, n) for n in _SPLITS if n <= 2 or n * _SHORTEST <= steps]
    return tuple(tile for tile, _ in found), tuple(n for _, n in found)


def _launches(call: CudaCall, tile: Tile, splits: int) -> tuple[Launch, ...]:
    n, k, p, q = sums_of(call)
    weights, loads, stores = weights_of(call), loads_of(call), stores_of(call)
    # Rows begin at multiples of 64 bytes, so that both launches move whole vectors.
    pitch = -(-k // 16) * 16
    product = config_of(call, tile, weights, loads.config)
    parts = Temp(0, 4 * splits * n * p * q * pitch)
    first = Launch(
        _config("sum", splits, product),
        {"x": In(0), "w": weights.operand, "parts": parts, **loads.operands},
        {**summed(call, weights), "pitch": pitch, **loads.integers},
        splits * -(-n * p * q // tile[0]) * -(-k // tile[1]),
    )
    by_y = product.vectors[1]
    added = ImplicitGemmConfig(
        ("fp32", "fp32", element_of(call.outputs[0])), POINT, "", _ADDED,
        vectors=(1, by_y), fused=stores.config,
    )  # fmt: skip
    sizes = {"n": n, "k": (k + excess_of(call)) // by_y, "p": p, "q": q, "pitch": pitch}
    second = Launch(
        _config("add", splits, added),
        {"parts": parts, "y": Out(0), **stores.operands},
        {**sizes, **divided(stores.integers, by_y)},
        -(-n * p * q // _ADDED[0]) * -(-k // _ADDED[1]),
    )
    return first, second


def _entry(config: SplitKConfig) -> Entry:
    product, fused = config.product, config.product.fused
    x, w, y = product.elements
    functions = fused.functions()
    constants = {"SPLITS": config.splits, "Y_VEC": product.vectors[1]}
    if config.phase == "sum":
        return Entry(
            "conv2d.split_k_code:sum_parts",
            (("x", x), ("w", w), ("parts", "fp32")),
            (*SUMMED, "pitch"),
            {**constants, **product.constants()},
            {name: functions[name] for name in functions if name == "PROLOGUE"},
            fused.pointers,
            fused.integers,
            (*MULTIPLES, "pitch"),
            *product.tile[3:],
        )
    bm, bn = product.tile[:2]
    return Entry(
        "conv2d.split_k_code:add_parts",
        (("parts", "fp32"), ("y", y)),
        ("n", "k", "p", "q", "pitch", *STORES),
        {**constants, "BM": bm, "BN": bn, **fused.constants()},
        functions,
        fused.pointers,
        fused.integers,
        ("pitch",),
        *product.tile[3:],
    )


CONV2D_SPLIT_K = CudaKernel("conv2d.split_k", (Conv2d,), SplitKConfig, _supports, _variants, _entry)
