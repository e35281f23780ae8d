"""Tensor maps as arguments of launches: what the driver is asked for, and where they lie."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from saccade.backends.cuda.codegen.compile import Cubin, decode_cubin, encode_cubin
from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.backends.cuda.runtime.tensor_maps import encode, words
from saccade.errors import LaunchError
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.testing.fake_encoders import FakeEncoders


class Recorder:
    """Stands in for the driver: keeps what it is asked for as plain numbers."""

    def __init__(self, status=0):
        self.status, self.asked = status, []

    def _take(self, mode, *arguments):
        numbers = [list(a) if isinstance(a, ctypes.Array) else getattr(a, "value", None)
                   for a in arguments]  # fmt: skip
        self.asked.append((mode, *numbers[1:]))
        return self.status

    def cuTensorMapEncodeTiled(self, *arguments):  # noqa: N802
        return self._take("tiled", *arguments)

    def cuTensorMapEncodeIm2col(self, *arguments):  # noqa: N802
        return self._take("im2col", *arguments)


def test_a_tiled_map_is_asked_for_as_the_driver_wants_it():
    descriptor = Descriptor("w", "bf16", (512, 32), ("k", "depth"), ("pitch", 1))
    driver = Recorder()
    tensor_map = encode(descriptor, 4096, {"k": 40, "depth": 96, "pitch": 128}, driver)
    assert ctypes.sizeof(tensor_map) == 128 and ctypes.addressof(tensor_map) % 64 == 0
    # Type, rank, address, sizes, strides in bytes, box, steps; then interleave, 64-byte swizzle,
    # promotion and fill. The innermost comes first; no box has more than 256 rows.
    assert driver.asked == [
        ("tiled", 9, 2, 4096, [96, 40], [256], [32, 256], [1, 1], 0, 2, 2, 0)
    ]  # fmt: skip


def test_an_im2col_map_is_asked_for_as_the_driver_wants_it():
    descriptor = Descriptor(
        "x", "fp16", (128, 64), ("n", "h", "w", 64), (5000, 400, 80, 1), (-3, -1), ("u", 7), (2, 4)
    )
    driver = Recorder()
    encode(descriptor, 32, {"n": 2, "h": 10, "w": 5, "u": -9}, driver)
    assert driver.asked == [
        ("im2col", 6, 4, 32, [64, 5, 10, 2], [160, 800, 10000], [-1, -3], [7, -9], 64, 128,
         [1, 4, 2, 1], 0, 3, 2, 0)
    ]  # fmt: skip


def test_a_box_of_more_than_a_block_steps_over_rows_and_columns():
    sizes, strides = ("n", "h", "w", 64), (5000, 400, 80, 1)
    descriptor = Descriptor(
        "x", "fp16", (1, 1, 16, 32), sizes, strides, steps=(2, 2), box=(1, 9, 16, 32)
    )
    driver = Recorder()
    encode(descriptor, 32, {"n": 2, "h": 10, "w": 5}, driver)
    # Boxes are counted with what steps leave out of them.
    assert driver.asked == [
        ("tiled", 6, 4, 32, [64, 5, 10, 2], [160, 800, 10000], [32, 32, 18, 1], [1, 2, 2, 1],
         0, 2, 2, 0)
    ]  # fmt: skip
    assert descriptor.swizzle == 64 and not descriptor.im2col


def test_sizes_and_strides_follow_the_map_outermost_first():
    descriptor = Descriptor("x", "fp16", (128, 64), ("n", 3), ("pitch", 1))
    found = words(descriptor, {"n": 2, "pitch": 1 << 33})
    assert [(type(w), w.value) for w in found] == [
        (ctypes.c_int32, 2), (ctypes.c_int32, 3), (ctypes.c_int64, 1 << 33), (ctypes.c_int64, 1),
    ]  # fmt: skip


def test_arguments_follow_the_bases_as_maps_and_as_pointers():
    one = Descriptor("x", "fp16", (128, 64), ("n", "m"), ("pitch", 1))
    cubin = Cubin("kernel", b"", ("x", "y", "n"), 4, 0, descriptors=(one,))
    refs = {"x": Ref(1, 32, 640), "y": Ref(0, 64, 640)}
    arguments = tuple(Argument(name, Role.INPUT, ref) for name, ref in refs.items())
    phase = Phase(None, arguments, {"n": 5, "m": 7, "pitch": 8}, 3)
    code = check_arguments(PhaseCode(0, phase, cubin, 1))
    launches = Launches([code, code], 2, FakeEncoders())
    assert launches.point(np.array([4096, 8192])) == [0, 1]
    for launch in launches.each:
        places = launch.table.tolist()
        values = [ctypes.c_int64.from_address(at).value for at in places]
        assert values[1:] == [5, 7, 8, 1, 4096 + 64, 5, 0, 0]
        assert values[0] == 8192 + 32 and places[0] % 64 == 0
    assert launches.point(np.array([4096, 1024])) == [0, 1]
    values = [ctypes.c_int64.from_address(one.table.tolist()[0]).value for one in launches.each]
    assert values == [1024 + 32] * 2


def test_an_integer_that_nothing_takes_is_refused():
    one = Descriptor("x", "fp16", (128, 64), ("n", "m"), ("pitch", 1))
    cubin = Cubin("kernel", b"", ("x",), 4, 0, descriptors=(one,))
    arguments = (Argument("x", Role.INPUT, Ref(0, 0, 640)),)
    phase = Phase(None, arguments, {"n": 5, "m": 7, "pitch": 8, "other": 1}, 3)
    with pytest.raises(LaunchError, match="other"):
        check_arguments(PhaseCode(0, phase, cubin, 1))


def test_a_map_that_the_driver_refuses_raises():
    descriptor = Descriptor("x", "fp16", (128, 64), (2, 3), (64, 1))
    with pytest.raises(LaunchError, match="tensor map of x: error 1"):
        encode(descriptor, 8, {}, Recorder(1))


def test_cubins_keep_their_descriptors():
    one = Descriptor(
        "x", "fp16", (128, 64), ("n", 3), (64, 1), (-1, -1), ("u", 2), (2, 2)
    )  # fmt: skip
    other = Descriptor("w", "fp16", (64, 64), (2, "k"), ("k", 1))
    cubin = Cubin("kernel", b"\n\0code", ("x", "w", "n"), 12, 99, True, (one, other))
    assert decode_cubin(encode_cubin(cubin)) == cubin
