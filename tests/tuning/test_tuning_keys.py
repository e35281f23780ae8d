"""Keys name everything that a call is, and nothing that changes between processes."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from tuning_fakes import convolutions, layout_of

from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.backends.cpu.target import described_target
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.opdefs import Conv2d
from saccade.tuning.keys import call_key, config_record, variant_id

TESTS = Path(__file__).parents[1]


def a_call():
    return convolutions(layout_of())[0].call


def changed(call):
    """For each field that calls compare by, another call."""
    view = call.inputs[0]
    other = view._replace(strides=tuple(2 * s for s in view.strides))
    typed = View(DType.F16, view.shape, view.strides)
    return {
        "op": [dataclasses.replace(call.op, stride=(2, 2)), dataclasses.replace(call.op, groups=2)],
        "inputs": [(other, *call.inputs[1:]), (typed, *call.inputs[1:])],
        "outputs": [(other,)],
        "constant": [(True,) * len(call.constant)],
        "target": [described_target("zen4", "avx2")],
        "threads": [call.threads + 1],
        "exact": [not call.exact],
    }


def test_every_field_of_a_call_is_in_its_key():
    call = a_call()
    known = changed(call)
    assert set(known) == {f.name for f in dataclasses.fields(Call) if f.compare}
    keys = {call_key(call)}
    for name, values in known.items():
        for value in values:
            keys.add(call_key(dataclasses.replace(call, **{name: value})))
    assert len(keys) == 1 + sum(map(len, known.values()))


def test_a_field_that_nobody_told_of_is_in_the_key_too():
    @dataclasses.dataclass(frozen=True)
    class Newer(Call):
        precision: str = "fp32"

    call = a_call()
    fields = {f.name: getattr(call, f.name) for f in dataclasses.fields(call) if f.name != "memo"}
    assert call_key(Newer(**fields)) != call_key(Newer(**fields, precision="bf16"))


def test_keys_can_be_read():
    key = call_key(a_call())
    assert key.startswith("Conv2d(padding=[1,1,1,1]")
    assert "const float32[32,16,3,3]" in key
    assert "threads 2" in key


def test_operators_inside_of_operators_can_be_read():
    pair = SeparableConv2d(Conv2d(padding=(1, 1, 1, 1), groups=8), Conv2d(), 1)
    key = call_key(dataclasses.replace(a_call(), op=pair))
    assert key.startswith("SeparableConv2d(depthwise=Conv2d(stride=[1,1],padding=[1,1,1,1],")
    assert key != call_key(
        dataclasses.replace(a_call(), op=dataclasses.replace(pair, pointwise=pair.depthwise))
    )


def test_keys_and_identities_are_the_same_in_another_process():
    code = (
        "from tuning_fakes import layout_of\n"
        "from saccade.tuning.keys import call_key, variant_id\n"
        "for s in layout_of().steps: print(call_key(s.call), variant_id(s.launches))"
    )
    path = f"{TESTS / 'tuning'}:{TESTS / 'layout'}"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:0] = {path.split(':')!r}\n{code}"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    wanted = [f"{call_key(s.call)} {variant_id(s.launches)}" for s in layout_of().steps]
    assert found.stdout.splitlines() == wanted


def test_an_identity_changes_with_anything_in_a_launch():
    (launch,) = convolutions(layout_of())[1].launches
    others = [
        dataclasses.replace(launch, chunks=launch.chunks + 1),
        dataclasses.replace(launch, integers={**launch.integers, "rows": 77}),
        dataclasses.replace(launch, operands={"x": launch.operands["x"]}),
        dataclasses.replace(launch, config=dataclasses.replace(launch.config, rows=1)),
    ]
    assert len({variant_id([one]) for one in (launch, *others)}) == 5
    (record,) = config_record([launch])
    assert record["rows"] == launch.config.rows
    assert record["chunks"] == launch.chunks


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_a_key_names_the_instruction_set(isa):
    call = dataclasses.replace(a_call(), target=described_target("zen4", isa))
    assert f"; {isa}," in call_key(call)
