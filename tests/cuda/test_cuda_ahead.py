"""Weights that a launch asks the L2 cache for, so that the next one finds them there."""

from __future__ import annotations

import ctypes

import numpy as np
from hopper_model import run_where_it_compiles

from saccade.backends.cuda.ahead import AHEAD
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.codegen.entry import Entry
from saccade.backends.cuda.codegen.functions import text_of
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.testing.fake_encoders import FakeEncoders

POINTERS, BASES = ("x", "w", "b"), np.array([1 << 20, 1 << 24])
PLAIN = Entry(
    "movement.scatter_code:none", (("heads", "i32"),), ("rows", "count"), {"LAST": -1, "BLOCK": 64}
)


def code(number, weights=None, *, bias=(), chunks=3, parameters=(*POINTERS, "n", *AHEAD)):
    """A launch of x, in the arena, and of packed constants in table entry 1."""
    cubin = Cubin("kernel", b"", parameters, 4, 0, chained=parameters[-1] in AHEAD)
    refs = {
        "x": Ref(0, 64, 640),
        "w": Ref(1, *(weights or (0, 16))),
        "b": Ref(1, *(bias or (0, 16))),
    }
    packed = {"w": weights, "b": bias}
    arguments = tuple(
        Argument(name, Role.PACKED if packed.get(name) else Role.INPUT, ref)
        for name, ref in refs.items()
    )
    return check_arguments(PhaseCode(number, Phase(None, arguments, {"n": 5}, chunks), cubin, 1))


def asked(*codes):
    """What each launch's last arguments are."""
    launches = Launches(codes, 2, FakeEncoders())
    launches.point(BASES)
    read = ctypes.c_int64.from_address
    # Behind them come the two pointers that all code of Triton's takes.
    return [tuple(read(at).value for at in one.table.tolist()[-5:-2]) for one in launches.each]


def test_each_launch_asks_for_the_weights_of_the_next():
    first, second, last = code(0), code(1, (256, 1000), bias=(2048, 64)), code(2, (4096, 48))
    # Whole multiples of 16 bytes; a program's share is rounded up.
    assert asked(first, second, last) == [
        ((1 << 24) + 256, 992, 336), ((1 << 24) + 4096, 48, 16), (0, 0, 0)
    ]  # fmt: skip


def test_nothing_is_asked_for_what_is_not_constant_or_fills_the_cache():
    assert asked(code(0), code(1)) == [(0, 0, 0)] * 2
    large = (1 << 23) + 16
    assert asked(code(0), code(1, (0, large)))[0] == (0, 0, 0)
    assert asked(code(0), code(1, (0, large - 16)))[0] == (1 << 24, large - 16, 2796208)


def test_weights_are_followed_where_they_go():
    launches = Launches([code(0), code(1, (256, 512))], 2, FakeEncoders())
    launches.point(BASES)
    moved = np.array([1 << 20, 1 << 25])
    assert launches.point(moved) == [0, 1]
    place = launches.each[0].table.tolist()[-5]
    assert ctypes.c_int64.from_address(place).value == (1 << 25) + 256


def test_code_that_does_not_wait_by_itself_is_not_given_any():
    plain = code(0, parameters=(*POINTERS, "n"))
    launches = Launches([plain, code(1, (256, 512))], 2, FakeEncoders())
    assert len(launches.each[0].table) == len(POINTERS) + 1 + 2


def test_it_is_asked_before_the_launch_waits():
    text = text_of(PLAIN, chained=True)
    order = ("    ask(ahead", "gdc_wait()", "    core(", "gdc_launch_dependents()")
    assert sorted(order, key=text.index) == [*order]
    assert "ask" not in text_of(PLAIN)


COMPILED = """
from test_cuda_ahead import AHEAD, PLAIN
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.codegen.disassemble import disassembled
cubin = compile_entry(PLAIN, 90, ())
assert cubin.symbol == "movement_scatter_none"  # which is what profilers show
assert cubin.parameters[-3:] == AHEAD and cubin.chained
code = disassembled(cubin)
# The bulk prefetch, and the wait for the launch before.
assert 0 < code.index("UBLKPF.L2") < code.index("ACQBULK")
assert not set(AHEAD) & set(compile_entry(PLAIN, 80, ()).parameters)
"""


def test_code_asks_before_it_waits():
    run_where_it_compiles(COMPILED)
