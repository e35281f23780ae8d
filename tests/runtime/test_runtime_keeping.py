"""Which constants lie packed on disk: what has space, and what nothing can make again."""

from types import SimpleNamespace

import numpy as np
import pytest

from saccade.backends.cpu.store import keeping


class Disk:
    """Stands in for a model's bundles."""

    def __init__(self, taken=0, graph=1_000_000):
        self._taken, self._graph = taken, graph

    def weights_bytes(self):
        return self._taken

    def graph_bytes(self):
        return self._graph


def made_of(source, nbytes, *, native=True):
    """A constant as `unpacked` gives it."""
    array = np.zeros(source // 4, np.float32)
    constant = SimpleNamespace(sources=("w",), packing="some", nbytes=nbytes)
    return SimpleNamespace(constant=constant, sources=(array,), panels=("some",) if native else ())


@pytest.fixture
def share(monkeypatch):
    """Shares constants out for a graph of 1 MB."""
    monkeypatch.setattr(keeping, "unpacked", lambda _graph, wanted: wanted)
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "8G")
    whole = SimpleNamespace(nbytes=1_000_000)
    graph = SimpleNamespace(constants={"w": whole})
    return lambda disk, wanted: keeping.choose_kept(disk, graph, wanted)


def test_what_fits_is_kept(share):
    found = share(Disk(), {"a": made_of(100_000, 700_000), "b": made_of(4, 300_000, native=False)})
    assert found.packed == {"a", "b"} and not found.derived
    assert found.most == 1_200_000


def test_of_what_does_not_fit_the_largest_over_their_sources_are_derived(share):
    wanted = {
        "spectra": made_of(100_000, 700_000),
        "panels": made_of(400_000, 410_000),
        "more": made_of(400_000, 400_000),
        "indices": made_of(4, 9_000, native=False),
    }
    found = share(Disk(), wanted)
    assert found.packed == {"panels", "more", "indices"}
    assert found.derived == {"spectra": ("w", 100_000, 700_000, ("some",))}
    left = found.most - 9_000 - 810_000
    assert share(Disk(taken=left // 2), wanted).packed == found.packed
    tight = share(Disk(taken=left), wanted)
    assert tight.packed == {"more", "indices"}, "some space stays for what nothing can derive"
    full = share(Disk(taken=1_190_000), wanted)
    assert full is None
    wanted.pop("indices")
    assert share(Disk(taken=5_000_000), wanted).packed == set()


def test_a_constant_as_it_is_in_the_graph_needs_no_packer(share):
    raw = made_of(40_000, 40_000, native=False)
    raw.constant.packing = None
    found = share(Disk(taken=1_200_000), {"raw": raw})
    assert found.derived == {"raw": ("w", 40_000, 40_000, ())} and not found.packed
    big = made_of(40, 40)
    big.sources = (SimpleNamespace(size=1 << 31, nbytes=1 << 33),)
    assert share(Disk(taken=1_200_000), {"big": big}) is None


def test_a_graph_that_is_not_on_disk_is_no_source(share):
    wanted = {"spectra": made_of(100_000, 2_000_000)}
    assert share(Disk(), wanted).derived.keys() == {"spectra"}
    assert share(Disk(graph=None), wanted) is None


def test_the_size_of_the_graph_s_file_counts(share):
    assert share(Disk(graph=1_150_000), {}).most == 1_050_000
    assert share(Disk(graph=9_150_000), {}).most == keeping._LEAST


def test_a_small_cache_has_less_room(share, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_BYTES", "500K")
    assert share(Disk(), {}).most == 500 << 10
