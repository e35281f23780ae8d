"""Entries are whole and sealed, or absent; whatever interrupts a writer, nothing is left behind."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from saccade.backends.cpu.store.bundle import Bundles
from saccade.backends.cpu.store.weights import place
from saccade.caches import cache_folder, write_all
from saccade.caches.folder import CacheFolder
from saccade.errors import OptionError

NAME = "one.bin"


def store(name="objects"):
    return cache_folder(name)


def files(cache):
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}


def test_round_trip(cache):
    for payload in (b"", b"payload", bytes(range(256)) * 999):
        assert store().write(NAME, payload) and store().read(NAME) == payload
    assert store().exists(NAME)
    (item,) = store().items()
    assert (item.folder, item.name) == ("objects", NAME) and item.size == 63 * 4096
    store().remove(NAME)
    assert not store().exists(NAME) and store().read(NAME) is None
    assert files(cache) == {"key"}
    assert all(p.stat().st_mode & 0o077 == 0 for p in [cache, cache.parent, *cache.rglob("*")])


def test_folders_in_folders(cache):
    model = store("bundles").folder("abc")
    assert model.write("x.program", b"code") and model.read("x.program") == b"code"
    assert (cache / "bundles" / "abc" / "x.program").is_file()
    assert store("bundles").folder("abd").read("x.program") is None


def test_every_changed_byte_truncation_and_extension_is_noticed(cache):
    store().write(NAME, b"some payload")
    path = cache / "objects" / NAME
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store().read(NAME) is None
        path.write_bytes(whole[:at])
        assert store().read(NAME) is None
    path.write_bytes(whole + b"\0")
    assert store().read(NAME) is None
    path.write_bytes(whole)
    assert store().read(NAME) == b"some payload"


def test_an_entry_is_worth_nothing_elsewhere(cache):
    store().write(NAME, b"1")
    for folder, name in (("objects", "two.bin"), ("graphs", NAME), ("objects/x", NAME)):
        other = store(folder)
        other.write("made", b"")
        (cache / folder / name).write_bytes((cache / "objects" / NAME).read_bytes())
        assert other.read(name) is None
    assert store().read(NAME) == b"1"


def test_what_is_too_large_to_be_ours_is_not_read_into_memory(cache):
    store().write(NAME, b"1")
    os.truncate(cache / "objects" / NAME, 1 << 40)
    assert store().read(NAME) is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError, SystemExit, MemoryError])
def test_an_interrupted_writer_leaves_nothing(cache, kind):
    store().write(NAME, b"before")

    def fill(entry):
        write_all(entry.file, b"half")
        raise kind

    with pytest.raises(kind):
        store().add(NAME, fill)
    assert files(cache) == {"key", "objects/one.bin"} and store().read(NAME) == b"before"


def full(*_args, **_more):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "replace", "open"])
def test_a_full_disk_leaves_what_was_there(cache, monkeypatch, call):
    store().write(NAME, b"before")
    with monkeypatch.context() as patched:
        real = os.open
        fail = full if call != "open" else lambda p, f, *a, **k: (
            full() if f & os.O_CREAT else real(p, f, *a, **k)
        )  # fmt: skip
        patched.setattr(os, call, fail)
        assert not store().write(NAME, b"after")
    assert files(cache) == {"key", "objects/one.bin"} and store().read(NAME) == b"before"


def test_short_writes_are_completed_or_noticed(cache, monkeypatch):
    real = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: real(file, bytes(data)[:7]))
        assert store().write(NAME, b"a payload of more than seven bytes")
        patched.setattr(os, "write", lambda _file, _data: 0)
        assert not store().write(NAME, b"another")
    assert store().read(NAME) == b"a payload of more than seven bytes"
    assert files(cache) == {"key", "objects/one.bin"}


def test_short_writes_of_constants_are_completed_or_noticed(cache, monkeypatch):
    bundles = Bundles(cache_folder("bundles/model"), "model", "variant")
    array, real = np.arange(250, dtype=np.uint8), os.pwrite

    def keep(name):
        return bundles.keep_weights(place([(name, array.nbytes)]), lambda put: put(0, array))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda file, data, at: real(file, bytes(data)[:7], at))
        assert keep("a")
        patched.setattr(os, "pwrite", lambda *_: 0)
        assert not keep("b")
    ((path, _),) = bundles.weights()
    assert np.array_equal(bundles.map(path)["a"], array)
    assert {name.rpartition(".")[2] for name in files(cache)} == {"key", "weights"}


def test_a_limit_on_the_size_of_files_is_noticed(cache):
    """The kernel writes as much as is allowed, and then refuses."""
    store().write(NAME, b"before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        assert not store().write(NAME, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(cache) == {"key", "objects/one.bin"} and store().read(NAME) == b"before"


WRITER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what runs behind
from saccade.backends.cpu.store.bundle import Bundles
from saccade.backends.cpu.store.weights import place
from saccade.caches import cache_folder, write_all
def fill(entry):
    write_all(entry.file, b"half")
    print("writing", flush=True)
    time.sleep(60)
cache_folder("objects").add("one.bin", fill)
"""


def test_what_a_killed_writer_leaves_is_swept_an_hour_later(cache, monkeypatch):
    store().write("two.bin", b"2")
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"writing\n"
        writer.kill()
    (left,) = (cache / "objects").glob(".new-*")
    late_key = cache / ".new-0123456789abcdef"
    late_key.touch(mode=0o600)
    store().write("two.bin", b"2")
    assert left.exists(), "it could still be written"
    for path in (left, late_key):
        os.utime(path, (time.time() - 3700,) * 2)
    monkeypatch.setattr("saccade.caches.limit._counts", {})  # as in another process
    store().write("two.bin", b"2")
    assert files(cache) == {"key", "objects/two.bin"}


def test_an_interrupt_from_the_keyboard_leaves_nothing(cache):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGINT)
        assert writer.wait(30) != 0
    assert files(cache) == {"key"}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A file system in memory of one megabyte, for the cache alone."""
    place = tmp_path / "tiny"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place)]
    with contextlib.suppress(OSError):
        done = subprocess.run(["mount", *options], capture_output=True, check=False)
        if done.returncode == 0:
            monkeypatch.setenv("SACCADE_CACHE_DIR", str(place / "cache"))
            yield place / "cache"
            subprocess.run(["umount", "-l", str(place)], check=True)
            return
    pytest.skip("this user may not mount")


def test_a_full_file_system_in_memory(tiny):
    assert store().write(NAME, bytes(700_000))
    assert not store().write("two.bin", bytes(700_000))
    assert store().read(NAME) == bytes(700_000)
    assert files(tiny) == {"key", "objects/one.bin"}
    assert store().write("three.bin", bytes(100_000))


WEIGHTS = """
import numpy as np
from saccade.caches import cache_folder
from saccade.backends.cpu.store.bundle import Bundles
from saccade.backends.cpu.store.weights import place
bundles = Bundles(cache_folder("bundles/model"), "model", "variant")
def keep(name, nbytes):
    placed = place([(name, nbytes)])
    filled = lambda put: put(0, np.ones(100, np.uint8))  # as if the disk were full after these
    return bundles.keep_weights(placed, filled)
print(keep("a", 300_000), keep("b", 900_000), len(bundles.weights()))
(path, _), = bundles.weights()
print(int(bundles.map(path)["a"].sum()))
"""


def test_constants_for_which_there_is_no_room_end_no_process(tiny):
    """Pages that a file system in memory cannot provide are faults when they are looked at."""
    done = subprocess.run(
        [sys.executable, "-c", WEIGHTS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.split() == ["True", "False", "1", "100"]
    assert {path.rpartition(".")[2] for path in files(tiny)} == {"key", "weights"}


def test_what_is_read_is_the_last_to_be_forgotten(cache):
    for name in ("a", "b", "c"):
        store().write(name, b"")
        os.utime(cache / "objects" / name, (1e9, 1e9))
    store().read("b")
    assert store().items()[0].name == "b"
    store().read("c", use=False)
    store().exists("c")
    assert [item.used for item in store().items()[1:]] == [1e9, 1e9]


def test_appending_is_for_one_at_a_time(cache):
    script = (
        "from saccade.caches import cache_folder, write_all\n"
        "for _ in range(200):\n"
        "    with cache_folder('timings').appending('log') as log:\n"
        "        for part in (b'one ', b'two ', b'three\\n'): write_all(log.file, part)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert not any(process.wait(60) for process in running)
    lines = (cache / "timings" / "log").read_text().splitlines()
    assert lines == ["one two three"] * 600


def test_a_cache_s_place_is_that_of_the_first_look(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_CACHE_DIR", "here")
    assert store() == CacheFolder(str(tmp_path / "here"), "objects")


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "8 PB", "0x10", "1_000", "٣"])
def test_a_limit_that_is_no_size_is_an_error(cache, monkeypatch, text):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", text)
    with pytest.raises(OptionError, match=r"SACCADE_CACHE_BYTES: .*is not a size such as 500M"):
        store().write(NAME, b"")
    assert files(cache) <= {"key"}
