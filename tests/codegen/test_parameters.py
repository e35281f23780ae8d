"""Arguments by name: what code declares, what launches give, and where they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.codegen.values import Int
from saccade.errors import LaunchError
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Scratch, Temp
from saccade.kernels.bind import Argument, Binder, Phase, Ref, Role
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.opdefs import Conv2d
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4

KNOWN = Parameters(("x", "y"), (("n", None), ("sizes", 2), ("none", 0)))


def phase(names="yx", **integers):
    places = {"x": Ref(1, 8, 40), "y": Ref(2, 0, 16), "z": Ref(3, 0, 4)}
    arguments = tuple(Argument(name, Role.INPUT, places[name]) for name in names)
    return Phase(None, arguments, {"sizes": (3, 4), "n": 5, "none": (), **integers}, 1)


def test_words_lie_as_the_code_declares_them():
    assert KNOWN.words(phase()) == [1, 8, 40, 2, 0, 16, 5, 3, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (phase("x"), r"lacks y \(a pointer\) and gives nothing"),
        (phase("xyz"), r"lacks nothing and gives z \(a pointer\)"),
        (phase("xz"), r"lacks y \(a pointer\) and gives z \(a pointer\)"),
        (phase(more=1), "lacks nothing and gives more"),
        (phase()._replace(integers={"n": 1, "none": (), "m": ()}), "lacks sizes and gives m"),
        (phase(sizes=(3, 4, 5)), r"sizes=\(3, 4, 5\), an array of 2"),
        (phase(sizes=3), "sizes=3, an array of 2"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_that_names_it(wrong, message):
    with pytest.raises(LaunchError, match=message):
        KNOWN.words(wrong)


@dataclass
class _Sizes:
    rows: Int
    columns: Int


def test_a_builder_remembers_what_was_declared():
    k = KernelBuilder("k", ZEN4)
    k.pointer("x")
    k.scratch("kept")
    k.integer("n")
    k.array("steps", 3)
    k.sizes(_Sizes, "of_")
    wanted = (("n", None), ("steps", 3), ("of_rows", None), ("of_columns", None))
    assert k.parameters == Parameters(("x", "kept"), wanted)


def test_a_name_is_declared_once():
    k = KernelBuilder("k", ZEN4)
    k.pointer("x")
    with pytest.raises(AssertionError, match="two buffers x"):
        k.scratch("x")
    k.integer("x")
    with pytest.raises(AssertionError, match="two integers x"):
        k.array("x", 2)
    with pytest.raises(AssertionError, match="after integers"):
        k.pointer("y")


def test_the_order_of_a_launch_is_nobody_s_business():
    x = np.arange(2 * 20 * 5 * 6, dtype=np.float32).reshape(2, 20, 5, 6) % 7
    w = np.arange(9 * 20 * 9, dtype=np.float32).reshape(9, 20, 3, 3) % 5
    op = Conv2d(padding=(1, 1, 1, 1))

    def transposed(call):
        return tuple(
            replace(
                one,
                operands=dict(reversed(one.operands.items())),
                integers=dict(reversed(one.integers.items())),
            )
            for one in CONV2D_DIRECT.launch(call)
        )

    def run(kernel):
        (result,) = run_kernel(
            kernel, op, [x, w], [nhwc_view(DType.F32, (2, 9, 5, 6))],
            inputs=[nhwc_view(DType.F32, x.shape), row_major(DType.F32, w.shape)],
            constant=(False, True),
        )  # fmt: skip
        return result

    assert run(launched_as(CONV2D_DIRECT, transposed)).tobytes() == run(CONV2D_DIRECT).tobytes()


class _Places:
    """Every kind of memory has a base of its own."""

    def input(self, index):
        return Ref(10 + index, 0, 0)

    def output(self, index):
        return Ref(20 + index, 0, 0)

    def packed(self, packing):
        return Ref(30, 0, packing.nbytes)

    def temp(self, operand):
        return Ref(40 + operand.index, 0, operand.nbytes)

    def scratch(self, before, nbytes):
        return Ref(50, before, nbytes)


OPERANDS = {
    "a": Scratch(100), "x": In(1), "y": Out(0), "w": Packed(Packing("zeros", (), (), 8)),
    "t": Temp(2, 70), "b": Scratch(10),
}  # fmt: skip


@pytest.mark.parametrize(
    ("alignment", "each", "share", "second"),
    [(64, False, 100, 320), (64, True, 128, 384), (256, False, 100, 512), (256, True, 256, 768)],
)
def test_a_binder_gives_each_operand_its_role_and_place(alignment, each, share, second):
    binder = Binder(3, alignment=alignment, align_each=each)
    bound = binder.phase(Launch(None, OPERANDS, {"n": 1}, 4), _Places())
    found = {name: (role, ref.base, ref.offset) for name, role, ref in bound.arguments}
    assert found == {
        "a": (Role.SCRATCH, 50, 0), "x": (Role.INPUT, 11, 0), "y": (Role.OUTPUT, 20, 0),
        "w": (Role.PACKED, 30, 0), "t": (Role.TEMP, 42, 0), "b": (Role.SCRATCH, 50, second),
    }  # fmt: skip
    assert bound.arguments[0].ref.nbytes == share
    assert (bound.integers, bound.chunks) == ({"n": 1}, 4)


def test_a_workspace_holds_the_largest_of_all_phases():
    more = {"t": Temp(2, 90), "u": Temp(0, 5), "b": Scratch(10)}
    launches = [Launch(None, operands, {}, 1) for operands in (OPERANDS, more)]
    for alignment, nbytes in ((64, 320 + 64), (256, 512 + 256), (1, 300 + 30)):
        found = Binder(3, alignment=alignment).workspace(launches)
        assert found.temps == {2: 90, 0: 5}
        assert found.scratch == nbytes
