"""Which parameters a function has, and the argument block that a phase gives it.

Launches and plans name their arguments; in which order these lie in memory is the code's business
alone, and is kept with the code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.errors import LaunchError

if TYPE_CHECKING:
    from saccade.kernels.bind import Phase

__all__ = ["Parameters"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, in the order of its argument block.

    Attributes:
        pointers: Names of the buffers; three words each.
        integers: Names of the integers, and how many there are where it is an array, else None.
    """

    pointers: tuple[str, ...] = ()
    integers: tuple[tuple[str, int | None], ...] = ()

    def words(self, phase: Phase) -> list[Any]:
        """The argument block of a phase: integers, or numbers of a formula where it has them.

        Raises:
            LaunchError: If a parameter gets no value, if a value has no parameter, or if an array
                has another length.
        """
        places = {argument.name: argument.ref for argument in phase.arguments}
        given = phase.integers
        if len(places) != len(self.pointers) or len(given) != len(self.integers):
            raise self._misfit(places, given)
        words: list[Any] = []
        try:
            for name in self.pointers:
                words += places[name]
            for name, count in self.integers:
                value = given[name]
                if count is None:
                    words.append(value)
                elif isinstance(value, tuple) and len(value) == count:
                    words += value
                else:
                    raise LaunchError(f"a launch gives {name}={value}, an array of {count}")
        except KeyError:
            raise self._misfit(places, given) from None
        return words

    def _misfit(self, pointers: Iterable[str], integers: Iterable[str]) -> LaunchError:
        """Which names differ."""
        wants = {*map(_pointer, self.pointers), *(name for name, _ in self.integers)}
        gives = {*map(_pointer, pointers), *integers}
        return LaunchError(
            f"a launch lacks {', '.join(sorted(wants - gives)) or 'nothing'} "
            f"and gives {', '.join(sorted(gives - wants)) or 'nothing'} that its code does not have"
        )


def _pointer(name: str) -> str:
    return f"{name} (a pointer)"
