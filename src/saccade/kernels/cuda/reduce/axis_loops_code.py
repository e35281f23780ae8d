"""Counting through at most three axes, and the element types that sums are kept in."""

import triton
import triton.language as tl


@triton.constexpr_function
def element(name):
    """Triton's type of what `kernels.cuda.base.ELEMENTS` calls so."""
    return {
        "fp32": tl.float32, "fp16": tl.float16, "bf16": tl.bfloat16, "fp64": tl.float64,
        "i64": tl.int64, "i32": tl.int32, "i16": tl.int16, "i8": tl.int8,
        "u64": tl.uint64, "u32": tl.uint32, "u16": tl.uint16, "u8": tl.uint8,
    }[name]  # fmt: skip


@triton.jit
def is_nan(x):
    return x != x  # noqa: PLR0124


@triton.jit
def stepped(number, STEP: tl.constexpr):
    """The number, of which the compiler then knows that it is a multiple of STEP."""
    return number // STEP * STEP if STEP > 1 else number


@triton.jit
def coordinates(i, n1, n2, AXES: tl.constexpr):
    """Positions along three axes of which the inner ones have n1 and n2 elements."""
    inner = i
    middle = i * 0
    outer = i * 0
    if AXES > 1:
        inner = i % n2
        middle = i // n2
    if AXES > 2:
        outer = middle // n1
        middle = middle % n1
    return outer, middle, inner


@triton.jit
def place(i, n1, n2, s0, s1, s2, AXES: tl.constexpr, UNIT: tl.constexpr):
    """Elements from the first to that at position i of three axes."""
    outer, middle, inner = coordinates(i, n1, n2, AXES=AXES)
    at = inner if UNIT else inner * s2
    if AXES > 1:
        at += middle * s1
    if AXES > 2:
        at += outer * s0
    return at
