"""What is worth measuring."""

import dataclasses

import pytest
from layout_graphs import backend
from tuning_fakes import convolutions, layout_of

from saccade.kernels.base import Variant
from saccade.kernels.cpu import all_kernels
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.tuning.candidates import Bounds, candidates, find


@pytest.fixture(scope="module")
def steps():
    return convolutions(layout_of())


def all_of(step, **more):
    return candidates(step.call, backend().candidates(step.call.op), Bounds(**more))


def test_best_estimates_first_and_no_more_than_asked(steps):
    for step in steps:
        found = all_of(step)
        assert 1 <= len(found) <= Bounds().most
        assert [c.micros for c in found] == sorted(c.micros for c in found)
        assert len({c.id for c in found}) == len(found)
        assert len(all_of(step, most=3)) <= 3


def test_only_what_is_near_the_best(steps):
    found = all_of(steps[2], within=1.2, most=99)
    assert all(c.micros <= 1.2 * found[0].micros for c in found)
    assert len(all_of(steps[2], within=9.0, most=99)) > len(found)


def test_every_kernel_that_could_win_is_tried(steps):
    """Kernels estimate less alike than the variants of one: each comes with its best."""
    launches = steps[0].launches

    def made_up(name, *micros, refuses=None):
        ways = [
            Variant(m, lambda m=m: (dataclasses.replace(launches[0], chunks=int(m)),))
            for m in micros
        ]
        return dataclasses.replace(
            CONV2D_DIRECT, name=name, variants=lambda _: ways, supports=lambda _: refuses
        )

    kernels = [
        made_up("a", 100, 110, 120, 200),
        made_up("b", 240, 241),
        made_up("c", 260),
        made_up("d", 1, refuses="no"),
    ]
    found = candidates(steps[0].call, kernels, Bounds(4))
    assert [(c.kernel.name, c.micros) for c in found] == [
        ("a", 100), ("a", 110), ("a", 120), ("b", 240),
    ]  # fmt: skip
    assert [c.kernel.name for c in candidates(steps[0].call, kernels, Bounds(2))] == ["a", "b"]


def test_the_first_variant_is_the_best_and_they_are_few(steps):
    for step in steps:
        for kernel in all_kernels():
            if isinstance(step.op, kernel.ops) and kernel.supports(step.call) is None:
                variants = list(kernel.variants(step.call))
                assert 1 <= len(variants) <= 128
                assert kernel.best(step.call).micros == min(v.micros for v in variants)


def test_variants_are_found_again(steps):
    for step in steps:
        for candidate in all_of(step):
            kernel = candidate.kernel
            assert find(kernel, step.call, candidate.id, candidate.rank) == candidate.launches
            assert find(kernel, step.call, candidate.id, 0) == candidate.launches
            assert find(kernel, step.call, candidate.id, 10**9) == candidate.launches
            assert find(kernel, step.call, "0" * 16, candidate.rank) is None
