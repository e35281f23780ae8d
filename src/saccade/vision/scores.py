"""Scores of classes: the largest, by name."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError

__all__ = ["ScoredClass", "read_labels", "top"]

_SUM = 1e-3  # within which scores that add up to 1 are probabilities already


class ScoredClass(NamedTuple):
    """A class and its score.

    Attributes:
        number: Of the class.
        label: Its name, or its number as text.
        probability: From 0 to 1.
    """

    number: int
    label: str
    probability: float


def read_labels(path: str | PathLike[str]) -> list[str]:
    """The lines of a file, one for each class.

    Raises:
        InputError: If it cannot be read as text.
    """
    try:
        return Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: labels cannot be read ({error})") from error


def top(scores: NDArray[Any], k: int = 5, labels: Sequence[str] = ()) -> list[list[ScoredClass]]:
    """The k most probable classes of each image, the first first.

    Args:
        scores: [N, classes] or [classes]: logits, or probabilities, which add up to 1 and are
            taken as they are.
        k: How many.
        labels: Names of all classes; numbers without.

    Raises:
        InputError: If scores have another shape, hold NaN, or there are not as many labels.
    """
    rows = np.atleast_2d(np.asarray(scores, np.float64))
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError(f"scores of shape {np.shape(scores)} are not those of classes")
    if np.isnan(rows).any():
        raise InputError("scores hold NaN")
    if labels and len(labels) != rows.shape[1]:
        raise InputError(f"{len(labels)} labels for {rows.shape[1]} classes")
    if k < 1:
        raise InputError(f"the {k} most probable classes are none")
    probable = rows.min() >= 0 and (abs(rows.sum(axis=1) - 1) < _SUM).all()
    if not probable:
        rows = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
    # Of equal scores the class that comes first.
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    return [
        [ScoredClass(int(i), labels[i] if labels else str(i), float(row[i])) for i in best]
        for row, best in zip(rows, order, strict=True)
    ]
