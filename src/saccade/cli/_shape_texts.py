"""What `--shape` looks like: our own form, and those that other tools have.

    NAME=1x3x224x224    NAME:1x3x224x224    NAME[1,3,224,224]    NAME=1,3,224,224

The name may be left out. Several are separated by commas, and so are axes: a part that names
nothing goes on with what is before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from saccade.cli._print import note
from saccade.errors import OptionError
from saccade.shapes import Axis

__all__ = ["parse_programs", "parse_shapes", "usual_shapes"]

_COMMA = re.compile(r",(?![^\[]*\])")
"""A comma that no brackets are around."""
_BRACKETS = re.compile(r"(?P<name>.*?)[=:]?\[(?P<sizes>[^\[\]]*)\]")


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[Axis, ...]]:
    """Shapes by input name, of all texts; one without a name goes under "".

    Axes are numbers, names without an x, or `?` or -1 for any size.

    Raises:
        OptionError: A text is no shape, or names an input twice.
    """
    shapes: dict[str, tuple[Axis, ...]] = {}
    for text in texts or ():
        for name, sizes in map(_split, _parts(text)):
            axes = [_axis(size) for size in sizes]
            if "" in axes:
                raise OptionError(f"--shape {text!r} is not of the form NAME=1x3x224x224")
            if name in shapes:
                raise OptionError(f"--shape names {name or 'the input'} twice")
            shapes[name] = tuple(axes)
    return shapes


def parse_programs(texts: Sequence[str] | None) -> list[dict[str, tuple[Axis, ...]]]:
    """Shapes for each `--shape` of a command that makes several programs; one, of none, without."""
    return [parse_shapes([text]) for text in texts or () if text] or [{}]


def _parts(text: str) -> Iterator[str]:
    """The texts of single shapes."""
    first, *others = _COMMA.split(text)
    for part in others:
        if set(part) & set("=:["):
            yield first
            first = part
        else:
            first += f",{part}"
    yield first


def _split(text: str) -> tuple[str, list[str]]:
    """Name and sizes. Names may hold equals signs, colons and brackets, sizes do not."""
    brackets = _BRACKETS.fullmatch(text)
    if brackets is not None:
        return brackets["name"].strip(), brackets["sizes"].split(",")
    sign = "=" if "=" in text else ":"
    name, _, sizes = text.rpartition(sign)
    return name.strip(), sizes.split("," if "," in sizes else "x")


def _axis(part: str) -> Axis:
    """A size, a name, or None for any size; "" for what is none of them."""
    part = part.strip()
    # `isdigit` alone takes superscripts, which `int` does not.
    if part.isascii() and part.isdigit():
        return int(part)
    if part in ("?", "-1"):
        return None
    return part if part.isidentifier() and "x" not in part else ""


def usual_shapes(
    path: Path, asked: Mapping[str, tuple[Axis, ...]], files: Sequence[str] | None = None
) -> Mapping[str, tuple[Axis, ...]]:
    """What is asked for; where nothing tells which size of a bundle is meant, its first.

    Args:
        path: The model.
        asked: With --shape.
        files: With --input.
    """
    from saccade.bundlefile import is_bundle, open_bundle  # noqa: PLC0415 - --help does without
    from saccade.signature import shape_text  # noqa: PLC0415 - see above

    if asked or files or not is_bundle(path):
        return asked
    head = open_bundle(path).head
    if len(head.shapes) < 2:
        return asked
    inputs = zip(head.signature.inputs, head.shapes[0], strict=True)
    first = {info.name: shape for info, shape in inputs if not info.held}
    spelled = ", ".join(f"{name}={shape_text(shape)}" for name, shape in first.items())
    note(f"saccade: of {len(head.shapes)} sizes in {path.name}, taking {spelled}")
    return first
