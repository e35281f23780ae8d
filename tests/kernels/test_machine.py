"""Speeds that estimates divide by."""

from dataclasses import replace

import pytest

from saccade.backends.cpu.machines import MACHINES, nearest
from saccade.backends.cpu.target import Target, described_target, instructions_of
from saccade.errors import OptionError
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.machine import machine, pairs_pay, ports
from saccade.kernels.machine import Machine
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major

TARGET = Target("avx512", 512, 32, "", "", "", machine="zen4")


def test_a_target_is_as_fast_as_its_machine():
    zen4 = machine(TARGET)
    assert zen4.name == "zen4" and zen4.flops == 2 * 16 * 3.7e3 and zen4.pair_flops == zen4.flops
    assert machine(replace(TARGET, bf16=True)).pair_flops == 2 * zen4.flops
    assert machine(replace(TARGET, machine="zen5")).flops > 2 * zen4.flops
    assert machine(replace(TARGET, l3=5 << 20)).cache == 5 << 20


def test_code_does_not_depend_on_the_description():
    other = replace(TARGET, machine="zen5")
    assert repr(other) == repr(TARGET) and other != TARGET


def test_traffic_comes_from_the_cache_until_it_does_not_fit():
    m = Machine(1e5, 2e5, 2e4, 5e4, 1.0, 2.0**24)
    assert m.traffic(2.0**20, 2) == 2.0**20 / 1e5
    assert m.traffic(0.0, 2) == 0
    assert m.traffic(2.0**30, 2) == pytest.approx(2.0**30 / 2e4, rel=0.02)
    times = [m.traffic(2.0**24 * share, 2) for share in (0.4, 0.5, 0.8, 1.2, 1.5, 2.0)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("isa", "vendor", "family", "model", "name"),
    [
        ("avx512", "AuthenticAMD", 25, 17, "zen4"),
        ("avx512", "AuthenticAMD", 26, 2, "zen5"),
        ("avx512", "AuthenticAMD", 99, 1, "zen4"),
        ("avx512", "GenuineIntel", 6, 207, "sapphire-rapids"),
        ("avx512", "GenuineIntel", 6, 85, "sapphire-rapids"),
        ("amx", "GenuineIntel", 6, 207, "sapphire-rapids-amx"),
        ("amx", "GenuineIntel", 6, 220, "sapphire-rapids-amx"),
        ("avx2", "GenuineIntel", 6, 85, "desktop-avx2"),
        ("avx2", "AuthenticAMD", 25, 1, "zen3"),
        ("avx2", "AuthenticAMD", 25, 33, "zen3"),
        ("avx2", "AuthenticAMD", 23, 49, "zen3"),
        ("avx512", "SomebodyElse", 1, 1, "zen4"),
        ("neon", "", 0, 0, "neoverse-n1"),
    ],
)
def test_a_processor_counts_as_the_nearest_machine(isa, vendor, family, model, name):
    assert nearest(isa, vendor, family, model).name == name


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_is_a_target(name):
    target = described_target(name)
    assert (target.isa, target.machine) == (MACHINES[name].isa, name)
    assert (target.l1, target.l2, target.l3) == (
        MACHINES[name].l1, MACHINES[name].l2, MACHINES[name].l3,
    )  # fmt: skip


def test_an_older_instruction_set_of_a_machine():
    target = described_target("zen5", "avx2")
    assert (target.isa, target.lanes, target.registers, target.bf16) == ("avx2", 8, 16, False)
    assert machine(target).flops == machine(described_target("zen5")).flops / 2


def test_tiles_of_matrices_are_an_instruction_set_of_their_own():
    newest, older = described_target("sapphire-rapids-amx"), described_target("sapphire-rapids")
    assert newest.tiles and newest.isa == "amx" and newest.vector_isa == "avx512"
    wide = described_target("sapphire-rapids-amx", "avx512")
    assert not wide.tiles and wide.isa == "avx512" and wide.bf16
    assert described_target("sapphire-rapids-amx", "avx2").lanes == 8
    assert newest.code == wide.code == older.code  # vectors' code serves both
    assert instructions_of(newest) - instructions_of(wide) == {"amx_tile", "amx_bf16"}
    assert machine(newest).pair_flops > 10 * machine(wide).pair_flops
    with pytest.raises(OptionError, match="sapphire-rapids"):
        described_target("sapphire-rapids", "amx")


def test_where_pairs_are_slow_bfloat16_is_storage():
    for name, pay in (("zen4", True), ("zen5", True), ("sapphire-rapids", False), ("zen3", False)):
        assert pairs_pay(described_target(name)) is pay


@pytest.mark.parametrize(
    ("name", "isa"), [("pentium", "native"), ("desktop-avx2", "avx512"), ("zen4", "neon")]
)
def test_what_is_no_machine_is_refused(name, isa):
    with pytest.raises(OptionError, match=name):
        described_target(name, isa)


@pytest.mark.parametrize("name", MACHINES)
def test_direct_sums_are_estimated_by_the_machine_that_is_described(name):
    """Enough of them in tiles that fit: little more than the machine's peak allows."""
    target = described_target(name)
    x, y = (nhwc_view(DType.F32, (1, c, 56, 56)) for c in (256, 128))
    w = row_major(DType.F32, (128, 256, 1, 1))
    call = Call(Conv2d(), (x, w), (y,), (False, True), target, threads=2)
    best = next(iter(CONV2D_DIRECT.variants(call)))
    floor = 2 * 56 * 56 * 256 * 128 / (2 * machine(target).flops)
    assert 1.0 < best.micros / floor < 1.35


def test_ports_are_those_of_the_described_core():
    zen4, zen5 = (ports(described_target(name)) for name in ("zen4", "zen5"))
    assert (zen4.products, zen4.halves, zen4.hungry) == (1, True, False)
    assert (zen5.products, zen5.halves, zen5.hungry) == (2, False, True)
    older = ports(described_target("zen5", "avx2"))
    assert (older.products, older.halves, older.hungry) == (2, False, False)
    assert (zen4.near, zen4.far) == (16, 6)
