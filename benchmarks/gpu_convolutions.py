"""Convolutions on a GPU beside cuDNN's fused ones, layer by layer.

    python -m benchmarks.gpu_convolutions compile DIR    # needs Triton, no GPU
    PYTHONPATH=DIR/src python DIR/gpu_convolutions.py run DIR    # needs PyTorch, no Triton

The second may be another machine: DIR holds all that it needs. Each layer runs with several tiles,
each checked first against cuDNN's result; times are of a CUDA graph of launches over several sets
of operands, so that small layers do not find theirs in the L2. A variant that faults or hangs is
named and left out, and the rest goes on in a new process.
"""

# ruff: noqa: ANN401, PLC0415 - PyTorch and Triton are each on one of two machines only
from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BEST = {
    "hopper": 14, "hopper, several tiles": 6, "hopper_patches": 6, "hopper_rows": 12,
    "hopper_stationary": 9, "hopper_strips": 3, "hopper_teams": 7, "implicit_gemm": 4,
}  # fmt: skip
"""How many variants of each kind are measured."""


class Layer(NamedTuple):
    """A convolution with bias and relu: same padding, NHWC."""

    name: str
    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    taps: int
    stride: int = 1
    residual: bool = False
    block: int = 0

    @property
    def sums(self) -> tuple[int, int]:
        """Output height and width, before DepthToSpace."""
        return -(-self.height // self.stride), -(-self.width // self.stride)

    @property
    def flops(self) -> float:
        """Operations."""
        p, q = self.sums
        return 2.0 * self.batch * p * q * self.outputs * self.inputs * self.taps**2


_RESNET = (
    (56, 64, 64, 1), (56, 64, 256, 1, 1, True), (56, 256, 64, 1), (56, 64, 64, 3),
    (56, 256, 128, 1), (56, 128, 128, 3, 2), (56, 256, 512, 1, 2),
    (28, 128, 512, 1, 1, True), (28, 512, 128, 1), (28, 128, 128, 3),
    (28, 512, 256, 1), (28, 256, 256, 3, 2), (28, 512, 1024, 1, 2),
    (14, 256, 1024, 1, 1, True), (14, 1024, 256, 1), (14, 256, 256, 3),
    (14, 1024, 512, 1), (14, 512, 512, 3, 2), (14, 1024, 2048, 1, 2),
    (7, 512, 2048, 1, 1, True), (7, 2048, 512, 1), (7, 512, 512, 3),
)  # fmt: skip
_OTHERS = (
    Layer("subpixel", 1, 720, 1280, 64, 64, 3),
    Layer("subpixel", 1, 720, 1280, 64, 64, 3, residual=True),
    Layer("subpixel", 1, 720, 1280, 64, 128, 3, block=2),
    Layer("subpixel", 1, 1440, 2560, 32, 64, 3, block=2),
    Layer("wide", 1, 960, 960, 64, 128, 3),
    Layer("wide", 1, 960, 960, 128, 64, 3),
    Layer("wide", 128, 28, 28, 128, 128, 3),
    Layer("wide", 128, 14, 14, 256, 256, 3),
    Layer("densenet121", 64, 56, 56, 128, 32, 3),
    Layer("densenet121", 64, 28, 28, 128, 32, 3),
    Layer("densenet121", 64, 14, 14, 128, 32, 3),
    Layer("densenet121", 64, 56, 56, 128, 128, 1),
    Layer("densenet121", 64, 14, 14, 768, 128, 1),
    Layer("efficientnet_b0", 64, 112, 112, 16, 96, 1),
    Layer("efficientnet_b0", 64, 56, 56, 24, 144, 1),
    Layer("efficientnet_b0", 64, 56, 56, 96, 24, 1),
    Layer("efficientnet_b0", 64, 28, 28, 240, 40, 1, residual=True),
    Layer("efficientnet_b0", 64, 14, 14, 80, 480, 1),
    Layer("efficientnet_b0", 64, 14, 14, 672, 112, 1, residual=True),
    Layer("efficientnet_b0", 64, 7, 7, 1152, 192, 1, residual=True),
    Layer("efficientnet_b0", 64, 7, 7, 320, 1280, 1),
    Layer("mobilenet_v3_large", 64, 112, 112, 16, 64, 1),
    Layer("mobilenet_v3_large", 64, 28, 28, 40, 120, 1),
    Layer("mobilenet_v3_large", 64, 14, 14, 200, 80, 1, residual=True),
    Layer("mobilenet_v3_large", 64, 7, 7, 960, 160, 1, residual=True),
    Layer("mobilenet_v3_large", 1, 14, 14, 80, 480, 1),
    Layer("mobilenet_v3_large", 1, 7, 7, 960, 160, 1, residual=True),
    Layer("shufflenet_v2_x1_0", 64, 28, 28, 58, 58, 1),
    Layer("shufflenet_v2_x1_0", 64, 14, 14, 116, 116, 1),
    Layer("vit_b_16", 32, 1, 197, 768, 768, 1, residual=True),
    Layer("vit_b_16", 32, 1, 197, 768, 3072, 1),
    Layer("vit_b_16", 32, 1, 197, 3072, 768, 1, residual=True),
)


def layers() -> list[Layer]:
    """ResNet-50's at batch 32, 1 and 128, subpixel_x4's at 720x1280, wide ones, other networks'."""
    found = []
    for batch in (32, 1, 128):
        for edge, *rest in _RESNET:
            found.append(Layer(f"resnet50 b{batch}", batch, edge, edge, *rest))
    return found + list(_OTHERS)


def _view(kind: Any, n: int, c: int, h: int, w: int) -> Any:
    from saccade.kernels.base import View

    return View(kind, (n, c, h, w), (h * w * c, 1, w * c, c))


def call_of(layer: Layer) -> Any:
    """What selection would ask kernels about."""
    from saccade.backends.cuda.target import GpuTarget
    from saccade.ir import DType
    from saccade.ir.expr import parse
    from saccade.kernels.base import Call, View
    from saccade.opdefs import Conv2d, DepthToSpaceStore

    pad = layer.taps // 2
    p, q = layer.sums
    b = layer.block or 1
    text = "add(add($0, $1), $2)" if layer.residual else "add($0, $1)"
    op = Conv2d(
        stride=(layer.stride, layer.stride), padding=(pad,) * 4, epilogue=parse(f"relu({text})"),
        store=DepthToSpaceStore(b, "CRD") if b > 1 else None,
    )  # fmt: skip
    k, c, r = layer.outputs, layer.inputs, layer.taps
    weights = View(DType.F32, (k, c, r, r), (c * r * r, r * r, r, 1))
    bias = View(DType.F32, (k, 1, 1), (1, 1, 1))
    inputs = [_view(DType.F16, layer.batch, c, layer.height, layer.width), weights, bias]
    if layer.residual:
        inputs.append(_view(DType.F16, layer.batch, k, p, q))
    result = _view(DType.F16, layer.batch, k // b**2, p * b, q * b)
    constant = (False, True, True, False)[: len(inputs)]
    return Call(op, tuple(inputs), (result,), constant, GpuTarget())


def _chosen(call: Any) -> list[tuple[str, Any, Any]]:
    """Kind, kernel and launch of what is measured."""
    from saccade.kernels.cuda.conv2d.hopper import CONV2D_HOPPER
    from saccade.kernels.cuda.conv2d.hopper_patches import CONV2D_HOPPER_PATCHES
    from saccade.kernels.cuda.conv2d.hopper_rows import CONV2D_HOPPER_ROWS
    from saccade.kernels.cuda.conv2d.hopper_stationary import CONV2D_HOPPER_STATIONARY
    from saccade.kernels.cuda.conv2d.hopper_strips import CONV2D_HOPPER_STRIPS
    from saccade.kernels.cuda.conv2d.hopper_teams import CONV2D_HOPPER_TEAMS
    from saccade.kernels.cuda.conv2d.implicit_gemm import CONV2D_IMPLICIT_GEMM

    left, found = dict(BEST), []
    for kernel in (
        CONV2D_HOPPER, CONV2D_HOPPER_PATCHES, CONV2D_HOPPER_ROWS, CONV2D_HOPPER_STATIONARY,
        CONV2D_HOPPER_STRIPS, CONV2D_HOPPER_TEAMS, CONV2D_IMPLICIT_GEMM,
    ):  # fmt: skip
        if kernel.supports(call) is not None:
            continue
        for variant in kernel.variants(call):
            (launch,) = variant.launches
            kind = kernel.name.split(".")[1]
            if getattr(launch.config.tile, "persistent", False):
                kind += ", several tiles"
            if left[kind]:
                left[kind] -= 1
                found.append((kind, kernel, launch))
    return found


def compile_all(folder: Path, only: str = "") -> None:
    """Write cubins, the manifest, and what running them needs."""
    from saccade.backends.cuda.codegen.compile import compile_entry, encode_cubin
    from saccade.kernels.base import In, Out, Packed

    folder.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).resolve()
    shutil.copytree(here.parents[1] / "src", folder / "src", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__", "cpu"))  # fmt: skip
    shutil.copy(here, folder / here.name)
    known: dict[Any, str] = {}
    table = []
    start = time.time()
    for layer in layers():
        if not any(part in str(layer) for part in only.split("|")):
            continue
        variants = []
        for kind, kernel, launch in _chosen(call_of(layer)):
            entry = kernel.entry(launch.config)
            aligned = [n for n, _ in (*entry.pointers, *entry.extra_pointers)]
            aligned += [n for n in entry.multiples if launch.integers[n] % 16 == 0]
            key = kernel.name, launch.config, tuple(aligned)
            if key not in known:
                known[key] = f"{kernel.name.split('.')[1]}_{len(known)}.bin"
                (folder / known[key]).write_bytes(encode_cubin(compile_entry(entry, 90, aligned)))
            places: dict[str, Any] = {}
            for argument, operand in launch.operands.items():
                if isinstance(operand, In):
                    places[argument] = operand.index
                else:
                    places[argument] = "y" if isinstance(operand, Out) else "w"
            (packing,) = (o.packing for o in launch.operands.values() if isinstance(o, Packed))
            variants.append({
                "kind": kind, "file": known[key], "integers": launch.integers,
                "places": places, "chunks": launch.chunks,
                "packing": [packing.function, packing.parameters],
                "tile": _tile_name(launch.config),
            })  # fmt: skip
        table.append({"layer": layer, "variants": variants})
        print(layer, len(known), f"{time.time() - start:.0f} s", flush=True)
        (folder / "manifest.json").write_text(json.dumps(table))


def _tile_name(config: Any) -> str:
    tile = config.tile
    if isinstance(tile, tuple):
        return "x".join(map(str, tile))
    if hasattr(tile, "ring"):
        return f"{tile.columns}x{tile.depth}s{tile.ring}"
    if hasattr(tile, "together"):
        shape = f"{tile.lines}x{tile.pixels}x{tile.outputs}x{tile.inputs}"
        return f"{shape}w{tile.teams}s{tile.stages}"
    if not hasattr(tile, "rows"):
        shape = f"{tile.lines}x{tile.pixels}x{tile.columns}x{tile.depth}"
        return f"{shape}w{tile.teams}x{tile.warps}s{tile.stages}"
    shape = f"{tile.rows}x{tile.columns}x{tile.depth}"
    if hasattr(tile, "rest"):
        shape = f"{tile.rows}x{tile.columns}+{tile.rest}x{tile.depth}"
        return f"{shape}m{tile.moved}w{tile.teams}s{tile.stages}"
    if hasattr(tile, "teams"):
        return f"{shape}w{tile.teams}x{tile.warps}s{tile.stages}"
    order = " taps first" if config.taps_inner else ""
    return f"{shape}w{tile.warps}s{tile.stages}{order}"


# --- on the machine with a GPU


class _Gpu:
    """PyTorch for memory and the peer, the driver for our kernels."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.zeros(1, device="cuda")
        torch.backends.cudnn.benchmark = True
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.functions: dict[str, tuple[ctypes.c_void_p, Any]] = {}

    def ok(self, status: int) -> None:
        if status:
            raise SystemExit(f"error {status} of the driver")

    def function(self, path: Path) -> tuple[ctypes.c_void_p, Any]:
        from saccade.backends.cuda.codegen.compile import decode_cubin

        if path.name not in self.functions:
            cubin = decode_cubin(path.read_bytes())
            assert cubin is not None
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.ok(self.driver.cuModuleLoadData(ctypes.byref(module), cubin.code))
            self.ok(self.driver.cuModuleGetFunction(
                ctypes.byref(function), module, cubin.symbol.encode()
            ))  # fmt: skip
            self.ok(self.driver.cuFuncSetAttribute(function, 8, cubin.shared))
            self.functions[path.name] = function, cubin
        return self.functions[path.name]

    def launcher(self, path: Path, variant: dict[str, Any], tensors: dict[str, Any]) -> Any:
        from saccade.backends.cuda.ahead import AHEAD
        from saccade.backends.cuda.runtime.tensor_maps import encode, words

        function, cubin = self.function(path)
        described = {d.name: d for d in cubin.descriptors}
        integers = variant["integers"]
        values: list[Any] = []
        for name in cubin.parameters:
            if name in described:
                address = tensors[variant["places"][name]].data_ptr()
                values.append(encode(described[name], address, integers, self.driver))
                values += words(described[name], integers)
            elif name in AHEAD:  # nothing
                values.append(ctypes.c_uint64(0))
            elif name in variant["places"]:
                values.append(ctypes.c_uint64(tensors[variant["places"][name]].data_ptr()))
            else:
                values.append(ctypes.c_int32(integers[name]))
        values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # Triton's scratch
        array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        grid, threads, shared = variant["chunks"], 32 * cubin.warps, cubin.shared
        driver = self.driver

        def go(stream: int, _keep: Any = (values, tensors)) -> None:
            status = driver.cuLaunchKernel(
                function, grid, 1, 1, threads, 1, 1, shared, ctypes.c_void_p(stream), array, None
            )
            if status:
                raise SystemExit(f"launch: error {status} of the driver")

        return go

    def finished(self, seconds: float) -> bool:
        """Whether all that was launched ends within so many seconds."""
        event = self.torch.cuda.Event()
        event.record()
        end = time.time() + seconds
        while not event.query():
            if time.time() > end:
                return False
        return True

    def micros(self, runs: list[Callable[[int], Any]], launches: int = 24) -> float:
        """Best of a few replays of a graph of launches that take the sets in turn."""
        torch = self.torch
        stream = torch.cuda.Stream()
        launches = -(-launches // len(runs)) * len(runs)
        with torch.cuda.stream(stream):
            for run in runs:
                run(stream.cuda_stream)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for i in range(launches):
                    runs[i % len(runs)](stream.cuda_stream)
        best = 1e9
        for _ in range(6):
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record()
            graph.replay()
            b.record()
            b.synchronize()
            best = min(best, a.elapsed_time(b) * 1e3 / launches)
        return best


def _packed(torch: Any, w: Any, packing: list[Any]) -> Any:
    """Weights as a kernel reads them."""
    from saccade.kernels.cuda.packing import FUNCTIONS

    function, parameters = packing
    packed = FUNCTIONS[function](w.float().cpu().numpy(), *parameters)
    return torch.from_numpy(packed).cuda()


def _sets(gpu: _Gpu, layer: Layer, w: Any, bias: Any) -> list[dict[Any, Any]]:
    """Operands by their place in the call, results as "y"; more sets for small layers."""
    torch = gpu.torch
    p, q = layer.sums
    b = layer.block or 1
    n, k, c = layer.batch, layer.outputs, layer.inputs
    nbytes = 2 * n * (layer.height * layer.width * c + p * q * k * (2 if layer.residual else 1))
    sets = []
    for _ in range(max(1, min(8, round(160e6 / nbytes)))):
        one = {0: torch.randn(n, layer.height, layer.width, c, device="cuda", dtype=torch.half),
               1: w, 2: bias,
               "y": torch.full((n, p * b, q * b, k // b**2), 7.0, device="cuda",
                               dtype=torch.half)}  # fmt: skip
        if layer.residual:
            one[3] = torch.randn(n, p, q, k, device="cuda", dtype=torch.half)
        sets.append(one)
    return sets


def _peer(gpu: _Gpu, one: dict[Any, Any], layer: Layer, w: Any, half_bias: Any) -> Any:
    """The fused convolution of cuDNN on one set (without DepthToSpace)."""
    torch = gpu.torch
    x = one[0].permute(0, 3, 1, 2)
    window = ((layer.stride,) * 2, (layer.taps // 2,) * 2, (1, 1), 1)
    if layer.residual:
        z = one[3].permute(0, 3, 1, 2)
        return torch.cudnn_convolution_add_relu(x, w, z, 1.0, half_bias, *window)
    return torch.cudnn_convolution_relu(x, w, half_bias, *window)


def run_all(folder: Path, begin: int, skipped: set[str]) -> None:
    """Check and time everything from layer `begin` on; exits with 3 where a kernel hangs."""
    gpu = _Gpu()
    torch = gpu.torch
    table = json.loads((folder / "manifest.json").read_text())
    for index, row in list(enumerate(table))[begin:]:
        layer = Layer(*row["layer"])
        torch.manual_seed(0)
        k, c, r = layer.outputs, layer.inputs, layer.taps
        w = (torch.randn(k, c, r, r, device="cuda") / (c * r * r) ** 0.5).half()
        half_bias = torch.randn(k, device="cuda").half()
        sets = _sets(gpu, layer, w, half_bias.float())
        channels_last = w.contiguous(memory_format=torch.channels_last)
        shared = layer, channels_last, half_bias
        peers = [lambda _s, o=one, rest=shared: _peer(gpu, o, *rest) for one in sets]
        expected = peers[0](0)
        if layer.block:
            expected = torch.nn.functional.pixel_shuffle(expected, layer.block)
        expected = expected.permute(0, 2, 3, 1).float()
        tolerance = 0.01 + 0.01 * expected.abs()
        torch.cuda.synchronize()
        theirs = gpu.micros(peers)
        found: dict[str, list[tuple[float, str]]] = {}
        for variant in row["variants"]:
            if f"{index}:{variant['file']}" in skipped:
                continue
            print(f"AT {index}:{variant['file']} {variant['kind']} {variant['tile']}", flush=True)
            packed = _packed(torch, w, variant["packing"])
            runs = [gpu.launcher(folder / variant["file"], variant, {**one, "w": packed})
                    for one in sets]  # fmt: skip
            torch.cuda.synchronize()
            sets[0]["y"].fill_(7.0)
            runs[0](torch.cuda.current_stream().cuda_stream)
            if not gpu.finished(4.0):
                print("  hangs", flush=True)
                os._exit(3)
            wrong = (sets[0]["y"].float() - expected).abs() > tolerance
            wrong |= sets[0]["y"].isnan()
            if wrong.any():
                places = wrong.nonzero()
                print(
                    f"WRONG {layer} {variant['kind']} {variant['tile']} "
                    f"{int(wrong.sum())} of {wrong.numel()}, "
                    f"first {places[0].tolist()} last {places[-1].tolist()}",
                    flush=True,
                )
                continue
            found.setdefault(variant["kind"], []).append((gpu.micros(runs), variant["tile"]))
        _print(layer, theirs, found)


def _print(layer: Layer, theirs: float, found: dict[str, list[tuple[float, str]]]) -> None:
    p = f"{layer.name} {layer.inputs}->{layer.outputs} {layer.taps}x{layer.taps}/{layer.stride}"
    p += f" {layer.height}x{layer.width}" + "+res" * layer.residual + "+d2s" * bool(layer.block)
    rate = layer.flops / 1e6
    text = f"LAYER {p:40} cuDNN {theirs:7.1f} us {rate / theirs:4.0f} TF"
    for kind, rows in found.items():
        best, tile = min(rows)
        text += f" | {kind} {best:7.1f} us {rate / best:4.0f} TF x{theirs / best:.2f} {tile}"
    print(text)
    for kind, rows in found.items():
        print(f"    {kind}:", " ".join(f"{tile}:{micros:.1f}" for micros, tile in sorted(rows)))
    sys.stdout.flush()


def main() -> None:
    """See the module's docstring."""
    verb, folder = sys.argv[1], Path(sys.argv[2])
    if verb == "compile":
        compile_all(folder, *sys.argv[3:])
    elif verb == "worker":
        run_all(folder, int(sys.argv[3]), set(sys.argv[4:]))
    else:
        begin, skipped, at = 0, list[str](), ""
        for _ in range(12):
            command = [sys.executable, __file__, "worker", str(folder), str(begin), *skipped]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
                assert worker.stdout is not None
                for line in worker.stdout:
                    if line.startswith("AT "):
                        at = line[3:].strip()
                    else:
                        print(line, end="", flush=True)
            if not worker.returncode:
                return
            print(f"FAULT {worker.returncode} at {at}", flush=True)
            place = at.split()[0]
            skipped.append(place)
            begin = int(place.split(":")[0])
        sys.exit("too many faults")


if __name__ == "__main__":
    main()
