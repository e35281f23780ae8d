"""Kernels that came compiled: found by name, damaged ones compiled as if they were not there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from runtime_models import compiled, convolutions, image

import saccade
from saccade.backends.cpu import target
from saccade.backends.cpu.device import CPU
from saccade.backends.cpu.machines import MACHINES
from saccade.backends.cpu.runtime import objects, prebuilt
from saccade.backends.cpu.runtime.compiler import PRELOAD
from saccade.backends.cpu.runtime.prebuilt import Prebuilt, file_name, prebuilt_for, write_prebuilt
from saccade.backends.cpu.target import described_target, host_target
from saccade.errors import OptionError
from saccade.options import Options
from saccade.prebuild import main, prebuild

X = image(1, 3, 9, 9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    onnx.save(convolutions(), path)
    return path


@pytest.fixture(scope="module")
def made(model, tmp_path_factory):
    """Files for this machine as it is described."""
    folder = tmp_path_factory.mktemp("kernels") / prebuilt.PACKAGE
    counts = prebuild(folder, [f"{model}:1x3x9x9"], [host_target().machine])
    assert list(counts) == [host_target().machine] and counts[host_target().machine] > 5
    return folder


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """What was found is forgotten: tests name other folders.

    Caches, by which tiles are chosen, are the described machine's, whatever this one has.
    """
    known = MACHINES[host_target().machine]
    monkeypatch.setattr(target, "cache_sizes", lambda: (known.l1, known.l2, known.l3))
    host_target.cache_clear()
    prebuilt_for.cache_clear()
    yield
    host_target.cache_clear()
    prebuilt_for.cache_clear()


same_code = pytest.mark.skipif(
    described_target(host_target().machine).code != host_target().code,
    reason="this processor does not run the described one's code",
)


def started(**options):
    made = compiled(convolutions(), threads=1, **options)
    result = made(X)
    return result, made._started().backend.objects.compiled


@same_code
@pytest.mark.parametrize("cache_used", [True, False])
def test_a_first_start_compiles_nothing(cache, made, monkeypatch, cache_used):
    wanted, compiled_then = started(cache=False)
    assert compiled_then > 5
    monkeypatch.syspath_prepend(made.parent)
    prebuilt_for.cache_clear()
    result, compiled_now = started(cache=cache_used)
    assert compiled_now == 0 and np.array_equal(result, wanted)


def test_compilers_are_brought_unless_kernels_of_this_version_came(made, monkeypatch):
    options, checked = Options(), Options(checked=True)
    assert CPU.compiler(options) == PRELOAD
    monkeypatch.syspath_prepend(made.parent)
    prebuilt_for.cache_clear()
    there = host_target().code == described_target(host_target().machine).code
    assert CPU.compiler(options) == ("" if there else PRELOAD)
    other = next(name for name in MACHINES if described_target(name).code != host_target().code)
    assert CPU.compiler(Options(machine=other)) == CPU.compiler(checked) == PRELOAD
    monkeypatch.setattr(objects, "code_digest", lambda: "of another version")
    assert CPU.compiler(options) == PRELOAD


@same_code
def test_checked_code_is_not_taken_from_them(cache, made, monkeypatch):
    monkeypatch.syspath_prepend(made.parent)
    assert started(cache=False, checked=True)[1] > 5


@same_code
def test_a_damaged_kernel_is_compiled(cache, made, monkeypatch, tmp_path):
    (path,) = made.iterdir()
    whole, places = bytearray(path.read_bytes()), Prebuilt(path)._places
    for name, (offset, length) in places.items():
        if name.startswith("conv2d_"):
            whole[offset + length // 2] ^= 255
    wanted, _ = started(cache=False)
    package = tmp_path / prebuilt.PACKAGE
    package.mkdir()
    (package / path.name).write_bytes(whole)
    monkeypatch.syspath_prepend(tmp_path)
    prebuilt_for.cache_clear()
    result, compiled_now = started(cache=False)
    assert np.array_equal(result, wanted)
    assert 0 < compiled_now <= sum(name.startswith("conv2d_") for name in places)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"[]\n", b"{\n", b'{"a":1}\n', b'{"a":[0]}\n', b'{"a"']
)
def test_a_file_that_makes_no_sense_holds_nothing(tmp_path, content):
    path = tmp_path / "x.kernels"
    path.write_bytes(content)
    found = Prebuilt(path)
    assert "a" not in found and found.read("a") is None


def test_entries_come_back_and_others_are_not_there(tmp_path):
    path = tmp_path / "x.kernels"
    entries = {f"kernel_{i}": bytes([i]) * (1000 * i) for i in range(40)}
    write_prebuilt(path, entries)
    found = Prebuilt(path)
    assert all(found.read(name) == content for name, content in entries.items())
    assert "kernel_40" not in found and found.read("kernel_40") is None
    path.write_bytes(path.read_bytes()[:-5])
    assert Prebuilt(path).read("kernel_9") is None  # the last by name, cut short
    assert Prebuilt(path).read("kernel_1") == entries["kernel_1"]
    assert Prebuilt(tmp_path / "none").read("kernel_1") is None


def test_the_package_is_looked_for_on_the_path(monkeypatch, tmp_path):
    package = tmp_path / prebuilt.PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("")
    write_prebuilt(package / file_name("some code"), {"a": b"1"})
    monkeypatch.syspath_prepend(tmp_path)
    assert prebuilt_for("some code").read("a") == b"1"
    assert prebuilt_for("other code").read("a") is None


def test_each_processor_has_a_file(model, tmp_path, capsys):
    main(
        [
            str(tmp_path / "new"),
            f"{model}:1x3x9x9",
            "--machine",
            "zen5",
            "--machine",
            "desktop-avx2",
        ]
    )
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["zen5", "desktop-avx2"]
    names = {file_name(described_target(name).code) for name in ("zen5", "desktop-avx2")}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names


def test_machines_of_one_code_share_a_file(model, tmp_path):
    each = [prebuild(tmp_path / name, [f"{model}:1x3x9x9"], [name]) for name in ("zen4", "zen4-64")]
    both = prebuild(tmp_path / "both", [f"{model}:1x3x9x9"], ["zen4", "zen4-64"])
    assert both == each[0] | each[1]
    found = [
        {name for path in (tmp_path / folder).iterdir() for name in Prebuilt(path)._places}
        for folder in ("zen4", "zen4-64", "both")
    ]
    assert found[2] == found[0] | found[1] and len(list((tmp_path / "both").iterdir())) == 1


def test_free_axes_want_a_shape(model, tmp_path):
    with pytest.raises(OptionError, match="free axes: give a shape"):
        prebuild(tmp_path, [str(model)], ["zen4"])
    with pytest.raises(saccade.SaccadeError):
        prebuild(tmp_path, [f"{model}:1x4x9x9"], ["zen4"])
