"""Where services run: as another user than who prepared the cache or bundle, on read-only disks."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from runtime_models import convolutions

import saccade
from saccade.caches import audit, share
from saccade.errors import CacheError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

SOMEBODY = 12345
SHAPE, OTHER = (1, 3, 9, 7), (2, 3, 5, 6)
SOURCE = Path(saccade.__file__).parents[1]
RUN = """
import sys
from pathlib import Path
{before}
import numpy as np, saccade
place = Path(sys.argv[1])
model = saccade.compile(place / sys.argv[2], threads=2)
x = np.load(place / sys.argv[3])["x"]
print(np.array_equal(model(x), np.load(place / sys.argv[3])["y"]), model._engine is None)
assert model._engine is not None or not sys.modules.get("llvmlite") and not sys.modules.get("onnx")
"""


@pytest.fixture(scope="module")
def interpreter():
    """One that somebody else can run, with the same packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in filter(None, (sys.executable, shutil.which(version, path="/usr/bin"))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", path())
            done = somebody([python, "-c", "import numpy, saccade"], os.environ)
        if done is not None and done.returncode == 0:
            return python
    pytest.skip("no interpreter that somebody else could run")
    return None


def path():
    return os.pathsep.join((str(SOURCE), sysconfig.get_paths()["purelib"]))


def somebody(command, env):
    """Run as somebody else, in no folder of theirs; None if that cannot be started."""
    try:
        return subprocess.run(
            command, user=SOMEBODY, group=SOMEBODY, extra_groups=[], env=env, cwd="/",
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    except OSError:
        return None


PREPARE = """
import sys
import numpy as np, saccade
from saccade.backends.cpu.store.saved import settle
place, shape = sys.argv[1], tuple(map(int, sys.argv[2:]))
model = saccade.compile(f"{place}/model.onnx", threads=2)
x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
np.savez(f"{place}/{shape[0]}.npz", x=x, y=model(x))
model.save(f"{place}/model.saccade", {"x": shape})
settle()
"""


def prepare(place, shape):
    """Run as root does beforehand, in a process that knows nothing: the cache has all."""
    subprocess.run(
        [sys.executable, "-c", PREPARE, str(place), *map(str, shape)], check=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path()},
    )  # fmt: skip


@pytest.fixture(scope="module")
def prepared():
    """A folder of root's where others can go: a model, its answers and cache; and a copy of it."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as copy:
        folder, kept = Path(name), Path(copy) / "kept"
        folder.chmod(0o755)
        (folder / "model.onnx").write_bytes(convolutions().SerializeToString())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SACCADE_CACHE_DIR", str(folder / "cache"))
            prepare(folder, SHAPE)
        shutil.copytree(folder, kept)
        yield folder, kept


@pytest.fixture
def place(prepared, monkeypatch):
    """That folder as it was made, whatever other tests did there.

    The model's file is the same: caches know files by more than what is in them.
    """
    folder, kept = prepared
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "model.onnx":
            path.unlink()
    for path in kept.iterdir():
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        elif path.name != "model.onnx":
            shutil.copy2(path, folder)
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder / "cache"))
    return folder


@pytest.fixture
def start(place, interpreter):
    """Compile and run as somebody else; gives what was printed and the lines of warnings."""

    def run(source, shape, before="", prefix=(), **env):
        code = RUN.format(before=before)
        command = [*prefix, interpreter, "-c", code, str(place), source, f"{shape[0]}.npz"]
        kept = {k: v for k, v in os.environ.items() if k.startswith("SACCADE_")}
        env = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PYTHONPATH": path(), **kept, **env}
        done = somebody(command, env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), done.stderr.splitlines()

    return run


def tree(folder):
    return {str(p): p.stat().st_mtime_ns for p in (folder, *folder.rglob("*"))}


WITHOUT_COMPILERS = "for name in ('llvmlite', 'onnx', 'onnx_ir'): sys.modules[name] = None"


def test_a_bundle_starts_as_somebody_else_without_a_compiler(place, start):
    (place / "model.saccade").chmod(0o444)
    shutil.rmtree(place / "cache")
    before = tree(place)
    assert start("model.saccade", SHAPE, WITHOUT_COMPILERS) == (["True", "True"], [])
    assert tree(place) == before


def test_a_shared_cache_of_root_s_is_all_that_somebody_else_needs(place, start):
    share.share(audit.existing_cache())
    before = tree(place)
    assert start("model.onnx", SHAPE) == (["True", "True"], [])
    assert tree(place) == before


def test_what_root_adds_to_a_shared_cache_is_shared(place, start):
    share.share(audit.existing_cache())
    old = os.umask(0o077)
    try:
        prepare(place, OTHER)
    finally:
        os.umask(old)
    (place / "2.npz").chmod(0o644)
    assert start("model.onnx", OTHER) == (["True", "True"], [])
    for found in (place / "cache").rglob("*"):
        mode = found.stat().st_mode & 0o777
        assert mode == (0o755 if found.is_dir() else 0o444 if found.name == "key" else 0o644), found


def test_another_size_than_in_the_shared_cache_takes_one_warning(place, start):
    share.share(audit.existing_cache())
    shutil.copytree(place / "cache", place / "shared")
    prepare(place, OTHER)
    shutil.rmtree(place / "cache")
    (place / "shared").rename(place / "cache")
    for kept in (place / "cache").rglob("*"):
        assert kept.stat().st_uid == 0
    answer, told = start("model.onnx", OTHER)
    assert answer == ["True", "False"]
    assert len(told) == 1 and "cache cannot be added to (Permission denied)" in told[0], told
    assert "set SACCADE_CACHE_DIR to a folder of your own" in told[0]


def test_a_cache_that_was_not_shared_takes_one_warning(place, start):
    (place / "cache").chmod(0o755)
    answer, told = start("model.onnx", SHAPE)
    assert answer == ["True", "False"]
    assert len(told) == 1 and "let its owner run `saccade cache share`" in told[0], told


def test_where_no_cache_can_be_made_takes_one_warning(place, start):
    answer, told = start("model.onnx", SHAPE, SACCADE_CACHE_DIR="/proc/nowhere/cache")
    assert answer == ["True", "False"]
    assert len(told) == 1 and "cannot be made" in told[0], told


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_on_a_read_only_disk_the_cache_is_read_and_one_warning_says_that_nothing_is_kept(place):
    """As root, which no mode stops."""
    prepare(place, OTHER)
    for shape, kept in ((SHAPE, "1"), (OTHER, "2")):
        command = ["unshare", "-m", "sh", "-c", READ_ONLY, str(place), sys.executable, "-c",
                   RUN.format(before=""), str(place), "model.onnx", f"{kept}.npz"]  # fmt: skip
        if shape == OTHER:
            bundles = place / "cache" / "bundles"
            for program in bundles.rglob("*.program"):
                program.unlink()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "PYTHONPATH": path()},
        )  # fmt: skip
        if "unshare" in done.stderr or "mount" in done.stderr:
            pytest.skip(done.stderr)
        assert done.stdout.split()[0] == "True", done.stderr
        told = done.stderr.splitlines()
        assert len(told) == (shape == OTHER), told
    assert "cannot be added to (Read-only file system)" in told[0]


def test_a_cache_that_others_cannot_reach_is_not_shared(place, monkeypatch):
    (place / "closed").mkdir(mode=0o700)
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(place / "closed" / "cache"))
    prepare(place, SHAPE)
    with pytest.raises(CacheError, match=f"others may not enter {place / 'closed'};"):
        share.share(audit.existing_cache())
    assert (place / "closed" / "cache" / "key").stat().st_mode & 0o777 == 0o600


def test_a_file_of_somebody_else_s_in_a_shared_cache_is_not_read(place, start):
    share.share(audit.existing_cache())
    for program in (place / "cache" / "bundles").rglob("*.program"):
        os.chown(program, SOMEBODY + 1, 0)
    answer, told = start("model.onnx", SHAPE)
    assert answer == ["True", "False"]
    assert any(f"belongs to user {SOMEBODY + 1}, not to you" in line for line in told), told
