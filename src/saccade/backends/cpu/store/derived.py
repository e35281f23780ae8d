"""Constants that lie on disk only as what they are packed from: a start packs them again.

A program's entry says how as plain data, for native packers whose code is in its image. The sources
are the graph's constants, in the graph's own file: so spectra, which are several times as large as
their weights, take no space on disk, and making them takes about as long as checking them would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from saccade.backends.cpu.store.native_packing import Task, allocate_each, side_by_side, tasks_into
from saccade.errors import CacheError
from saccade.kernels.cpu.pack.panels_config import PITCH, PackConfig, Panels, Spectra

if TYPE_CHECKING:
    from saccade.backends.cpu.store.packer_code import PackerCode
    from saccade.graphfile import RawConstant
    from saccade.ir import Array

__all__ = ["WORD", "WORD_LIMIT", "Derived", "decode", "derive", "encode"]

WORD = np.dtype(np.int32)
"""Of the numbers that are many."""
WORD_LIMIT = int(np.iinfo(WORD).max)
"""Elements that sources may have."""


class Derived(NamedTuple):  # which a start makes in a fifth of a dataclass's time
    """How a constant is made.

    Attributes:
        source: Name of the graph's constant.
        source_bytes: Bytes of that.
        nbytes: Bytes of the result.
        panels: What native packers make of it; the source as it is if there are none.
    """

    source: str
    source_bytes: int
    nbytes: int
    panels: tuple[Panels, ...]


def derive(
    wanted: Mapping[str, Derived], sources: Mapping[str, RawConstant], packers: PackerCode
) -> dict[str, Array]:
    """The constants by name, as bytes, in memory; packed on all cores.

    Args:
        wanted: How they are made.
        sources: Of what; each is checked once.
        packers: Code for all panels.

    Raises:
        CacheError: If a source is missing, damaged, or of another size.
    """
    sizes = {one.source: one.source_bytes for one in wanted.values()}
    checked: dict[str, Array] = {}

    def check(name: str) -> None:
        if name not in sources:
            raise CacheError(f"the graph has no constant {name!r}")
        checked[name] = sources[name]()
        if checked[name].nbytes != sizes[name]:
            raise CacheError(f"the graph's constant {name!r} is another one")

    side_by_side([(nbytes, partial(check, name)) for name, nbytes in sizes.items()])
    found = allocate_each({name: one.nbytes for name, one in wanted.items()})
    tasks: list[Task] = []
    for name, one in wanted.items():
        source = checked[one.source]
        if not one.panels:
            tasks.append((one.nbytes, partial(np.copyto, found[name], source)))
        for panels in one.panels:
            tasks += tasks_into(found[name], panels, source, packers)
    side_by_side(tasks)
    return found


def encode(
    wanted: Mapping[str, Derived], symbols: Mapping[PackConfig, str]
) -> tuple[dict[str, Any], Array]:
    """How constants are made, as plain data for JSON, and the words that go with it.

    Args:
        wanted: By the constants' names.
        symbols: Of the packers' code.

    Returns:
        What `decode` reads; the words are of type `WORD`.
    """
    configs = list(symbols)
    spectra: list[Any] = []
    words: list[Array] = [np.empty(0, WORD)]

    def row(panels: Panels) -> list[int]:
        words.extend((_words(panels.lanes), _words(panels.places)))
        sizes = (panels.count, panels.width, panels.channels, panels.taps, panels.by_channel)
        which = configs.index(panels.config), _place(spectra, _plain(panels.spectra))
        return [*which, *sizes, panels.start]

    constants = [
        [name, one.source, one.source_bytes, one.nbytes, [row(panels) for panels in one.panels]]
        for name, one in wanted.items()
    ]
    packers = [[config.gather, config.result, symbols[config]] for config in configs]
    flat = np.concatenate(words)
    header = {"packers": packers, "spectra": spectra, "constants": constants, "words": len(flat)}
    return header, flat


def _words(array: Array) -> Array:
    """Few of these numbers are large: sources are shorter than 2^31 elements."""
    narrow: Array = array.reshape(-1).astype(WORD)
    assert np.array_equal(narrow, array.reshape(-1))
    return narrow


def _plain(spectra: Spectra | None) -> list[Any] | None:
    if spectra is None:
        return None
    sides = (side.astype(np.float32).tolist() for side in (spectra.down, spectra.along))
    return [*sides, spectra.divisor, spectra.frequency_major]


def _place(known: list[Any], entry: Any) -> int:  # noqa: ANN401 - plain data
    """Where an entry stands in a list, at its end if it was not there."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def decode(header: Mapping[str, Any], words: Array) -> tuple[dict[str, Derived], dict[Any, str]]:
    """How constants are made, and the symbols of the packers' code; both as given to `encode`.

    Raises:
        KeyError, TypeError, ValueError, IndexError: If the data is of another form.
    """
    symbols = {PackConfig(gather, result): name for gather, result, name in header["packers"]}
    configs, spectra = list(symbols), [_spectra(plain) for plain in header["spectra"]]
    at = 0

    def take(count: int) -> Array:
        nonlocal at
        at += count
        if not 0 <= at - count <= at <= len(words):
            raise ValueError("more numbers than there are")
        return words[at - count : at].astype(np.int64)

    def panels(row: Sequence[int]) -> Panels:
        config, transform, count, width, channels, taps, by_channel, start = row
        lanes = take(count * -(-width // PITCH) * PITCH).reshape(count, -1)
        own = spectra[transform]
        return Panels(configs[config], lanes, width, channels, take(taps), by_channel, own, start)

    wanted = {
        name: Derived(source, source_bytes, nbytes, tuple(map(panels, rows)))
        for name, source, source_bytes, nbytes, rows in header["constants"]
    }
    return wanted, symbols


def _spectra(plain: Sequence[Any] | None) -> Spectra | None:
    if plain is None:
        return None
    down, along, divisor, frequency_major = plain
    down, along = (np.array(side, np.float32) for side in (down, along))
    return Spectra(down, along, divisor, frequency_major)
