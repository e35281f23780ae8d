"""Where the choices of `tune` are kept: one file in the cache for each model and machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from saccade.caches import cache_folder, choices_entry
from saccade.errors import OptionError
from saccade.files import open_regular
from saccade.tuning.algorithms import Algorithms

__all__ = ["keep", "kept", "load"]


def load(path: str | os.PathLike[str]) -> Algorithms:
    """The choices in a file that the user names.

    Raises:
        OptionError: If it cannot be read, or is no such file.
    """
    try:
        with open_regular(Path(path)) as file:
            text = file.read().decode()
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not a file of algorithms: it is not text") from None
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    return Algorithms.parse(text, str(path))


def kept(model: str, machine: Mapping[str, str]) -> Algorithms | None:
    """What `keep` kept for a model (by its digest) on a machine; None if there is nothing."""
    name = choices_entry(model, machine)
    found = cache_folder("algorithms").read(name)
    try:
        return None if found is None else Algorithms.parse(found.decode(), name)
    except (OptionError, UnicodeDecodeError):  # of another version: tuning writes it again
        return None


def keep(model: str, algorithms: Algorithms) -> None:
    """Replace what is kept for a model; a full or read-only disk leaves it as it is."""
    name = choices_entry(model, algorithms.machine)
    cache_folder("algorithms").write(name, algorithms.to_json().encode())
