"""What a model file is, and what running it takes: the first lines of `saccade inspect`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import InputError, SaccadeError
from saccade.memory import size_text
from saccade.signature import shape_text

if TYPE_CHECKING:
    import onnx

    from saccade.cli._types import ModelLike, PlanLike, TensorInfoLike

__all__ = [
    "bundle_facts",
    "bundle_summary",
    "end_facts",
    "file_facts",
    "signature",
    "summary",
    "work_facts",
]


def file_facts(path: Path) -> dict[str, Any]:
    """What an ONNX file says of itself: producer, operator sets, operators, parameters."""
    from saccade.cli._signature import load_file  # noqa: PLC0415 - NumPy, for who needs it

    model = load_file(path)
    graphs = list(_graphs(model.graph))
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    names = (_operator(node) for graph in graphs for node in graph.node)
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "ir_version": model.ir_version,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "operators": dict(Counter(names).most_common()),
        "parameters": sum(math.prod(tensor.dims) for tensor in tensors),
        "tensors": len(tensors),
        "parameter_bytes": sum(_nbytes(tensor) for tensor in tensors),
    }


def bundle_facts(path: Path) -> dict[str, Any]:
    """What a bundle says of itself: what wrote it, for which machines, its programs."""
    from saccade.bundlefile import open_bundle  # noqa: PLC0415 - `saccade --help` does without

    head = open_bundle(path).head
    names = [info.name for info in head.signature.inputs]
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "saccade": head.saccade,
        "device": head.device,
        "machines": [dict(one) for one in head.machines],
        "precision": head.precision,
        "threads": head.threads,
        "programs": [
            {name: list(shape) for name, shape in zip(names, shapes, strict=True)}
            for shapes in head.shapes
        ],
        **end_facts(head.signature.inputs, head.signature.outputs),
    }


def bundle_summary(facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines."""
    size = size_text(facts["bytes"])
    yield f"{facts['model']}: {size}, a bundle that Saccade {facts['saccade']} built"
    team = f", teams of {facts['threads']}" if facts["device"] == "cpu" else ""
    yield f"for: {facts['device']}, {facts['precision']}{team}"
    for one in facts["machines"]:
        told = [one[kind] for kind in one if kind != "instructions" and one[kind]]
        yield f"machine: {', '.join(dict.fromkeys(told))}"
    for program in facts["programs"]:
        shapes = ", ".join(f"{name} {shape_text(shape)}" for name, shape in program.items())
        yield f"program: {shapes or 'no inputs'}"
    yield from signature(facts)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those of its nodes."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for attribute in (one for node in current.node for one in node.attribute):
            waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def _operator(node: onnx.NodeProto) -> str:
    ours = node.domain in ("", "ai.onnx")
    return str(node.op_type) if ours else f"{node.domain}.{node.op_type}"


def _nbytes(tensor: onnx.TensorProto) -> int:
    from onnx.helper import tensor_dtype_to_np_dtype  # noqa: PLC0415 - see above

    size = tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims) * size)


def work_facts(
    compiled: ModelLike, sizes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Any] | None, str]:
    """What a run takes, and why that cannot be told if it cannot."""
    from saccade.cli._signature import fixed_shapes  # noqa: PLC0415 - see above

    try:
        shapes = fixed_shapes(compiled.inputs, sizes)
        plan = compiled.plan(**shapes)
    except InputError as error:
        # Sizes that the user gave have to be right; others may have no default.
        if sizes:
            raise
        return None, str(error)
    except SaccadeError as error:
        return None, str(error)
    return _work(plan, shapes), ""


def _work(plan: PlanLike, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "steps": len(plan.steps),
        "flops": sum(step.work.flops for step in plan.steps),
        "bytes": sum(step.work.bytes for step in plan.steps),
        "arena_bytes": plan.arena_bytes,
        "estimate_us": plan.estimate,
    }


def summary(
    facts: Mapping[str, Any], work: Mapping[str, Any] | None, unknown: str
) -> Iterator[str]:
    """The lines."""
    opsets = ", ".join(
        f"opset {version}" if domain == "ai.onnx" else f"{domain} {version}"
        for domain, version in facts["opsets"].items()
    )
    maker = facts["producer"] or "an unnamed producer"
    yield f"{facts['model']}: {size_text(facts['bytes'])}, {opsets}, made by {maker}"
    operators = facts["operators"]
    counted = ", ".join(f"{name} {count}" for name, count in operators.items())
    yield f"operators: {sum(operators.values())} ({counted})"
    stored = size_text(facts["parameter_bytes"])
    yield f"parameters: {facts['parameters']:,} in {facts['tensors']} tensors, {stored}"
    if work is None:
        yield f"a run: not known ({unknown})"
    else:
        shapes = ", ".join(f"{name} {shape_text(s)}" for name, s in work["shapes"].items())
        yield (
            f"a run at {shapes or 'no sizes'}: {work['flops'] / 1e9:.3f} GFLOP in "
            f"{work['steps']} steps, {size_text(work['arena_bytes'])} of memory for what is "
            f"between them, estimated {work['estimate_us'] / 1e3:.3f} ms"
        )


def end_facts(
    inputs: Sequence[TensorInfoLike], outputs: Sequence[TensorInfoLike]
) -> dict[str, list[dict[str, Any]]]:
    """Inputs and outputs as data."""
    return {
        kind: [{"name": i.name, "dtype": i.dtype, "shape": list(i.shape)} for i in infos]
        for kind, infos in (("inputs", inputs), ("outputs", outputs))
    }


def signature(facts: Mapping[str, Any]) -> Iterator[str]:
    """A line for each input and output of `end_facts`."""
    for kind in ("input", "output"):
        for info in facts[f"{kind}s"]:
            yield f"{kind} {info['name']}: {info['dtype']} {shape_text(info['shape'])}"
