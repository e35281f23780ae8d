"""A model to stand in for the engine: it returns its inputs plus an offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper


@dataclass
class Info:
    name: str
    dtype: str
    shape: tuple
    held: bool = False


@dataclass
class Work:
    flops: int = 2_000_000
    bytes: int = 1_000


@dataclass
class FakeOp:
    title: str


@dataclass
class Step:
    name: str
    kernel: str | None
    reasons: tuple
    op: FakeOp = field(default_factory=lambda: FakeOp("Conv2d"))
    work: Work = field(default_factory=Work)
    estimate: float = 12.5
    measured: bool = False

    @property
    def by(self):
        return self.kernel or "reference"


class FakePlan:
    arena_bytes = 4096
    estimate = 37.5

    def to_json(self):
        return '{"steps": []}'

    def __init__(self, shapes):
        self.shapes = shapes
        self.refused = ()
        self.steps = (
            Step(
                "conv1",
                "conv2d.direct",
                ("conv2d.winograd: stride 2", "conv2d.depthwise: groups 1"),
            ),
            Step("pool1", "pool.direct", ()),
            Step("odd1", None, ("pointwise.chain: float64",)),
        )

    def __str__(self):
        return f"plan at {self.shapes}"


class FakeProfile:
    def table(self, peer=None):
        return "conv1 12.5 µs" + (f" {peer.engine}" if peer else "")

    def to_json(self, peer=None):
        return '{"steps": []}'

    def to_chrome_trace(self):
        return '{"traceEvents": []}'


@dataclass
class FakeModel:
    inputs: tuple = (Info("input", "float32", ("N", 3, "H", "W")),)
    outputs: tuple = (Info("output", "float32", ("N", 3, "H", "W")),)
    stages: tuple = ("import", "fuse")
    remarks: tuple = ()
    offset: float = 0.0
    corrupt: object = None
    calls: list = field(default_factory=list)

    def run(self, feeds):
        assert list(feeds) == [info.name for info in self.inputs], "feeds in the model's order"
        self.calls.append(feeds)
        results = {
            out.name: np.ascontiguousarray(array + array.dtype.type(self.offset))
            for out, array in zip(self.outputs, feeds.values(), strict=True)
        }
        if self.corrupt is not None:
            self.corrupt(results)
        return results

    def plan(self, **shapes):
        return FakePlan(shapes)

    def assembly(self, steps, /, **shapes):
        return {"conv1": (f"{steps} at {shapes}\nret", "ret"), "odd1": ()}

    def profile(self, *arrays, repeat):
        self.calls.append((arrays, repeat))
        return FakeProfile()

    def graph(self, stage):
        return f"graph after {stage}"


class Engine:
    """Stands in for `saccade.compile`; remembers how it was called."""

    def __init__(self):
        self.model = FakeModel()
        self.reference = FakeModel()
        self.compiled = []
        self.error = None
        self.machine = None
        self.allow_reference = None

    def compile(
        self, source, *, device="cpu", precision="fp32", threads=None, machine=None,
        allow_reference=False, shapes=None,
    ):  # fmt: skip
        if self.error is not None:
            raise self.error
        self.compiled.append((source, device, precision, threads))
        self.machine, self.allow_reference = machine, allow_reference
        return self.reference if device == "reference" else self.model


def save_model(path: Path, *, shape=("N", 3, "H", "W"), dtype=TensorProto.FLOAT, op="Relu") -> Path:
    """An ONNX file with one operator: `input` to `hidden` (negated) to `output`."""
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["input"], ["hidden"]),
            helper.make_node(op, ["hidden"], ["output"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("input", dtype, shape)],
        [helper.make_tensor_value_info("output", dtype, shape)],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path
