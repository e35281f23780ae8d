"""Machine code that somebody else put into the cache is never run, whichever way it came there.

What the others prepare here is a whole cache with bundles for the same file, as any user of the
machine can make one. A model that starts its engine did not run what they prepared.
"""

import gc
import os
import shutil
import stat

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade.backends.cpu.store.identity import machine_identity
from saccade.backends.cpu.store.saved import settle
from saccade.caches import trust
from saccade.testing.logged import warned

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")

X = image(1, 3, 9, 9)
OTHER = image(1, 3, 9, 11)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What somebody else prepared: sound but for its key, and it says something else."""
    folder = tmp_path_factory.mktemp("theirs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SACCADE_CACHE_DIR", str(folder))
        model = compiled(convolutions(), threads=1)
        wanted = model(X), model(OTHER)
    return folder, wanted


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_warned", set())
    folder = tmp_path / "above" / "cache"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def own(cache, theirs):
    """A cache of our own with the same in it: they know what is there."""
    gc.collect()  # what other tests left: constants that a process holds are not read again
    shutil.copytree(theirs[0], cache)
    for path in (cache.parent, cache):
        path.chmod(0o700)
    return cache


@pytest.fixture
def prepared(tmp_path, theirs):
    """Their cache, which they sealed with their own key."""
    copy = tmp_path / "prepared"
    shutil.copytree(theirs[0], copy)
    return copy


@pytest.fixture
def rekeyed(own):
    """Ours with another key: all that is in there is theirs to us."""
    (own / "key").write_bytes(os.urandom(32))
    return own


def ready(wanted, x=X, **options):
    """Whether a start found its program; the result is right in any case."""
    model = compiled(convolutions(), threads=1, **options)
    assert np.array_equal(model(x), wanted)
    return model._engine is None


def test_what_is_sealed_with_another_key_is_not_run(rekeyed, theirs):
    assert not ready(theirs[1][0])
    assert ready(theirs[1][0]), "it was made again"


@pytest.mark.parametrize("level", ["above", "cache", "cache/bundles"])
def test_a_folder_that_is_moved_in_between_two_sizes(own, prepared, theirs, level):
    """The exploit: the model is in use, and its folder of bundles is exchanged under it."""
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), theirs[1][0]) and model._engine is None
    exposed = own.parent if level == "above" else own.parent / level
    exposed.chmod(0o777)
    inside = own / "bundles" if level != "cache/bundles" else next((own / "bundles").iterdir())
    inside.rename(own.parent / "away")
    source = prepared / inside.relative_to(own)
    source.rename(inside)
    with warned("can be written to by others"):
        y = model(OTHER)
        settle()  # what is kept beside the run, or not
    assert np.array_equal(y, theirs[1][1])
    assert model._engine is not None, "what they prepared was run"


def test_a_folder_that_is_moved_in_and_given_back_its_mode(own, prepared, theirs):
    """Nothing of the exchange is left to see, but that the seal is theirs."""
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), theirs[1][0]) and model._engine is None
    (own / "key").write_bytes(os.urandom(32))
    shutil.rmtree(own / "bundles")
    (prepared / "bundles").rename(own / "bundles")
    assert np.array_equal(model(OTHER), theirs[1][1])
    assert model._engine is not None


def model_folder(cache):
    (folder,) = {path.parent for path in (cache / "bundles").glob("*/*.weights")}
    return folder


@pytest.mark.parametrize("how", ["mode 777", "link", "owner", "files", "files' owner"])
def test_the_model_s_own_folder_is_looked_at_too(own, theirs, monkeypatch, how):
    assert ready(theirs[1][0])
    folder = model_folder(own)
    if how == "mode 777":
        folder.chmod(0o777)
    elif how == "link":
        folder.rename(own / "elsewhere")
        folder.symlink_to(own / "elsewhere")
    elif how == "files":
        for path in folder.iterdir():
            path.chmod(0o666)
    else:
        inodes = [folder] if how == "owner" else [*folder.iterdir()]
        foreign = {path.stat().st_ino for path in inodes}
        for number, path in enumerate(inodes if how == "files' owner" else ()):
            os.link(path, own / f"kept {number}")  # so that no other file gets the inode

        def status(file):
            found = os.fstat(file)
            fields = list(found)
            fields[stat.ST_UID] += found.st_ino in foreign
            return os.stat_result(fields)

        monkeypatch.setattr(trust, "_status", status)
    with warned("does not use it"):
        assert not ready(theirs[1][0])
    if how.startswith("files"):
        assert ready(theirs[1][0]), "files are replaced by our own"
    else:
        assert not ready(theirs[1][0])


def test_objects_and_graphs_of_others_are_not_used(rekeyed, theirs):
    shutil.rmtree(rekeyed / "bundles")
    model = compiled(convolutions(), threads=1)
    assert np.array_equal(model(X), theirs[1][0])
    assert model._started().backend.objects.compiled > 0


@pytest.mark.parametrize("kind", ["program", "weights", "signature"])
def test_a_fifo_among_the_entries_is_passed_over(own, theirs, kind):
    for path in model_folder(own).glob(f"*.{kind}"):
        path.unlink()
        os.mkfifo(path)
    with warned("is no regular file"):
        assert not ready(theirs[1][0])
    assert ready(theirs[1][0]), "and replaced"


@pytest.mark.parametrize(
    "payload", [b"", b"\1", bytes(8), b"\xff" * 64, b"\2" + bytes(7) + b"{}"], ids=range(5)
)
@pytest.mark.parametrize("kind", ["program", "signature"])
def test_whatever_is_sealed_and_makes_no_sense_is_made_again(own, theirs, kind, payload):
    """Only a mistake of ours could write that; it is no reason to fail."""
    model = compiled(convolutions(), threads=1)
    for path in model_folder(own).glob(f"*.{kind}"):
        assert model._store.write(path.name, payload)
    assert not ready(theirs[1][0])
    assert ready(theirs[1][0])


@pytest.mark.parametrize("offset", [-8, 1 << 40])
@pytest.mark.parametrize("which", ["symbol", "slots"])
def test_code_whose_table_leads_out_of_it_is_not_mapped(own, theirs, which, offset):
    from saccade.backends.cpu.store.saved import _LENGTH, _parse, json  # noqa: PLC0415

    model = compiled(convolutions(), threads=1)
    name = next(path.name for path in model_folder(own).glob("*.program"))
    content = model._store.read(name)
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : end])
    if which == "slots":
        header["image"][2] = offset
    else:
        symbols = header["image"][1]
        symbols[next(iter(symbols))] = offset
    text = json.dumps(header).encode()
    assert _parse(content) is not None
    assert _parse(_LENGTH.pack(len(text)) + text + content[end:]) is None
