"""Bundles: what a start leaves on disk for the next one, and what becomes of damaged ones."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image, two_inputs

import saccade
from saccade import tuning
from saccade.backends.cpu.processor import this_machine
from saccade.backends.cpu.store import bundle, constants, identity
from saccade.backends.cpu.store.identity import machine_identity
from saccade.backends.cpu.store.saved import settle
from saccade.backends.cpu.store.weights import index_of, map_weights, place, size_of, write_weights
from saccade.caches import CacheFolder, OpenEntry, cache_folder, choices_entry, limit
from saccade.cli._app import app
from saccade.errors import CacheError, InputError, OptionError
from saccade.options import parse_bytes
from saccade.testing.logged import warned

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")

X = image(1, 3, 9, 9)
OTHER = image(1, 3, 11, 9)
SUMS = image(2, 4), image(2, 4), np.array([1, -2, 3])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cache that a first start filled, and its result."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SACCADE_CACHE_DIR", str(folder))
        y = compiled(convolutions(), threads=1)(X)
        compiled(two_inputs())(*SUMS)
    return folder, y


@pytest.fixture
def first(cache, made):
    """The result of a first start, whose cache this test has to itself."""
    shutil.copytree(made[0], cache, dirs_exist_ok=True)
    return made[1]


@pytest.fixture
def bare(cache, first):
    """Its cache without the bundles: kernels need not be compiled again."""
    shutil.rmtree(cache / "bundles")
    return first


def folder_of(cache):
    weights, *_ = (cache / "bundles").glob("*/*.weights")  # `two_inputs` has none
    return weights.parent


def entry(cache, kind):
    (path,) = folder_of(cache).glob(f"*.{kind}")
    return path


def found_ready(y, **options):
    """Whether a start finds all that it needs; the result is right in any case."""
    model = compiled(convolutions(), threads=1, **options)
    assert np.array_equal(model(X), y)
    return model._engine is None


def test_a_second_start_needs_no_engine(cache, first):
    assert found_ready(first)
    model = compiled(convolutions(), threads=1)
    assert [i.shape for i in model.inputs] == [("N", 3, "H", "W")]
    assert np.array_equal(model(X), first) and np.array_equal(model(X), first)
    assert model.profile(X, repeat=2).total > 0
    assert model._engine is None
    assert model.plan(X.shape) == model._program((X.shape,)).plan
    assert model.graph(model.stages[-1])


def test_another_size_uses_the_code_and_the_constants_that_are_there(cache, first):
    built = compiled(convolutions(), threads=1, cache=False)
    assert np.array_equal(built(X), first)
    before = built._started().backend.objects.compiled
    wanted = built(OTHER)
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), first) and model._engine is None
    assert np.array_equal(model(OTHER), wanted)
    more = built._started().backend.objects.compiled - before
    assert model._started().backend.objects.compiled == more, "as many as without a bundle"
    held = [name for _, names in model._store.weights() for name in names]
    assert len(set(held)) == len(held), "nothing is packed twice"
    one, two = (
        {n: a.ctypes.data for n, a in zip(p.tables.constants, p.constants, strict=True) if n}
        for p in (model._program((x.shape,)) for x in (X, OTHER))
    )
    assert set(one) & set(two)
    assert all(one[name] == two[name] for name in set(one) & set(two)), "nor held twice"
    again = compiled(convolutions(), threads=1)
    assert np.array_equal(again(OTHER), wanted) and again._engine is None


def test_sizes_that_were_prepared_need_no_engine(cache):
    compiled(convolutions(), threads=1).warm({"x": X.shape}, {"x": OTHER.shape})
    settle()
    for x in (X, OTHER):
        model = compiled(convolutions(), threads=1)
        model(x)
        assert model._engine is None
    with pytest.raises(InputError, match="mappings, not"):
        compiled(convolutions(), threads=1).warm(X.shape)
    with pytest.raises(InputError, match="shape"):
        compiled(convolutions(), threads=1).warm({"x": (1, 4, 9, 9)})


def test_the_command_prepares_sizes(cache, tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(convolutions().SerializeToString())
    with pytest.raises(SystemExit) as ended:
        app(["warm", str(path), "--threads", "1", "--shape", "1x3x9x9", "--shape", "x=1x3x11x9"])
    assert ended.value.code == 0 and "2 program(s) ready" in "".join(capsys.readouterr())
    settle()
    model = saccade.compile(path, threads=1)
    model(X), model(OTHER)
    assert model._engine is None
    with pytest.raises(SystemExit) as ended:
        app(["warm", str(path), "--shape", "1x4x8x9"])
    assert ended.value.code == 2


def damage(how, path):
    whole = path.read_bytes()
    if how == "first byte":
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    elif how == "middle":
        at = len(whole) // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    elif how == "last byte":
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif how == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "longer":
        path.write_bytes(whole + b"\0")
    elif how == "zeros":
        path.write_bytes(bytes(len(whole)))
    else:
        path.unlink()


HOW = ["first byte", "middle", "last byte", "truncated", "empty", "longer", "zeros", "absent"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["program", "weights", "signature"])
def test_a_damaged_entry_is_made_again(cache, first, kind, how):
    damage(how, entry(cache, kind))
    assert not found_ready(first)
    assert found_ready(first), "it was mended"


def opened(file):
    return OpenEntry(file.fileno(), file.name, lambda content: sha256(b"key" + content).digest())


def mapped(path):
    with path.open("rb") as file:
        return map_weights(opened(file))


def test_every_byte_of_the_weights_is_checked(tmp_path):
    path = tmp_path / "some.weights"
    arrays = {"a": np.arange(3000, dtype=np.float32), "b": np.ones(5), "c": np.arange(7, 2000)}
    placed = place((name, array.nbytes) for name, array in arrays.items())

    def fill(put):
        for (_, at, _), array in zip(placed, arrays.values(), strict=True):
            put(at, array)

    with path.open("w+b") as file:
        write_weights(opened(file), placed, fill)
        assert size_of(placed) == path.stat().st_size
        assert index_of(opened(file)) == placed
    for name, found in mapped(path).items():
        assert found.tobytes() == arrays[name].tobytes()
        assert not found.flags.writeable and found.ctypes.data % 64 == 0
    whole = path.read_bytes()
    for at in (0, 20, 40, 60, 4096, 9000, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(CacheError, match=r"damaged|version|size|cut"):
            mapped(path)
    swapped = whole[:4096] + whole[8192:12288] + whole[4096:8192] + whole[12288:]
    path.write_bytes(swapped)
    with pytest.raises(CacheError, match="damaged"):
        mapped(path)
    path.write_bytes(whole)
    with pytest.raises(CacheError, match="damaged"), path.open("rb") as file:
        map_weights(OpenEntry(file.fileno(), "here", lambda content: sha256(content).digest()))


def test_an_entry_under_another_name_is_worth_nothing(cache, first):
    wanted = compiled(convolutions(), threads=1)(OTHER)
    folder = folder_of(cache)
    one, two = sorted(folder.glob("*.program"))
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert not found_ready(first)
    assert np.array_equal(compiled(convolutions(), threads=1)(OTHER), wanted)


def test_other_code_another_model_or_other_options_start_anew(cache, first, monkeypatch):
    def ready(**options):
        model = compiled(convolutions(), **{"threads": 1, **options})
        model(X)
        return model._engine is None

    assert ready()
    for options in ({"exact": True}, {"threads": 2}):
        assert not ready(**options)
        assert ready(**options) and ready()
    other = compiled(two_inputs())
    other(*SUMS)
    assert other._engine is None, "each model has a folder of its own"
    for changed in ("sources_digest", "llvm_identity", "machine_identity"):
        with monkeypatch.context() as patched:
            patched.setattr(bundle, changed, lambda: "another")
            assert not ready()
    assert ready()


def test_llvm_is_the_same_in_layers_of_images_which_keep_whole_seconds(tmp_path, monkeypatch):
    binding, version = tmp_path / "binding", tmp_path / "_version.py"
    binding.mkdir()
    version.write_text("1.2")
    library = binding / "libllvmlite.so"
    library.write_bytes(b"code")
    origin = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(identity, "find_spec", lambda _name: origin)

    def told(seconds):
        os.utime(library, ns=(round(seconds * 1e9),) * 2)
        return identity.llvm_identity.__wrapped__()

    assert told(5.0) == told(5.9) != told(6.0)


def test_tuned_choices_are_part_of_the_name(cache, first, tmp_path):
    model = compiled(convolutions(), threads=1)
    model(X)
    mine, machine = model._store.identity, this_machine()
    kept = cache_folder("algorithms"), choices_entry(mine, machine)
    assert not kept[0].exists(kept[1])
    for told in "01":
        text = tuning.Algorithms("cpu", machine | {"told": told}, ()).to_json()
        assert kept[0].write(kept[1], text.encode())
        assert not found_ready(first)
        assert found_ready(first)
    given = tmp_path / "given.json"
    given.write_text(tuning.Algorithms("cpu", machine, ()).to_json())
    assert not found_ready(first, algorithms=given)
    assert found_ready(first, algorithms=given)
    given.write_text("no choices")
    with pytest.raises(OptionError, match="not a file of algorithms"):
        compiled(convolutions(), threads=1, algorithms=given)
    given.unlink()
    with pytest.raises(OptionError, match="No such file"):
        compiled(convolutions(), threads=1, algorithms=given)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_not_trusted(cache, first, mode):
    (cache / "bundles").chmod(mode)
    with warned("bundles can be written to by others"):
        assert not found_ready(first)
    (cache / "bundles").chmod(0o700)
    assert found_ready(first)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (cache / "bundles").rglob("*"))


def test_without_the_cache_nothing_is_read_or_written(cache, first):
    damage("zeros", entry(cache, "program"))
    assert not found_ready(first, cache=False)
    assert not any(entry(cache, "program").read_bytes())


def test_a_disk_that_takes_nothing_fails_no_call(cache, bare, monkeypatch):
    def refuse(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("saccade.files.fresh_file", refuse)
    assert not found_ready(bare)
    assert not list((cache / "bundles").rglob("*.*"))


def test_a_disk_that_fills_up_leaves_no_half_file(cache, bare, monkeypatch):
    def refuse(_file, _data, _at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("saccade.backends.cpu.store.weights.os.pwrite", refuse)
    assert not found_ready(bare)
    assert not [p for p in (cache / "bundles").rglob("*") if p.suffix == ".weights"]
    assert not list((cache / "bundles").glob("*/.new-*"))


def test_memory_that_may_not_hold_code_is_no_reason_to_fail(cache, first, monkeypatch):
    def refuse(_self):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("saccade.backends.cpu.runtime.image._Memory.make_executable", refuse)
    assert not found_ready(first)


def test_a_model_s_oldest_programs_go(cache, first, monkeypatch):
    monkeypatch.setattr(bundle, "_PROGRAMS", 2)
    model = compiled(convolutions(), threads=1)
    for width in (11, 13, 15):
        model(image(1, 3, 9, width))
    folder = folder_of(cache)
    assert len(list(folder.glob("*.program"))) == 2


@pytest.mark.parametrize("most", ["0", "8K", "64K"])
def test_a_cache_that_is_too_small_only_means_more_work(cache, first, monkeypatch, most):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", most)
    monkeypatch.setattr(limit, "_counts", {})
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), first)
    model(OTHER)
    assert sum(item.size for item in limit.walk(CacheFolder(str(cache), ""))) <= parse_bytes(most)
    assert np.array_equal(compiled(convolutions(), threads=1)(X), first)


@pytest.mark.parametrize("how", [*HOW, "another entry", "fifo", "folder", "link to itself"])
def test_everything_is_damaged_at_once(cache, first, how):
    """Objects, graphs, bundles, notes: what is left is what the model says."""
    found = [path for kind in limit.KINDS for path in sorted((cache / kind).rglob("*"))]
    paths = [path for path in found if path.is_file()]
    assert {path.relative_to(cache).parts[0] for path in paths} >= {"bundles", "graphs", "objects"}
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        if how in HOW:
            damage(how, path)
        elif how == "another entry":
            path.write_bytes(content)
        else:
            path.unlink()
            make = {"fifo": os.mkfifo, "folder": os.mkdir}
            make.get(how, lambda path: path.symlink_to(path))(path)
    assert not found_ready(first)


def keep(bundles, names, most=None, nbytes=8000):
    placed = place((name, nbytes) for name in names)

    def fill(put):
        for name, at, _ in placed:
            put(at, np.full(nbytes, ord(name), np.uint8))

    return bundles.keep_weights(placed, fill, most)


def test_a_model_s_constants_may_be_limited(cache, monkeypatch):
    bundles = bundle.Bundles(cache_folder("bundles").folder("model"), "model", "variant")
    size = size_of(place([("a", 8000)]))
    assert not keep(bundles, "a", size - 1) and not bundles.weights()
    assert keep(bundles, "a", size) and not keep(bundles, "b", 2 * size - 1)
    assert keep(bundles, "b", 2 * size) and keep(bundles, "c")
    assert sorted(min(names) for _, names in bundles.weights()) == ["a", "b", "c"]
    # What others hold too makes space, and all that was held still is.
    assert keep(bundles, "abc")
    assert keep(bundles, "d", size_of(place((n, 8000) for n in "abc")) + size)
    assert sorted("".join(sorted(names)) for _, names in bundles.weights()) == ["abc", "d"]
    constants = {n: a for path, _ in bundles.weights() for n, a in bundles.map(path).items()}
    assert all((constants[name] == ord(name)).all() for name in "abcd")
    monkeypatch.setenv("SACCADE_CACHE_BYTES", str(size - 1))
    assert not keep(bundles, "e"), "nor does the cache take what is larger than it"


def test_two_processes_that_write_at_once_keep_to_the_limit(cache):
    """Each found space before the other wrote: whoever is last takes its own file back."""
    bundles = bundle.Bundles(cache_folder("bundles").folder("model"), "model", "variant")
    size = size_of(place([("a", 8000)]))

    def meanwhile(put):
        assert keep(bundles, "b", 2 * size - 1)
        put(0, np.ones(8000, np.uint8))

    assert not bundles.keep_weights(place([("a", 8000)]), meanwhile, 2 * size - 1)
    assert [names for _, names in bundles.weights()] == [{"b"}]


def test_equal_files_do_not_make_each_other_superfluous(cache):
    bundles = bundle.Bundles(cache_folder("bundles").folder("model"), "model", "variant")
    assert keep(bundles, "ab") and keep(bundles, "bc") and keep(bundles, "ca")
    assert keep(bundles, "d", 1 << 20)
    assert {name for _, names in bundles.weights() for name in names} == set("abcd")
    assert len(bundles.weights()) == 3


def test_where_no_room_can_be_reserved_it_is_filled(cache, monkeypatch):
    """As some file systems want it: no page may be a hole, even where nothing is put."""

    def refuse(*_args):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    written = set()
    real = os.pwrite

    def watch(file, data, at):
        written.update(range(at // 4096, -(-(at + len(data)) // 4096)))
        return real(file, data, at)

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    monkeypatch.setattr(os, "pwrite", watch)
    bundles = bundle.Bundles(cache_folder("bundles").folder("model"), "model", "variant")
    placed = place([("a", 3_000_000)])
    assert bundles.keep_weights(placed, lambda put: put(5000, np.ones(3, np.uint8)))
    assert written == set(range(size_of(placed) // 4096))
    (found,) = (bundles.map(path)["a"] for path, _ in bundles.weights())
    assert found.sum() == 3 and found[5000:5003].all()


def test_constants_are_held_once_per_process(cache, first):
    models = [compiled(convolutions(), threads=1) for _ in range(2)]
    for model in models:
        model(X)
    one, two = (m._program((X.shape,)).constants for m in models)
    assert [a.ctypes.data for a in one if a.size] == [a.ctypes.data for a in two if a.size]
    before = len(constants._held)
    del models, model, one, two
    gc.collect()
    assert len(constants._held) < before, "and go with the last program"


def test_constants_outlive_their_programs_for_sizes_to_come(cache):
    model = compiled(convolutions(), threads=1)
    model(X)
    asked = [array.ctypes.data for array in model._program((X.shape,)).constants if array.size]
    model._programs.clear()
    gc.collect()
    model(X)
    assert [a.ctypes.data for a in model._program((X.shape,)).constants if a.size] == asked


def test_of_recent_constants_the_oldest_go_first():
    recent, arrays = constants.RecentConstants(300), [np.zeros(100, np.uint8) for _ in range(5)]
    alive = [weakref.ref(array) for array in arrays]
    recent.keep(arrays[:3])
    recent.keep(arrays[:1])  # again, and of no more bytes
    recent.keep(arrays[3:4])
    arrays.clear()
    gc.collect()
    assert [ref() is not None for ref in alive] == [True, False, True, True, False]
    recent.keep([np.zeros(400, np.uint8)])
    assert not any(ref() is not None for ref in alive)


def test_several_inputs_and_outputs(cache, first):
    wanted = compiled(two_inputs(), cache=False)(*SUMS)
    again = compiled(two_inputs())
    found = again(*SUMS)
    assert again._engine is None
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
x = np.random.default_rng(22).standard_normal((1, 3, 9, 9)).astype(np.float32)
import saccade
model = saccade.compile({path!r}, threads=2)
y = model(x)
import json
print(json.dumps([y.tobytes().hex(), model._engine is None, sorted(sys.modules)]))
"""


def start(folder, path):
    script = SCRIPT.format(folder=str(folder), path=str(path))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def answer(process):
    return json.loads(process.communicate(timeout=120)[0])


def test_processes_fill_a_folder_together_and_import_little_later(cache, bare, tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(convolutions().SerializeToString())
    folder = Path(__file__).parent
    first = [answer(p) for p in [start(folder, path) for _ in range(3)]]
    assert len({y for y, _, _ in first}) == 1
    y, ready, modules = answer(start(folder, path))
    assert y == first[0][0] and ready
    loaded = {name.partition(".")[0] for name in modules}
    assert not loaded & {"onnx", "onnx_ir", "llvmlite", "google", "subprocess"}
    rooms = {name.split(".")[1] for name in modules if name.startswith("saccade.")}
    assert not rooms & {"engine", "lowered", "passes", "layout", "plan", "kernels", "opdefs", "ir"}
    assert not list((cache / "bundles").glob("*/.new-*"))


CHILDREN = """
import os
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none")
"""


def test_a_file_that_looks_new_starts_children_and_ends_them_if_all_is_there(cache, tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(convolutions().SerializeToString())
    folder = Path(__file__).parent
    y, ready, _ = answer(start(folder, path))
    assert not ready
    shutil.rmtree(cache / "digests")
    script = SCRIPT.format(folder=str(folder), path=str(path)) + CHILDREN
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=True)
    same, children = done.stdout.decode().splitlines()
    assert json.loads(same)[:2] == [y, True] and "socket" in json.loads(same)[2]
    assert children == "none"


def test_a_forked_child_runs_what_was_found_ready(cache, first):
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), first)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model(X), first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
