"""The kernel of a call, and which of its ways: bits first, then code that exists."""

import dataclasses

import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, Launch, Variant
from saccade.kernels.cpu.base import CpuKernel
from saccade.kernels.cpu.movement.copy_code import CopyConfig
from saccade.layout.select import Decisions, Selector
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.targets import ZEN4

CALL = Call(
    Conv2d(),
    (nhwc_view(DType.F32, (1, 8, 6, 6)), row_major(DType.F32, (8, 8, 1, 1))),
    (nhwc_view(DType.F32, (1, 8, 6, 6)),),
    (False, True),
    ZEN4,
    2,
)


def kernel(name, variants):
    """Ways by name: `variants(call)` gives (name, microseconds, rounding)."""

    def ways(call):
        for way, micros, rounding in variants(call):
            launches = (Launch(CopyConfig(way, 4, 1), {}, {}, 1),)
            yield Variant(micros, lambda launches=launches: launches, rounding)

    return CpuKernel(
        name, (Conv2d,), CopyConfig, lambda _call: None, ways, lambda _k, _config: None
    )


class Kernels:
    """A backend of given kernels."""

    target = ZEN4
    idle = False

    def __init__(self, *kernels, nominal_threads=2, reuse_slowdown=1.5):
        self._kernels = kernels
        self.nominal_threads = nominal_threads
        self.reuse_slowdown = reuse_slowdown

    def candidates(self, _op):
        return self._kernels


def chosen(*kernels, there=None, call=CALL, **backend):
    """Name of the way that is taken where code exists for the ways `there`."""
    available = None if there is None else (lambda _kernel, config: config.way in there)
    selector = Selector(Kernels(*kernels, **backend), available)
    choice, (launch,) = selector.select(call), selector.launches(call)
    return choice.kernel.name, launch.config.way


def ways(*known):
    return kernel("k", lambda _call: known)


@pytest.mark.parametrize("there", [None, (), ("second",), ("first",), ("first", "second")])
def test_code_that_rounds_otherwise_is_never_taken(there):
    assert chosen(ways(("first", 1.0, "a"), ("second", 1.1, "b")), there=there) == ("k", "first")


@pytest.mark.parametrize(
    ("micros", "there", "taken"),
    [
        (1.4, None, "first"), (1.4, (), "first"), (1.4, ("second",), "second"),
        (1.4, ("first", "second"), "first"), (1.6, ("second",), "first"),
    ],
)  # fmt: skip
def test_code_with_the_same_bits_is_taken_unless_it_is_much_slower(micros, there, taken):
    found = ways(("first", 1.0, "a"), ("other", 1.1, "b"), ("second", micros, "a"))
    assert chosen(found, there=there) == ("k", taken)


def test_the_kernel_does_not_depend_on_which_code_exists():
    fast, slow = (
        kernel(name, lambda _call, name=name, micros=micros: [(name, micros, None)])
        for name, micros in (("fast", 1.0), ("slow", 1.01))
    )
    for there in ((), ("slow",), ("fast",)):
        assert chosen(slow, fast, there=there) == ("fast", "fast")


def test_kernel_and_rounding_are_those_of_a_nominal_team():
    """For eight threads other ways and another kernel would be faster."""

    def whole_or_parts(call):
        found = [("whole", 8.0 / call.threads, "whole"), ("parts", 5.0, "parts")]
        return sorted(found, key=lambda way: way[1], reverse=call.threads > 4)

    serial = kernel("serial", lambda _call: [("serial", 4.5, None)])
    found = kernel("k", whole_or_parts)
    for threads in (1, 2, 3, 8, 64):
        call = dataclasses.replace(CALL, threads=threads)
        assert chosen(found, serial, call=call) == ("k", "whole")


@pytest.mark.parametrize("team", [1, 2, 5])
def test_the_backend_says_how_wide_the_nominal_team_is(team):
    found = kernel("k", lambda call: [("wide" if call.threads > 2 else "narrow", 1.0, "a")])
    other = kernel("other", lambda call: [("other", 0.5 if call.threads > 2 else 2.0, "b")])
    for threads in (1, 2, 5):
        call = dataclasses.replace(CALL, threads=threads)
        name, _ = chosen(found, other, call=call, nominal_threads=team)
        assert name == ("other" if team > 2 else "k")


@pytest.mark.parametrize(("slowdown", "taken"), [(1.2, "first"), (1.5, "second"), (3.0, "second")])
def test_the_backend_says_how_much_slower_code_may_be_that_exists(slowdown, taken):
    found = ways(("first", 1.0, "a"), ("second", 1.4, "a"))
    assert chosen(found, there=("second",), reuse_slowdown=slowdown) == ("k", taken)


def test_a_team_s_own_tiles_are_taken():
    """Of equal bits the way that is best for the team that there is."""

    def tiles(call):
        return [(f"tile for {call.threads}", 1.0, "a"), ("tile for 2", 1.2, "a")]

    found = kernel("k", tiles)
    call = dataclasses.replace(CALL, threads=8)
    assert chosen(found, call=call) == ("k", "tile for 8")
    assert chosen(found, call=call, there=("tile for 2",)) == ("k", "tile for 2")
    narrow = chosen(found, call=CALL, nominal_threads=8)
    assert narrow == ("k", "tile for 2")


def test_a_copy_of_a_call_has_a_memo_of_its_own():
    """With its source's, it had its source's hash, so that equal calls differed."""
    hash(CALL)
    CALL.memo["of a kernel"] = "derived from two threads"
    copy = dataclasses.replace(CALL, threads=8)
    assert "of a kernel" not in copy.memo and copy.memo is not CALL.memo
    again = dataclasses.replace(copy, threads=2)
    assert again == CALL and hash(again) == hash(CALL) and copy != CALL
    fields = (CALL.op, CALL.inputs, CALL.outputs, CALL.constant, CALL.target)
    assert hash(copy) == hash(Call(*fields, threads=8))
    with pytest.raises(ValueError, match="memo"):
        dataclasses.replace(CALL, memo={})


def test_equal_calls_are_decided_once():
    asked = []
    found = kernel("k", lambda call: asked.append(call) or [("only", 1.0, None)])
    selector = Selector(Kernels(found))
    first = selector.select(CALL)
    count = len(asked)
    assert selector.select(dataclasses.replace(CALL)) is first and len(asked) == count


class Asked:
    """A kernel that counts how often it is asked for its ways."""

    def __init__(self, *known):
        self.count = 0
        self.kernel = kernel("k", lambda _call: self._ways(known))

    def _ways(self, known):
        self.count += 1
        return known

    def taken(self, decisions, there, *, idle=False, timings=None):
        backend = Kernels(self.kernel)
        backend.idle = idle
        available = None if there is None else (lambda _kernel, config: config.way in there)
        selector = Selector(backend, available, timings, decisions)
        assert selector.select(CALL).kernel is self.kernel
        (launch,) = selector.launches(CALL)
        return launch.config.way


FIRST_AND_SECOND = (("first", 1.0, "a"), ("second", 1.1, "a"))


def test_other_plans_decide_what_is_new_to_them():
    decisions, asked = Decisions(), Asked(*FIRST_AND_SECOND)
    assert asked.taken(decisions, ("first", "second")) == "first"
    assert asked.taken(decisions, ("first", "second")) == "first" and asked.count == 1


def test_what_exists_is_asked_in_each_plan():
    """Neither a way without code, nor a walk that another plan has ended, stays with a call."""
    decisions, asked = Decisions(), Asked(*FIRST_AND_SECOND)
    assert asked.taken(decisions, ("second",)) == "second"
    assert asked.taken(decisions, ("second",)) == "second"
    assert asked.taken(decisions, ("first", "second")) == "first"
    assert asked.taken(decisions, ()) == "first"


def test_before_anything_is_compiled_all_code_counts_as_there():
    decisions, asked = Decisions(), Asked(*FIRST_AND_SECOND)
    assert asked.taken(decisions, ("first", "second"), idle=True) == "first"
    assert asked.taken(decisions, ("second",)) == "second"


def test_measured_plans_decide_for_themselves():
    class Measured:
        def tuned(self, call, kernels):
            return None

    decisions, asked = Decisions(), Asked(*FIRST_AND_SECOND)
    asked.taken(decisions, None)
    assert asked.taken(decisions, None, timings=Measured()) == "first" and asked.count == 2
    assert len(decisions.known) == 1


def test_many_decisions_are_forgotten(monkeypatch):
    monkeypatch.setattr("saccade.layout.select._MOST_CALLS", 0)
    decisions, asked = Decisions(), Asked(*FIRST_AND_SECOND)
    asked.taken(decisions, None)
    assert asked.taken(decisions, None) == "first" and asked.count == 2
