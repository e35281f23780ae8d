"""Who could have written an entry decides whether it is read, each time it is opened."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from saccade.caches import cache_folder, trust
from saccade.testing.logged import warned

NAME = "one.bin"


def store():
    return cache_folder("objects")


@pytest.fixture
def written(cache):
    assert store().write(NAME, b"payload")
    assert store().read(NAME) == b"payload"
    return cache


def refused(match):
    """Read and write, neither of which works, with one warning for both."""
    with warned(match) as caught:
        assert store().read(NAME) is None
        store().exists(NAME)
    assert len(caught) == 1, "one is enough"
    assert len(caught[0].splitlines()) == 1


LEVELS = {"above": lambda c: c.parent, "cache": lambda c: c, "objects": lambda c: c / "objects"}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o720, 0o702])
@pytest.mark.parametrize("level", LEVELS)
def test_what_others_may_write_to_is_not_used(written, level, mode):
    place = LEVELS[level](written)
    place.chmod(mode)
    refused(rf"{place} can be written to by others \(mode 0{mode:o}\).* `chmod go-w {place}`")
    assert not store().write("two.bin", b"") and not store().usable()
    place.chmod(0o700)
    assert store().read(NAME) == b"payload"


def test_a_sticky_directory_above_is_no_danger_and_as_the_cache_it_is(written):
    written.parent.chmod(0o1777)
    assert store().read(NAME) == b"payload"
    written.chmod(0o1777)
    refused("can be written to by others")


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_files_that_others_may_write_are_not_read_and_are_replaced(written, mode):
    (written / "objects" / NAME).chmod(mode)
    refused(rf"{NAME} can be written to by others \(mode 0{mode:o}\)")
    assert store().write(NAME, b"again") and store().read(NAME) == b"again"


def act_out(monkeypatch, owners):
    """Let the files of these inodes belong to others."""

    def status(file):
        found = os.fstat(file)
        fields = list(found)
        fields[stat.ST_UID] = owners.get(found.st_ino, found.st_uid)
        return os.stat_result(fields)

    monkeypatch.setattr(trust, "_status", status)


@pytest.mark.parametrize("level", [*LEVELS, "entry", "key"])
def test_what_belongs_to_somebody_else_is_not_used(written, monkeypatch, level):
    own = {"entry": written / "objects" / NAME, "key": written / "key"}
    place = own[level] if level in own else LEVELS[level](written)
    act_out(monkeypatch, {place.stat().st_ino: 12345})
    refused(f"{place} belongs to user 12345, not to you")
    act_out(monkeypatch, {})
    assert store().read(NAME) == b"payload"


def test_directories_above_may_be_root_s(written, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 777)
    mine = {p.stat().st_ino: 777 for p in (written, written / "objects", written / "key")}
    above = {p.stat().st_ino: 0 for p in written.parents}
    entry = {(written / "objects" / NAME).stat().st_ino: 777}
    act_out(monkeypatch, mine | above | entry)
    assert store().read(NAME) == b"payload"
    act_out(monkeypatch, mine | above | entry | {written.parent.stat().st_ino: 778})
    refused(f"{written.parent} belongs to user 778, not to you or root")


@pytest.mark.parametrize("level", [*LEVELS, "entry", "key"])
def test_links_that_come_later_are_not_followed(written, level):
    """Whatever they lead to: all of it is the user's own, and was good under its own name."""
    own = {"entry": written / "objects" / NAME, "key": written / "key"}
    place = own[level] if level in own else LEVELS[level](written)
    elsewhere = place.with_name("elsewhere")
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    refused(f"{place} cannot be opened without following links")


def test_a_link_above_that_was_there_is_resolved(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "home" / "cache"))
    assert store().write(NAME, b"payload") and store().read(NAME) == b"payload"
    assert (tmp_path / "disk" / "cache" / "objects" / NAME).is_file()
    (tmp_path / "evil").mkdir(mode=0o777)
    (tmp_path / "home").unlink()
    (tmp_path / "home").symlink_to(tmp_path / "evil")
    assert store().read(NAME) == b"payload", "and stays what it was"


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)


KINDS = {
    "fifo": os.mkfifo,
    "directory": os.mkdir,
    "socket": a_socket,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["objects/one.bin", "key", "objects"])
def test_what_is_no_file_hangs_nobody(written, kind, name, monkeypatch):
    place = written / name
    place.rename(written / "moved")
    monkeypatch.chdir(place.parent)  # a socket's path is short
    KINDS[kind](place.name)
    if kind == "directory" and name == "objects":
        place.chmod(0o700)
        assert store().read(NAME) is None
        return
    script = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from saccade.caches import cache_folder\n"
        "store = cache_folder('objects')\n"
        f"print(store.read({NAME!r}), store.exists({NAME!r}), len(store.items()))\n"
        "print(store.usable(), store.write('two.bin', b'2'))\n"
        "try:\n"
        f"    store.appending({NAME!r}).__enter__()\n"
        "except OSError: print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.startswith("None False") and done.stdout.endswith("refused\n")


def test_a_warning_is_given_once_for_a_place(written):
    for name in ("two.bin", "three.bin"):
        store().write(name, b"")
    for path in (written / "objects").iterdir():
        path.chmod(0o666)
    with warned("can be written to by others") as caught:
        for name in (NAME, "two.bin", "three.bin"):
            assert store().read(name) is None
    assert len(caught) == 1


def test_what_is_not_there_is_no_reason_to_warn_and_nothing_is_made_for_reading(cache):
    assert store().read(NAME) is None and not store().exists(NAME) and store().items() == []
    store().remove(NAME)
    assert not cache.parent.exists()


def test_a_cache_that_cannot_be_made_says_so(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with warned("file cannot be opened.*set SACCADE_CACHE_DIR to"):
        assert not store().usable()


def test_a_swapped_directory_is_not_entered(written, monkeypatch):
    """Between two openings somebody puts a folder of theirs in the place of one."""
    theirs = written.parent / "theirs"
    theirs.mkdir(mode=0o700)
    (written / "objects" / NAME).rename(theirs / NAME)
    (written / "objects").rename(written / "old")
    theirs.rename(written / "objects")
    act_out(monkeypatch, {(written / "objects").stat().st_ino: 12345})
    refused("objects belongs to user 12345")


def test_what_was_opened_is_what_is_read(written):
    """Even if its name leads elsewhere by then."""
    with store().opened(NAME) as entry:
        (written / "objects").rename(written / "old")
        (written / "objects").mkdir(mode=0o777)
        assert os.read(entry.file, 1 << 10).endswith(b"payload")


# -- the key ------------------------------------------------------------


def test_the_key_is_private_and_everybody_s_own(cache, tmp_path, monkeypatch):
    store().write(NAME, b"payload")
    key = cache / "key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_size == 32
    theirs = tmp_path / "theirs"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(theirs))
    store().write(NAME, b"their code")
    assert (theirs / "key").read_bytes() != key.read_bytes()
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(cache))
    (theirs / "objects" / NAME).rename(cache / "objects" / NAME)
    assert store().read(NAME) is None, "sealed with another key"


@pytest.mark.parametrize("content", [b"", b"short", bytes(31), bytes(33), bytes(5000)])
def test_a_damaged_key_is_not_used(written, content):
    (written / "key").write_bytes(content)
    refused("key is damaged.*delete it: another one will be made")
    assert not store().write(NAME, b"") and not store().usable()
    (written / "key").unlink()
    assert store().write(NAME, b"new") and store().read(NAME) == b"new"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_seals_nothing(written, mode):
    (written / "key").chmod(mode)
    refused("key can be read by others")


def test_a_lost_key_is_told_and_made_anew(written):
    (written / "key").unlink()
    refused("key, which seals what is in there, is missing")
    assert store().write("two.bin", b"2")
    assert store().read("two.bin") == b"2" and store().read(NAME) is None


def test_a_key_that_cannot_be_made_means_no_cache(cache, monkeypatch):
    def refuse(*_args, **_more):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with warned("key cannot be made .Operation not permitted"):
        assert not store().usable()
    assert [*cache.iterdir()] == [], "and leaves nothing"


def test_processes_that_make_a_key_at_once_have_the_same(cache):
    cache.mkdir(parents=True, mode=0o700)
    script = (
        "import sys; from saccade.caches import cache_folder\n"
        "store = cache_folder('objects'); print('ready', flush=True); sys.stdin.readline()\n"
        "assert store.write(sys.argv[1], b'payload')\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for n in range(4)
    ]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert not any(process.wait(60) for process in running)
    for process in running:
        process.communicate()
    assert all(store().read(str(n)) == b"payload" for n in range(4))
    assert {path.name for path in cache.iterdir()} == {"key", "objects"}


def test_threads_that_make_a_key_at_once_have_the_same(tmp_path, monkeypatch):
    for turn in range(20):
        monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / str(turn)))
        together = threading.Barrier(4)
        done = []

        def write(n, together=together, done=done):
            together.wait()
            done.append(store().write(str(n), b"payload"))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [True] * 4
        assert all(store().read(str(n)) == b"payload" for n in range(4))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_that_were_given_away_are_not_used(written):
    os.chown(written / "objects" / NAME, 12345, 12345)
    refused("belongs to user 12345")
    os.chown(written.parent, 12345, 12345)
    trust._warned.clear()
    refused(f"{written.parent} belongs to user 12345, not to you or root")


ANOTHER_USER = """
import logging, os
from saccade.caches import cache_folder
import saccade.caches.limit
os.setuid(12345)
print(cache_folder("objects").read("one.bin"), cache_folder("objects").usable())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_does_not_use_ours(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("SACCADE_CACHE_DIR", f"{folder}/cache")
        assert store().write(NAME, b"payload")
        for path in (Path(folder), Path(folder, "cache"), Path(folder, "cache/objects")):
            path.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", ANOTHER_USER],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert done.stdout.split() == ["None", "False"]
    (told,) = done.stderr.splitlines()
    assert "key cannot be opened by you (Permission denied)" in told
    assert "let its owner run `saccade cache share`" in told
