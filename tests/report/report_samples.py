"""Reports made up by hand, for rules, differences and pages."""

from __future__ import annotations

from dataclasses import replace

from saccade.kernels.machine import Machine
from saccade.profile import Shares
from saccade.report.collect import percentiles_of
from saccade.report.types import (
    FORMAT,
    About,
    ArenaBlock,
    ImportedNode,
    Refused,
    Report,
    ReportStep,
    TensorPlace,
    Totals,
)

# 100 GFLOP/s a core, 10 GB/s of memory, 50 GB/s a core of cache, 1 µs a phase.
SPEEDS = Machine(1e5, 1e5, 1e4, 5e4, 1.0, 1e6)
ABOUT = About(
    model="models/net.onnx", page="report.html", made="2026-01-02T03:04:05+00:00", saccade="0.1.0",
    commit="", code="abc", device="cpu", precision="fp32", threads=2, exact=False, isa="avx512",
    planned_for="zen4", cores=2, command=("--shape x=1x3x8x8", "--threads 2"),
    inputs=("x float32 1x3x8x8",), outputs=("y float32 1x16x8x8",),
    machine={"cpu": "Made up"}, versions={"python": "3.11"}, remarks=("a remark",),
)  # fmt: skip
TOTALS = Totals(
    profiled=1000.0, whole=None, estimate=900.0, floor=500.0, floor_arithmetic=400.0,
    floor_memory=100.0, floor_barriers=5.0, arena=8192, live=8192, packed=4096, raw=64, batch=1,
    queued=1,
)  # fmt: skip


def place(shape=(1, 16, 8, 8), dtype="float32", layout="NHWC", where="arena + 0", nbytes=4096):
    return TensorPlace(dtype, tuple(shape), layout, where, nbytes)


def step(name="conv1", time=100.0, **changes):
    """A step that keeps both threads busy, and no rule has anything to say of."""
    made = ReportStep(
        name=name, op="Conv2d", attributes="Conv2d", kernel="conv2d.direct", config="rows 4",
        host=False, tuned=False, contracts=True, reorder=False, note="", estimate=time, time=time,
        phases=(time,), chunks=(64,), busy=0.99, flops=18_000_000, bytes=8192, least_flops=None,
        floor=0.9 * time, inputs=(place(where="input x"),), outputs=(place(),), reads=(-1,),
        refused=(), facts=(), spans=(((0.0, time), (0.0, time)),), bodies=0,
    )  # fmt: skip
    return replace(made, **changes)


def report(*steps, times=(1.0,) * 40, about=None, totals=None, **changes):
    """A report of 1 ms; settings by name in place of the made-up ones."""
    made = Report(
        format=FORMAT, about=replace(ABOUT, **(about or {})),
        totals=replace(TOTALS, **(totals or {})), percentiles=percentiles_of(times),
        shares=Shares(0.97, 0.02, 0.01), speeds=SPEEDS, steps=tuple(steps), blocks=(),
        imported=(), times=tuple(times), advice=(),
    )  # fmt: skip
    return replace(made, **changes)


def whole(name="conv1"):
    """A report with something in every section."""
    first = step(
        name, 600.0, refused=(
            Refused("conv2d.winograd", "stride 2", None, None),
            Refused("conv2d.lattice", "700.0 µs estimated", 700.0, 650.0),
        ),
    )  # fmt: skip
    copied = step(
        f"{name}/copied", 100.0, op="Move", kernel="movement.copy", reorder=True, contracts=False,
        note="copy: its readers are faster with it", reads=(0,), flops=0,
        outputs=(place(layout="NCHW"),), spans=(((600.0, 690.0), (600.0, 700.0)),),
    )  # fmt: skip
    last = step(
        f"{name}/last", 250.0, op="Pointwise", kernel="pointwise.chain", contracts=False,
        reads=(1, 0), inputs=(place(layout="NCHW"),), outputs=(place(dtype="float16"),),
        flops=2048, spans=(((701.0, 950.0), (701.0, 940.0)),),
    )  # fmt: skip
    blocks = (
        ArenaBlock(f"Conv2d {name}", "value", 0, 4096, 0, 2, 1),
        ArenaBlock(f"Conv2d {name}: workspace", "workspace", 4096, 1024, 0, 0, 1),
        ArenaBlock(f"Move {name}/copied", "value", 4096, 4096, 1, 2, 1),
    )
    imported = (
        ImportedNode(f"{name}/first", "Conv2d", "Conv2d", "float32", "1x16x8x8", (-1,), 0),
        ImportedNode(name, "Pointwise", "Pointwise", "float32", "1x16x8x8", (0,), 0),
        ImportedNode(f"{name}/view", "Move", "Move", "float32", "16x64", (1,), None),
        ImportedNode(f"{name}/last", "Pointwise", "Pointwise", "float16", "1x16x8x8", (1, 0), 2),
    )
    times = [1.0 + 0.01 * (i % 7) + 0.2 * (i % 31 == 0) for i in range(200)]
    return report(first, copied, last, times=times, blocks=blocks, imported=imported)
