"""Bundles: one file runs where neither LLVM nor the model's file is, or says why it does not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from runtime_models import convolutions, two_inputs

import saccade
from saccade import bundled, bundlefile
from saccade.backends.cpu.store import bundled as cpu_bundled
from saccade.testing.compare import BF16_TOLERANCE, FP32_TOLERANCE

SHAPES = ({"x": (1, 3, 9, 7)}, {"x": (2, 3, 5, 6)})
TOLERANCE = {"fp32": FP32_TOLERANCE, "bf16": BF16_TOLERANCE}


def image(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A bundle, and what it must answer."""
    path = tmp_path_factory.mktemp("bundle") / "model.saccade"
    model = saccade.compile(convolutions().SerializeToString(), threads=2, cache=False)
    size = model.save(path, *SHAPES)
    assert size == path.stat().st_size
    return path, [(image(*s["x"]), model(image(*s["x"]))) for s in SHAPES]


def test_a_bundle_gives_the_same_bits(made):
    path, answers = made
    model = saccade.compile(path)
    assert [info.name for info in model.inputs] == ["x"]
    for x, y in (*answers, *answers):
        assert np.array_equal(model(x), y)
    assert model.plan is not None and saccade.compile(str(path))(answers[0][0]).shape


def test_it_needs_no_compiler_and_writes_nothing(made, tmp_path):
    path, answers = made
    np.savez(tmp_path / "a.npz", x=answers[0][0], y=answers[0][1])
    copy = tmp_path / "model.saccade"
    shutil.copy(path, copy)
    copy.chmod(0o444)
    code = f"""
import sys
for name in ("llvmlite", "onnx", "onnx_ir"):
    sys.modules[name] = None
import numpy as np, saccade
a = np.load({str(tmp_path / "a.npz")!r})
print(np.array_equal(saccade.compile({str(copy)!r})(a["x"]), a["y"]))
"""
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "SACCADE_CACHE_DIR": str(cache)},
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
    assert not cache.exists()


def test_other_sizes_are_refused(made):
    path, _ = made
    with pytest.raises(saccade.OptionError, match="x=1x3x9x7; x=2x3x5x6 alone") as caught:
        saccade.compile(path)(image(1, 3, 9, 8))
    assert "saccade build --shape" in str(caught.value)
    with pytest.raises(saccade.InputError, match="must be float32"):
        saccade.compile(path)(np.zeros((1, 3, 9, 7)))


def test_several_inputs_by_name_and_fixed_sizes(tmp_path):
    model = saccade.compile(two_inputs().SerializeToString(), cache=False)
    shapes = {info.name: tuple(3 if isinstance(s, str) else s for s in info.shape)
              for info in model.inputs}  # fmt: skip
    model.save(tmp_path / "two.saccade", shapes)
    feeds = {i.name: np.full(shapes[i.name], 2, i.dtype) for i in model.inputs}
    for name, want in model.run(feeds).items():
        assert np.array_equal(saccade.compile(tmp_path / "two.saccade").run(feeds)[name], want)


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_is_refused_or_padding(made, tmp_path, seed):
    path, answers = made
    rng = random.Random(seed)
    content = bytearray(path.read_bytes())
    at = rng.randrange(8192 if seed % 2 else len(content))
    content[at] ^= 1 << rng.randrange(8)
    damaged = tmp_path / "damaged.saccade"
    damaged.write_bytes(content)
    try:
        results = [saccade.compile(damaged)(x) for x, _ in answers]
    except saccade.ModelError as error:
        assert str(damaged) in str(error) or "ONNX" in str(error), error
        return
    assert all(np.array_equal(y, want) for y, (_, want) in zip(results, answers, strict=True))


@pytest.mark.parametrize("length", [0, 1, 15, 16, 40, 56, 100, 4095, 4096, 5000, -4097, -1])
def test_a_short_file_is_refused(made, tmp_path, length):
    path, answers = made
    content = path.read_bytes()
    short = tmp_path / "short.saccade"
    short.write_bytes(content[:length])
    try:
        results = [saccade.compile(short)(x) for x, _ in answers]
    except saccade.ModelError:
        return
    assert length == -1  # of padding
    assert np.array_equal(results[0], answers[0][1])


def test_another_version_of_the_format_is_named(made, tmp_path):
    older = tmp_path / "older.saccade"
    older.write_bytes(b"saccade bundle 1" + made[0].read_bytes()[16:])
    with pytest.raises(saccade.ModelError, match="not a bundle of this version of the format"):
        saccade.compile(older)


def test_what_is_no_regular_file_is_opened_without_a_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not bundlefile.is_bundle(tmp_path / "pipe")
    with pytest.raises(saccade.ModelError, match="a pipe, not a regular file"):
        bundlefile.open_bundle(tmp_path / "pipe")


def test_another_version_device_or_processor(made, tmp_path, monkeypatch):
    path, _ = made
    with pytest.raises(saccade.OptionError, match="built for precision='fp32', not 'bf16'"):
        saccade.compile(path, precision="bf16")
    with pytest.raises(saccade.OptionError, match="built for device='cpu', not 'cuda'"):
        saccade.compile(path, device="cuda")
    monkeypatch.setattr(cpu_bundled, "host_instructions", lambda: {"fpu", "sse2"})
    with pytest.raises(saccade.ModelError, match="this one lacks"):
        saccade.compile(path)
    monkeypatch.undo()
    monkeypatch.setattr(bundled, "VERSION", "9.9")
    with pytest.raises(saccade.ModelError, match=r"built by Saccade .*, this is 9\.9: build again"):
        saccade.compile(path)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"exact": "no"}, "exact='no' must be True or False"),
        ({"turbo": 1}, "there is no option 'turbo'"),
        ({"algorithms": 5}, "algorithms=5"),
        ({"threads": 1}, "built for threads=2, not 1"),
        ({"threads": "2"}, "built for threads=2, not '2'"),
        ({"exact": True}, "a bundle runs as it was built: exact=True is for what builds it"),
        ({"checked": True}, "checked=True is for what builds it"),
        ({"isa": "avx2"}, "isa='avx2' is for what builds it"),
        ({"machine": "zen4"}, "machine='zen4' is for what builds it"),
    ],
)
def test_options_are_those_that_it_was_built_with(made, option, said):
    with pytest.raises(saccade.OptionError) as caught:
        saccade.compile(made[0], **option)
    assert said in str(caught.value)


def test_options_that_it_was_built_with_and_those_without_meaning(made):
    path, ((x, y), *_) = made
    given = {"device": "cpu", "precision": "fp32", "threads": np.int64(2), "exact": False}
    limits = saccade.Limits(nodes=1)
    assert np.array_equal(saccade.compile(path, **given, cache=False, limits=limits)(x), y)


def test_a_header_that_lies(made, tmp_path):
    """Sealed as it should be, but of another form, or with entries beyond the file."""
    path, answers = made
    file = bundlefile.open_bundle(path)
    entries = {"0/program/0": b"", "0/program/1": b"{}"}
    lying = tmp_path / "lying.saccade"
    bundlefile.write_bundle(lying, file.head, entries)
    for x, _ in answers:
        with pytest.raises(saccade.ModelError, match="no program of this version"):
            saccade.compile(lying)(x)
    bundlefile.write_bundle(lying, file.head, {})
    with pytest.raises(saccade.ModelError, match="has no entry 0/program/0"):
        saccade.compile(lying)(answers[0][0])


def test_what_cannot_be_saved(tmp_path):
    model = saccade.compile(convolutions().SerializeToString(), cache=False)
    with pytest.raises(saccade.OptionError, match="save needs the inputs' shapes"):
        model.save(tmp_path / "none.saccade")
    with pytest.raises(saccade.InputError, match="missing input"):
        model.save(tmp_path / "none.saccade", {})
    with pytest.raises(saccade.InputError, match="there is no input 'z'"):
        model.save(tmp_path / "none.saccade", {"x": (1, 3, 9, 7), "z": (1,)})
    for path in ("a\0b", "\ud800", 5, None):
        with pytest.raises(saccade.OptionError, match="cannot be the path of a file"):
            model.save(path, *SHAPES)
    for shapes in (5, "x", [("x", (1, 3, 9, 7))]):
        with pytest.raises(saccade.InputError, match="shapes by name in mappings, not"):
            model.save(tmp_path / "none.saccade", shapes)
    reference = saccade.compile(convolutions().SerializeToString(), device="reference")
    with pytest.raises(saccade.OptionError, match="the reference has no bundles"):
        reference.save(tmp_path / "none.saccade", SHAPES[0])
    assert not list(tmp_path.iterdir())


def test_the_command_builds(tmp_path):
    onnx = tmp_path / "model.onnx"
    onnx.write_bytes(convolutions().SerializeToString())
    out = tmp_path / "model.saccade"
    start = "from saccade.cli import main; main()"
    run = [sys.executable, "-c", start, "build", str(onnx), "-o", str(out)]
    done = subprocess.run(
        [*run, "--shape", "x=1x3x9x7", "--shape", "x=2x3x5x6"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "2 program(s), for cpu" in done.stdout, done.stderr
    assert saccade.compile(out)(image(2, 3, 5, 6)).shape == (2, 5, 5, 6)
    for more, said in (
        (["--shape", "x=1x3"], "x"), (["--arch", "sm_90"], "--arch is for --device cuda"),
        (["--machine", "zen3,zen9"], "machine='zen9' is not one of"),
        (["--device", "cuda"], "say which GPU to build for"),
        (["--device", "cuda", "--arch", "sm_10"], "is not one of sm_80, sm_86, sm_89, sm_90"),
    ):  # fmt: skip
        refused = subprocess.run([*run, *more], capture_output=True, text=True, timeout=120,
                                 check=False)  # fmt: skip
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr


def test_large_entries_are_checked_to_the_last_bit(made, tmp_path):
    """By sums of their pages, which any flipped bit changes, and which stand in one order."""
    rng = np.random.default_rng(1)
    head, page = bundlefile.open_bundle(made[0]).head, 4096
    words = rng.integers(0, 1 << 63, (80, page // 8), np.uint64)
    tail = rng.bytes(13)
    content = words.tobytes() + tail
    # Another content with the same sums shares no place with it.
    alike = np.ascontiguousarray(words[:, ::-1]).tobytes() + tail
    path = tmp_path / "large.saccade"
    bundlefile.write_bundle(path, head, {"a": content, "b": alike, "c": content})
    file = bundlefile.open_bundle(path)
    assert file.read("a") == file.read("c") == content and file.read("b") == alike
    assert file._places["a"][0] == file._places["c"][0] != file._places["b"][0]
    start = path.read_bytes().index(content)
    flips = [int(bit) for bit in rng.integers(0, 8 * len(content), 60)]
    for bit in (0, 8 * len(content) - 1, 8 * (len(content) - 14) + 7, *flips):
        damaged = bytearray(path.read_bytes())
        damaged[start + bit // 8] ^= 1 << bit % 8
        path.with_suffix(".damaged").write_bytes(damaged)
        with pytest.raises(saccade.ModelError, match="entry a of the bundle is damaged"):
            bundlefile.open_bundle(path.with_suffix(".damaged")).read("a")
    swapped = bytearray(path.read_bytes())
    swapped[start : start + page], swapped[start + page : start + 2 * page] = (
        content[page : 2 * page], content[:page],
    )  # fmt: skip
    path.write_bytes(swapped)
    with pytest.raises(saccade.ModelError, match="damaged"):
        bundlefile.open_bundle(path).read("a")


def test_programs_for_several_processors_stand_side_by_side(tmp_path, monkeypatch):
    """Each gets those of its description, another one the best that it has the instructions for."""
    path, shape = tmp_path / "several.saccade", SHAPES[0]
    source = convolutions().SerializeToString()
    machines = ("desktop-avx2", "zen4", "zen3", "sapphire-rapids")
    model = saccade.compile(source, threads=1, cache=False)
    model.save(path, shape, machines=machines)
    head = bundlefile.open_bundle(path).head
    assert [one["machine"] for one in head.machines] == list(machines)
    needed = {one["machine"]: set(one["instructions"].split()) for one in head.machines}
    assert "avx512_vnni" in needed["zen4"] and "avx2" in needed["zen3"] == needed["desktop-avx2"]
    plans = {
        name: saccade.compile(source, threads=1, cache=False, machine=name).plan(**shape).to_json()
        for name in machines
    }
    everything = set().union(*needed.values())
    for own, there, taken in (
        ("zen4", everything, "zen4"),
        ("zen3", needed["zen3"], "zen3"),
        ("desktop-avx2", needed["zen3"], "desktop-avx2"),
        ("zen5", needed["zen4"], "zen4"),
        ("zen5", everything, "sapphire-rapids"),
        ("zen4", needed["zen3"], "desktop-avx2"),
    ):
        monkeypatch.setattr(cpu_bundled, "host_instructions", lambda there=there: there)
        monkeypatch.setattr(cpu_bundled, "nearest_machine", lambda own=own: own)
        # Read and not loaded: code of another processor must not become this process's.
        part = cpu_bundled.CpuBundle(bundlefile.open_bundle(path))._file
        assert part.machine["machine"] == taken, own
        assert bytes(part.read("program/0")).endswith(plans[taken].encode()), (own, taken)
    monkeypatch.setattr(cpu_bundled, "host_instructions", lambda: {"fpu"})
    with pytest.raises(saccade.ModelError, match="desktop-avx2, zen4, zen3, sapphire-rapids; this"):
        saccade.compile(path)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bundle_for_a_described_processor_is_the_same_either_way(tmp_path, precision):
    """Built with no code of this machine's: packed by NumPy, linked nowhere."""
    name = "desktop-avx2"  # whose code all these processors run
    options = {"threads": 2, "precision": precision, "cache": False}
    source = convolutions().SerializeToString()
    here, tolerance = saccade.compile(source, **options), TOLERANCE[precision]
    found = []
    for number, (machine, machines) in enumerate(((name, ()), (None, (name,)))):
        path = tmp_path / f"{number}.saccade"
        made = saccade.compile(source, machine=machine, **options)
        made.save(path, *SHAPES, machines=machines)
        found.append([saccade.compile(path)(image(*shape["x"])) for shape in SHAPES])
    for one, other, shape in zip(*found, SHAPES, strict=True):
        assert np.array_equal(one, other)
        expected = here(image(*shape["x"]))
        assert np.linalg.norm(one - expected) <= tolerance * np.linalg.norm(expected)


def test_what_is_the_same_for_several_processors_is_there_once(tmp_path):
    model = saccade.compile(convolutions().SerializeToString(), threads=1, cache=False)
    model.save(tmp_path / "two", SHAPES[0], machines=("zen4", "zen5"))
    file = bundlefile.open_bundle(tmp_path / "two")
    places = {name: file._places[name][0] for name in file.names if "constant" in name}
    shared = [name for name in places if name[0] == "0" and f"1{name[1:]}" in places]
    assert shared
    for name in shared:
        assert places[f"1{name[1:]}"] == places[name]


def test_a_bundle_says_what_it_takes_and_shows_the_plans_it_has(made, tmp_path):
    path, _ = made
    several, one = saccade.compile(path), tmp_path / "one.saccade"
    assert str(several.inputs[0].shape) == "('N', 3, 'H', 'W')"
    model = saccade.compile(convolutions().SerializeToString(), threads=2, cache=False)
    model.save(one, SHAPES[0])
    only = saccade.compile(one)
    assert only.inputs[0].shape == (1, 3, 9, 7)
    assert only.outputs[0].shape[0] == 1
    for bundle in (several, only):
        assert bundle.plan(**SHAPES[0]).to_json() == model.plan(**SHAPES[0]).to_json()
    with pytest.raises(saccade.OptionError, match="alone, and nothing to make others of"):
        several.plan(x=(1, 3, 9, 8))
    with pytest.raises(saccade.InputError, match="1x3x9x7"):
        only(image(1, 3, 9, 8))


def test_a_bundle_for_other_devices_is_for_one_machine(tmp_path):
    pytest.importorskip("triton")
    model = saccade.compile(
        convolutions().SerializeToString(), device="cuda", machine="h200", cache=False
    )
    with pytest.raises(saccade.OptionError, match="a bundle for cuda is for one machine"):
        model.save(tmp_path / "none.saccade", SHAPES[0], machines=("h200", "a100"))


def test_the_version_is_that_of_the_package():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{bundled.VERSION}"' in text


def test_a_bundle_knows_the_sizes_that_follow_from_its_own(tmp_path):
    doubled = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[N, H] x) => (float[N, K] y) { y = Concat <axis = 1> (x, x) }"
    )
    model = saccade.compile(doubled, cache=False)
    model.save(tmp_path / "one.saccade", {"x": (2, 3)})
    model.save(tmp_path / "two.saccade", {"x": (2, 3)}, {"x": (1, 3)})
    one, two = (saccade.compile(tmp_path / f"{name}.saccade") for name in ("one", "two"))
    assert repr(one) == "<saccade.Model: x float32[2x3] -> y float32[2x6]>"
    assert repr(two) == "<saccade.Model: x float32[Nx3] -> y float32[Nx6]>"
