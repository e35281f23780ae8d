"""saccade cache: what it lists, what it finds, what it deletes."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from saccade.backends.cpu.store.bundle import Bundles
from saccade.backends.cpu.store.weights import place
from saccade.caches import cache_folder, limit, trust
from saccade.ir import DType, Graph, Value, serialize
from saccade.signature import Signature, TensorInfo
from saccade.tuning.store import Measured, TimingStore

PAST = 1_700_000_000  # November 2023


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    monkeypatch.delenv("SACCADE_CACHE_BYTES", raising=False)
    monkeypatch.setattr(limit, "_counts", {})
    monkeypatch.setattr(trust, "_warned", set())
    return folder


@pytest.fixture
def filled(cache):
    """One entry of every kind."""
    cache_folder("objects").write("conv.bin", b"code")
    x = Value("x", DType.F32, (4,))
    weights = np.arange(4, dtype=np.float32)
    graph = Graph((), (x,), (), {x: weights}, ("x",), "g")
    cache_folder("cubins").write("gpu.bin", b"code")
    cache_folder("graphs").add("g.graph", lambda e: serialize.save(graph, e.file, e.seal))
    bundles = Bundles(cache_folder("bundles").folder("0123456789abcdef"), "model", "variant")
    info = TensorInfo("image", "float32", ("N", 3, 8, 8))
    bundles.keep_signature(Signature((info,), (info,), "net.onnx"))
    bundles.write("a.program", b"program")
    bundles.keep_weights(place([("w", 16)]), lambda put: put(0, weights))
    cache_folder("algorithms").write("a.json", b"{}")
    TimingStore("cpu", {"cpu": "this"}).add([Measured("call", "v1", "v0", "conv", 1.0, 2.0, 3)])
    cache_folder("digests").write("a.digest", b"")
    for path in cache.rglob("*.*"):
        os.utime(path, (PAST, PAST))
    return cache


KINDS = ["objects", "cubins", "graphs", "bundles", "algorithms", "timings", "digests"]
ENTRIES = [
    "objects/*.bin", "*.graph", "*.signature", "*.program", "*.weights", "*.json", "*.jsonl",
    "*.digest",
]  # fmt: skip


def entry(cache, pattern):
    (path,) = cache.rglob(pattern)
    return path


def test_ls_of_no_cache(saccade_cli, cache):
    result = saccade_cli("cache", "ls")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"0 B of at most 8.0 GiB in {cache}"
    assert not cache.exists(), "looking makes nothing"


def test_ls_lists_kinds_and_models(saccade_cli, filled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = saccade_cli("cache", "ls")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *KINDS[:4], "0123456789ab", *KINDS[4:], "40.0",
    ]  # fmt: skip
    rows = {line.split()[0]: line.split() for line in lines}
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(PAST)).split()
    assert rows["objects"][1:] == ["1", "files", "4.0", "KiB", *when, "compiled", "kernels"]
    model = ["3", "files", "16.0", "KiB", *when, "net.onnx,", "image:", "float32", "Nx3x8x8"]
    assert rows["0123456789ab"][1:] == model
    assert rows["bundles"][1:5] == model[:4]
    assert lines[-1] == f"40.0 KiB of at most 8.0 GiB in {filled}"
    assert all(path.stat().st_mtime == PAST for path in filled.rglob("*.*")), "that is no use"


def test_ls_tells_the_limit(saccade_cli, refused, filled, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "500M")
    assert "of at most 500.0 MiB in" in saccade_cli("cache", "ls").stdout
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "a lot")
    assert "SACCADE_CACHE_BYTES: 'a lot' is not a size such as 500M" in refused("cache", "ls")


def test_verify_finds_nothing_where_all_is_sound(saccade_cli, filled):
    for arguments in ([], ["--remove"]):
        result = saccade_cli("cache", "verify", *arguments)
        assert result.exit_code == 0 and result.stdout == "0 not sound\n", result.output
    assert all(path.stat().st_mtime == PAST for path in filled.rglob("*.*")), "that is no use"
    assert all(entry(filled, pattern) for pattern in ENTRIES)


def test_verify_of_no_cache(saccade_cli, cache):
    assert saccade_cli("cache", "verify").exit_code == 0
    assert not cache.exists()


def flip(path):
    whole = path.read_bytes()
    at = len(whole) - 10 if path.suffix != ".graph" else len(whole) - 3
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


def to_fifo(path):
    path.unlink()
    os.mkfifo(path)


def to_link(path):
    path.rename(elsewhere())
    path.symlink_to(elsewhere())


def elsewhere():
    return Path(os.environ["SACCADE_CACHE_DIR"], "elsewhere")


def to_folder(path):
    path.unlink()
    path.mkdir()
    (path / "more").touch()


def to_empty(path):
    path.write_bytes(b"")


def to_open(path):
    path.chmod(0o666)


def to_foreign_name(path):
    path.rename(path.with_name("other.o"))


DAMAGES = [flip, to_fifo, to_link, to_folder, to_empty, to_open, to_foreign_name]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("pattern", ENTRIES)
def test_verify_finds_whatever_is_wrong_with_an_entry(saccade_cli, filled, pattern, damage):
    path = entry(filled, pattern)
    if damage is to_empty and pattern == "*.jsonl":
        pytest.skip("a log without lines is a log")
    damage(path)
    name = "other.o" if damage is to_foreign_name else path.name
    result = saccade_cli("cache", "verify")
    assert result.exit_code == 1, result.output
    problem, count = result.stdout.splitlines()
    assert str(path.with_name(name)) in problem and count == "1 not sound"
    result = saccade_cli("cache", "verify", "--remove")
    assert result.exit_code == 1 and result.stdout.splitlines()[-1] == "1 not sound, removed"
    assert not os.path.lexists(path.with_name(name))
    assert saccade_cli("cache", "verify").exit_code == 0
    if damage is to_link:
        assert elsewhere().exists()


@pytest.mark.parametrize("kind", KINDS)
def test_verify_finds_folders_that_others_may_write_to(saccade_cli, filled, kind):
    (filled / kind).chmod(0o777)
    result = saccade_cli("cache", "verify", "--remove")
    assert result.exit_code == 1
    assert f"{filled / kind} can be written to by others (mode 0777)" in result.stdout
    assert not (filled / kind).exists()
    assert saccade_cli("cache", "verify").exit_code == 0


def test_verify_finds_what_a_killed_writer_left(saccade_cli, filled):
    left = filled / "graphs" / ".new-0123456789abcdef"
    left.touch()
    assert saccade_cli("cache", "verify").exit_code == 0, "it may still be written"
    os.utime(left, (PAST, PAST))
    result = saccade_cli("cache", "verify", "--remove")
    assert result.exit_code == 1 and f"{left} was left by a run that was cut off" in result.stdout
    assert not left.exists()


def test_verify_without_the_key_finds_everything(saccade_cli, filled):
    (filled / "key").unlink()
    result = saccade_cli("cache", "verify", "--remove")
    assert result.exit_code == 1 and result.stdout.count("is missing") == len(KINDS)
    assert [path.name for path in filled.iterdir()] == []


def test_what_is_none_of_ours_is_left_alone(saccade_cli, filled):
    (filled / "thesis.tex").touch()
    assert saccade_cli("cache", "verify", "--remove").exit_code == 0
    assert saccade_cli("cache", "prune", "--all").exit_code == 0
    assert {path.name for path in filled.iterdir()} == {"thesis.tex", "key"}


@pytest.mark.parametrize("command", ["ls", "verify", "prune"])
def test_a_cache_that_may_not_be_used_is_one_line(refused, filled, command):
    filled.chmod(0o777)
    assert "can be written to by others" in refused("cache", command)
    filled.chmod(0o700)
    (filled / "key").write_bytes(b"")
    assert "key is damaged" in refused("cache", command)


def test_prune_deletes_what_was_used_longest_ago(saccade_cli, filled):
    os.utime(entry(filled, "objects/*.bin"))
    os.utime(entry(filled, "*.graph"))
    result = saccade_cli("cache", "prune", "--to", "8K")
    assert result.exit_code == 0 and result.stdout == "32.0 KiB deleted, 8.0 KiB left\n"
    assert {p.suffix for p in filled.rglob("*.*")} == {".bin", ".graph", ".lock"}
    assert saccade_cli("cache", "prune", "--to", 0).stdout == "8.0 KiB deleted, 0 B left\n"


def test_prune_goes_to_the_limit(saccade_cli, filled, monkeypatch):
    assert saccade_cli("cache", "prune").stdout == "0 B deleted, 40.0 KiB left\n"
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "8K")
    assert saccade_cli("cache", "prune").stdout == "32.0 KiB deleted, 8.0 KiB left\n"


def test_prune_everything(saccade_cli, refused, filled):
    assert "choose one of --to and --all" in refused("cache", "prune", "--all", "--to", "1M")
    assert "'lots' is not a size such as 500M" in refused("cache", "prune", "--to", "lots")
    assert saccade_cli("cache", "prune", "--all").stdout == "40.0 KiB deleted, 0 B left\n"
    assert [path.name for path in filled.iterdir()] == ["key"]


def test_prune_of_no_cache(saccade_cli, cache):
    assert saccade_cli("cache", "prune").stdout == "there is no cache yet\n"
    assert not cache.exists()


def test_share(saccade_cli, refused, filled, monkeypatch):
    assert "others may not enter" in refused("cache", "share")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("SACCADE_CACHE_DIR", f"{folder}/cache")
        assert "there is no cache yet" in refused("cache", "share")
        cache_folder("objects").write("conv.bin", b"code")
        result = saccade_cli("cache", "share")
        assert result.stdout == f"1 files in {folder}/cache can be read by all\n"
        assert saccade_cli("cache", "verify").exit_code == 0


def test_help(saccade_cli, refused):
    for command in ([], ["ls"], ["verify"], ["prune"]):
        result = saccade_cli("cache", *command, "--help")
        assert result.exit_code == 0 and "cache" in result.stdout
    assert "No such command 'wash'" in refused("cache", "wash")


def test_a_model_whose_signature_makes_no_sense_is_listed(saccade_cli, filled):
    for payload in (b"", b"[]", json.dumps([[3]]).encode(), b'[[["a"]]]'):
        cache_folder("bundles").folder("0123456789abcdef").write("variant.signature", payload)
        result = saccade_cli("cache", "ls")
        assert result.exit_code == 0, result.output
        assert "0123456789ab" in result.stdout


def test_a_model_of_a_version_that_kept_no_name_is_listed_with_its_inputs(saccade_cli, filled):
    kept = json.dumps([[["x", "float32", [1, 3], False]], []]).encode()
    cache_folder("bundles").folder("fedcba9876543210").write("variant.signature", kept)
    lines = saccade_cli("cache", "ls").stdout.splitlines()
    assert any("fedcba987654" in line and line.endswith("  x: float32 1x3") for line in lines)
