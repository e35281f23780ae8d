"""Element types and shapes that the processor's arithmetic does not like."""

from __future__ import annotations

from saccade.report.advice.found import Found, command, found_in
from saccade.report.types import Report, ReportStep

__all__ = ["double_precision", "float32_products", "ragged_channels"]

_FASTER = 1.2
"""Times as many products of 16 bits a machine has to make for them to be worth their rounding."""
_LANES = {"amx": 16, "avx512": 16, "avx2": 8, "neon": 4}
"""float32 numbers of a vector, by instruction set."""
_WORTH_PADDING = 0.1  # share of the lanes that stay empty
_CHANNELS = 1  # axis


def float32_products(report: Report) -> Found | None:
    """Products in float32 on a machine that multiplies 16 bits faster."""
    about, speeds = report.about, report.speeds
    narrow = "bf16" if about.device == "cpu" else "fp16"
    if about.precision not in ("fp32", "tf32") or speeds.pair_flops < _FASTER * speeds.flops:
        return None
    ratio = speeds.flops / speeds.pair_flops
    lost = {
        i: step.time - max(step.time * ratio, step.bytes / 2 / speeds.bandwidth)
        for i, step in enumerate(report.steps)
        if step.contracts and _narrows(step) and step.time > step.bytes / 2 / speeds.bandwidth
    }
    return found_in(
        report, lost,
        f"Products in float32, where {narrow} is {1 / ratio:.3g} times as fast, in {{count}}",
        f"This machine multiplies 16-bit numbers faster, and {narrow} halves the bytes. It rounds "
        "to 8 bits: look at the accuracy of the model, not only at its speed."
        if narrow == "bf16"
        else "This GPU multiplies 16-bit numbers faster, and fp16 halves the bytes. It rounds to "
        "11 bits: look at the accuracy of the model, not only at its speed.",
        command(report, "bench", f"--precision {narrow}", "--against saccade:fp32") + "\n"
        + command(report, "compare", f"--precision {narrow}", "--against onnxruntime"),
    )  # fmt: skip


def _narrows(step: ReportStep) -> bool:
    """Whether both ends are float32, which 16 bits could take the place of."""
    return all(place.dtype == "float32" for place in (*step.inputs[:1], *step.outputs[:1]))


def double_precision(report: Report) -> Found | None:
    """Steps that compute in float64."""
    lost = {
        i: step.time / 2
        for i, step in enumerate(report.steps)
        if step.time and any(place.dtype == "float64" for place in step.outputs)
    }
    return found_in(
        report, lost,
        "{count} computed in float64",
        "Twice the bytes, half the lanes of each vector, and kernels for few operators only. "
        "A constant of Python or NumPy that found its way into the model is enough: {names}.",
        "# Make constants float32 before the export:\n"
        "torch.onnx.export(model.float(), example.float(), path)",
    )  # fmt: skip


def ragged_channels(report: Report) -> Found | None:
    """Convolutions whose channels leave the last vector of each pixel partly empty."""
    lanes = _LANES.get(report.about.isa)
    if report.about.device != "cpu" or lanes is None:
        return None
    lost, better = {}, {}
    for i, step in enumerate(report.steps):
        channels = _channels(step)
        if channels is None or channels < lanes // 2:
            continue
        full = -(-channels // lanes) * lanes
        empty = 1 - channels / full
        # What waits for memory computes in its shadow.
        if empty > _WORTH_PADDING and step.flops / report.speeds.flops > step.bytes / (
            report.speeds.bandwidth
        ):
            lost[i] = step.time * empty
            better[channels] = full
    wanted = ", ".join(f"{full} for {given}" for given, full in sorted(better.items()))
    return found_in(
        report, lost,
        "Channels that fill vectors badly, in {count}",
        f"Vectors of this machine hold {lanes} numbers, and the last one of each pixel is "
        "computed partly in vain. More channels would take the same time. It is about {names}.",
        f"# In the definition of the model, numbers of channels: {wanted}",
    )  # fmt: skip


def _channels(step: ReportStep) -> int | None:
    """Channels of the result of a convolution."""
    shape = step.outputs[0].shape if step.outputs else ()
    return shape[_CHANNELS] if step.contracts and len(shape) == 4 else None
