"""Users' files: complete or not at all, nothing left over, and the error that there was."""

import errno
import os
import stat
import threading

import pytest

from saccade import files
from saccade.files import fresh_file, renamed_file, whole_file, write_text


class StopError(Exception):
    """What is no error of files."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    """A descriptor of `tmp_path`."""
    opened = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def refusing(error):
    """A stand-in for a function of `os` that always fails."""

    def refuse(*_args, **_more):
        raise error

    return refuse


def test_a_text_is_written_and_nothing_else_is_left(tmp_path):
    write_text(tmp_path / "figures.json", "µs\n")
    assert (tmp_path / "figures.json").read_bytes() == "µs\n".encode()
    assert names(tmp_path) == ["figures.json"]


def test_until_it_is_whole_there_is_what_was_there(tmp_path):
    path = tmp_path / "figures.json"
    path.write_text("old")
    with whole_file(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("before", [None, "old"])
def test_an_error_on_the_way_leaves_what_was_there(tmp_path, before):
    path = tmp_path / "figures.json"
    if before is not None:
        path.write_text(before)
    with pytest.raises(StopError, match="half way"), whole_file(path) as stream:
        stream.write(b"half")
        raise StopError("half way")
    assert [each.read_text() for each in tmp_path.iterdir()] == [before] * (before is not None)


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_a_full_disk_keeps_its_error_and_leaves_what_was_there(tmp_path, monkeypatch, step):
    path = tmp_path / "figures.json"
    path.write_text("old")
    monkeypatch.setattr(files.os, step, refusing(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["figures.json"]


def test_what_cannot_be_written_is_named_as_the_user_named_it(tmp_path):
    (tmp_path / "folder").mkdir()
    for path, kind in (
        (tmp_path / "absent" / "figures.json", FileNotFoundError),
        (tmp_path / "folder", IsADirectoryError),
        (tmp_path / "folder" / ".." / "folder", IsADirectoryError),
    ):
        with pytest.raises(kind) as caught:
            write_text(path, "new")
        assert caught.value.filename == str(path)
    assert names(tmp_path) == ["folder"]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "figures.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path / "far") == ["figures.json"]


def test_permissions_are_the_users(tmp_path):
    path, secret = tmp_path / "figures.json", tmp_path / "secret.json"
    secret.write_text("old")
    secret.chmod(0o640)
    umask = os.umask(0o027)
    try:
        write_text(path, "new")
        write_text(secret, "new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640  # 666 less the umask
    assert stat.S_IMODE(secret.stat().st_mode) == 0o640
    secret.chmod(0o606)
    write_text(secret, "newer")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o606


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    write_text(path, "through")
    reader.join(20)
    assert read == [b"through"]
    assert names(tmp_path) == ["pipe"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_fresh_file_that_nobody_renames_is_gone(tmp_path, folder):
    with fresh_file(folder) as (file, name):
        os.write(file, b"half")
        assert (tmp_path / name).read_bytes() == b"half"
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
    assert names(tmp_path) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_a_renamed_file_is_whole_or_absent(tmp_path, folder):
    with renamed_file(folder, "entry") as file:
        os.write(file, b"one")
        assert "entry" not in names(tmp_path)
    assert (tmp_path / "entry").read_bytes() == b"one"
    with pytest.raises(StopError, match="two"), renamed_file(folder, "entry") as file:
        os.write(file, b"half of two")
        raise StopError("two")
    assert (tmp_path / "entry").read_bytes() == b"one"
    assert names(tmp_path) == ["entry"]
