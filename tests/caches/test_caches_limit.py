"""The cache stays within its size, over all that is in it, and forgets what was used least."""

import os
import re
from pathlib import Path

import pytest

from saccade.caches import GRAPHS, CacheFolder, cache_folder, limit
from saccade.options import cache_bytes, parse_bytes

BLOCK = 4096
SOURCE = Path(limit.__file__).parents[1]
STORES = ["objects", "graphs", "bundles/a", "bundles/b", "algorithms", "timings", "digests"]


@pytest.fixture
def most(cache, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", str(16 * BLOCK))
    return cache


def write(folder, name, used, blocks=1):
    assert cache_folder(folder).write(name, bytes(blocks * BLOCK - 200))
    os.utime(cache_folder(folder).path / name, (used, used))


def names(cache):
    return {path.name for path in cache.rglob("*") if path.is_file()} - {"key"}


def total(cache):
    return sum(item.size for item in limit.walk(CacheFolder(str(cache), "")))


def test_the_limit_knows_every_folder_that_is_written_to():
    named = set()
    for path in SOURCE.rglob("*.py"):
        named |= set(re.findall(r"\bcache_folder\(([^)]*)\)", path.read_text()))
    named.discard("name: str")
    assert {GRAPHS if name == "GRAPHS" else name.strip('"') for name in named} == set(limit.KINDS)


def test_whatever_is_written_the_total_holds(most):
    for n in range(60):
        write(STORES[n % len(STORES)], f"{n}.x", 1e9 + n, 1 + n % 3)
        assert total(most) <= 16 * BLOCK
        assert f"{n}.x" in names(most), "what was just written stays"
    assert total(most) > 8 * BLOCK


def test_the_least_recently_used_goes_first_of_whatever_kind(most):
    for n, folder in enumerate(STORES * 2):
        write(folder, f"{n}.x", 1e9 + (-n if n < 7 else n))
    os.utime(most / "objects" / "0.x")
    write("graphs", "last", 2e9, 4)
    # 18 blocks are too many, 14 are left: the four that were used least are gone.
    assert names(most) == {f"{n}.x" for n in (0, 1, 2, *range(7, 14))} | {"last"}


def test_models_folders_that_are_empty_go_too(most):
    write("bundles/old", "x", 1e9, 8)
    write("bundles/new", "x", 2e9, 8)
    write("objects", "y", 2e9)
    assert {path.name for path in (most / "bundles").iterdir()} == {"new"}


def test_what_alone_is_too_large_is_not_written(most):
    write("objects", "x", 1e9)
    assert not cache_folder("graphs").write("y", bytes(17 * BLOCK))
    assert names(most) == {"x"}


def test_what_is_none_of_ours_is_neither_counted_nor_deleted(most):
    most.mkdir(parents=True, mode=0o700)
    (most / "thesis.tex").write_bytes(bytes(99 * BLOCK))
    (most / "photos").mkdir()
    (most / "photos" / "me.bin").write_bytes(bytes(99 * BLOCK))
    os.utime(most / "photos" / "me.bin", (1, 1))
    for n in range(20):
        write("objects", f"{n}.x", 1e9 + n)
    assert {"thesis.tex", "me.bin"} <= names(most)
    assert 8 * BLOCK < total(most) <= 16 * BLOCK


def test_what_others_write_is_seen_after_a_while(most, monkeypatch):
    monkeypatch.setattr(limit, "_STEP", 3 * BLOCK)
    write("objects", "x", 1e9)
    for n in range(20):
        path = most / "objects" / f"theirs {n}"
        path.write_bytes(bytes(BLOCK))
        os.utime(path, (1e8, 1e8))
    for n in range(4):
        write("objects", f"{n}.x", 1e9)
    assert total(most) <= 16 * BLOCK


def test_what_a_writer_left_that_died_costs_no_entry(most):
    for n in range(9):
        write("objects", f"{n}.x", 1e9 + n)
    dead = most / "objects" / ".new-dead"
    dead.write_bytes(bytes(10 * BLOCK))
    os.utime(dead, (1e8, 1e8))
    limit.prune_to(CacheFolder(str(most), ""), 16 * BLOCK)
    assert names(most) == {f"{n}.x" for n in range(9)}


def test_a_cache_is_walked_seldom(cache, monkeypatch):
    walks = []
    real = limit.walk
    monkeypatch.setattr(limit, "walk", lambda top: walks.append(top) or real(top))
    for n in range(50):
        write("objects", str(n), 1e9)
    assert len(walks) == 1


def test_locks_stay(most):
    with cache_folder("timings").appending("x.jsonl"):
        os.utime(most / "timings" / "x.jsonl.lock", (1, 1))
        for n in range(30):
            write("objects", str(n), 1e9 + n)
    assert "x.jsonl.lock" in names(most)


def test_links_are_not_followed(most, tmp_path):
    target = tmp_path / "mine"
    target.write_bytes(bytes(99 * BLOCK))
    write("objects", "x", 1e9)
    (most / "objects" / "link").symlink_to(target)
    (most / "bundles").mkdir(mode=0o700)
    (most / "bundles" / "link").symlink_to(tmp_path)
    for n in range(30):
        write("objects", str(n), 1e9 + n)
    limit.prune_to(CacheFolder(str(most), ""), 0)
    assert target.exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("123", 123), ("5k", 5 << 10), ("500M", 500 << 20), ("2GiB", 2 << 30),
     ("2 gb", 2 << 30), ("1T", 1 << 40), (" 7B ", 7)],
)  # fmt: skip
def test_sizes(text, size, monkeypatch):
    assert parse_bytes(text) == size
    monkeypatch.setenv("SACCADE_CACHE_BYTES", text)
    assert cache_bytes() == size


def test_the_limit_is_8_gib_unless_given(monkeypatch):
    monkeypatch.delenv("SACCADE_CACHE_BYTES", raising=False)
    assert cache_bytes() == 8 << 30
