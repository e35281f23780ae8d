"""Whenever something in the cache is not used, one warning of the logger `saccade` says why."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.caches import CacheFolder, cache_folder, share
from saccade.caches.key import SHARED_FILE, SHARED_FOLDER, SHARED_KEY
from saccade.errors import CacheError
from saccade.testing.logged import warned

NAME = "one.bin"
MODEL = Path(__file__).parents[2] / "examples" / "upscale" / "model.onnx"


def store():
    return cache_folder("objects")


@pytest.fixture
def written(cache):
    assert store().write(NAME, b"payload")
    return cache


def full(monkeypatch, number):
    """Files can be opened, and no bytes be written."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_takes_one_warning(written, monkeypatch, number):
    with warned(f"{written} cannot be added to .{os.strerror(number)}.*SACCADE_CACHE_DIR") as told:
        with monkeypatch.context() as patch:
            full(patch, number)
            assert not store().write("two.bin", b"2")
            assert not cache_folder("graphs").write("x.graph", b"2")
        assert store().read(NAME) == b"payload"
    assert len(told) == 1 and {p.name for p in (written / "objects").iterdir()} == {NAME}


def test_nothing_is_said_where_it_matters_to_nobody(written, monkeypatch):
    full(monkeypatch, errno.ENOSPC)
    with warned(None):
        assert not store().write("two.bin", b"2", quiet=True)


def test_a_damaged_entry_is_told_once(written):
    for name in (NAME, "two.bin"):
        store().write(name, b"payload")
        path = written / "objects" / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with warned(f"{NAME} is damaged, or sealed with another key, so it is made anew") as told:
        assert store().read(NAME) is None and store().read("two.bin") is None
    assert len(told) == 1


def test_an_entry_beyond_the_limit_is_told(written, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "1k")
    with warned("two.bin would take .* bytes.*SACCADE_CACHE_BYTES, which is 1024, higher") as told:
        assert not store().write("two.bin", bytes(2000))
        assert not store().write("two.bin", bytes(2000))
    assert len(told) == 1


def test_who_allows_no_bytes_wants_no_cache(written, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "0")
    with warned(None):
        assert not store().write("two.bin", bytes(2000))


def test_what_a_child_process_cannot_keep_is_told_by_its_parent_alone(cache):
    """Of a graph that is lowered in one: the process that wanted it meets the same."""
    code = f"import saccade; saccade.compile({str(MODEL)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "SACCADE_CACHE_DIR": str(cache), "SACCADE_CACHE_BYTES": "100k"},
    )  # fmt: skip
    assert done.stderr.count(".graph would take") == 1


def test_what_is_sound_is_not_mentioned(cache):
    with warned(None):
        assert store().usable() and store().writable()
        assert store().write(NAME, b"payload") and store().read(NAME) == b"payload"
        assert store().read("absent.bin") is None


# -- sharing ----------------------------------------------------------------


@pytest.fixture
def reachable(written, monkeypatch):
    """As if others could enter all folders above, which pytest keeps to itself."""
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **more: real("/" if str(written).startswith(str(path)) else path)
    )
    return CacheFolder(str(written), "")


def modes(cache):
    return {p.name: p.stat().st_mode & 0o777 for p in (cache, *cache.rglob("*"))}


def test_a_shared_cache_is_for_all_to_read_and_stays_in_use(written, reachable):
    assert share.share(reachable) == 1
    folders = {written.name: SHARED_FOLDER, "objects": SHARED_FOLDER}
    assert modes(written) == {**folders, NAME: SHARED_FILE, "key": SHARED_KEY}
    with warned(None):
        assert store().read(NAME) == b"payload"
        assert cache_folder("bundles").folder("model").write("x.program", b"2")
        with cache_folder("timings").appending("x.jsonl") as log:
            os.write(log.file, b"line")
    added = modes(written)
    assert added.pop("key") == SHARED_KEY
    files = {NAME, "x.program", "x.jsonl", "x.jsonl.lock"}
    assert {n for n, mode in added.items() if mode == SHARED_FILE} == files
    assert all(mode == SHARED_FOLDER for name, mode in added.items() if name not in files)
    assert share.share(reachable) == 4, "twice is the same"


def test_what_is_not_the_user_s_is_not_shared(written, reachable):
    (written / "objects" / NAME).chmod(0o666)
    with pytest.raises(CacheError, match="can be written to by others"):
        share.share(reachable)
    (written / "objects" / NAME).unlink()
    (written / "objects" / NAME).symlink_to("/etc/passwd")
    with pytest.raises(CacheError, match="cannot be opened without following links"):
        share.share(reachable)
    assert modes(written)["key"] == 0o600, "the key is the last"


@pytest.mark.parametrize("mode", [0o440, 0o404, 0o445, 0o555])
def test_only_the_mode_of_sharing_is_one(written, mode):
    (written / "key").chmod(mode)
    with warned("key can be read by others"):
        assert store().read(NAME) is None
