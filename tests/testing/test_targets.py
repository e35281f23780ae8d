"""Targets that tests run: this machine's code, planned as a described machine would."""

import pytest
from llvmlite import binding as llvm

from saccade.backends.cpu import target
from saccade.backends.cpu.machines import MACHINES
from saccade.backends.cpu.target import described_target, foreign_target, host_target
from saccade.errors import OptionError
from saccade.testing.targets import ZEN4, lacking, runnable_target


@pytest.fixture
def older(monkeypatch):
    """A machine without AVX-512."""
    flags = {name: there and "avx512" not in name for name, there in target.host_flags().items()}
    monkeypatch.setattr(target, "host_flags", lambda: flags)
    host_target.cache_clear()
    yield
    host_target.cache_clear()


@pytest.mark.parametrize("name", ["zen4", "sapphire-rapids", "desktop-avx2"])
def test_code_is_the_host_s_and_choices_are_the_described_machine_s(name):
    host, found = host_target("avx2"), runnable_target("avx2", name)
    assert (found.isa, found.cpu, found.features) == ("avx2", host.cpu, host.features)
    known = MACHINES[name]
    assert (found.machine, found.l1, found.l2, found.l3) == (name, known.l1, known.l2, known.l3)


def test_bfloat16_is_taken_where_both_have_it():
    found = runnable_target("avx512")
    assert found.bf16 == host_target("avx512").bf16
    plain = runnable_target("avx512-plain")
    assert not plain.bf16 and plain.features == found.features


def test_an_older_machine_runs_what_it_can(older):
    found = runnable_target()
    assert (found.isa, found.l3, found.bf16) == ("avx2", ZEN4.l3, False)
    for isa in ("avx512", "avx512-plain"):
        assert lacking(isa) == "this machine's processor does not have avx512"
        with pytest.raises(OptionError):
            runnable_target(isa)
    assert lacking("native") is None and lacking("avx2") is None


def test_what_tests_plan_for_is_no_host_s(older):
    assert described_target("zen4") == ZEN4 and ZEN4.isa == "avx512" and ZEN4.bf16


def test_another_processor_s_code_is_emulated():
    assert runnable_target("neon") == foreign_target("neon") and lacking("neon") is None


@pytest.mark.skipif(host_target().isa == "neon", reason="described by nothing but LLVM")
def test_the_system_tells_of_features_what_llvm_does(request):
    if request.config.getoption("--isa") is not None:
        pytest.skip("plays a machine that has less than this one")
    found, asked = target.host_flags(), llvm.get_host_cpu_features()
    # An older Linux may not know of all; that it has what it says is what code relies on.
    assert [name for name, there in found.items() if there and not asked.get(name, False)] == []
    plain = ("avx2", "fma", "bmi2", "lzcnt", "avx512f", "avx512vl")
    assert all(found[name] == asked.get(name, False) for name in plain)


@pytest.mark.skipif(host_target().isa == "neon", reason="described by nothing but LLVM")
def test_a_processor_that_lacks_something_gets_code_of_its_own(monkeypatch):
    flags = {**target.host_flags(), "gfni": False, "movbe": False}
    monkeypatch.setattr(target, "host_flags", lambda: flags)
    host_target.cache_clear()
    try:
        found = host_target()
    finally:
        host_target.cache_clear()
    assert found.code != described_target(found.machine, found.isa).code
    assert "+fma" in found.features.split(",") and found.isa == host_target().isa
