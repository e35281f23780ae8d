"""Runs the script before and after porting, and holds one against the other.

    python examples/porting/compare.py

The exit status is 1 where outputs differ by more than rounding, images by more than one of 255
levels, a wrong feed is refused by one engine alone, or the README shows another difference between
the scripts than there is.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import after
import before
import native
import numpy as np
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from PIL import Image, ImageDraw

import saccade

Floats = NDArray[np.float32]
Run = Callable[[None, dict[str, Any]], object]

HERE = Path(__file__).resolve().parent
PHOTO = HERE.parent / "upscale" / "photo.png"
SCRIPTS = {"before": before, "after": after, "native": native}
MOST = 1e-5  # difference of two float32 outputs in [0, 1]
MAGNIFIED = 1e6  # a difference of 1e-6 is white
SIDE = 256  # of the parts of the sheet, in pixels


def difference(old: str, new: str) -> str:
    """The lines that change from one script to another, with those around them."""
    first, second = ((HERE / f"{name}.py").read_text().splitlines() for name in (old, new))
    lines = difflib.unified_diff(first, second, f"{old}.py", f"{new}.py", n=1, lineterm="")
    return "\n".join(lines)


def shown() -> set[str]:
    """The differences that the README shows."""
    return set(re.findall(r"```diff\n(.*?)\n```", (HERE / "README.md").read_text(), re.DOTALL))


def outputs(image: Floats) -> dict[str, Floats]:
    """What each script makes of an image [1, 3, H, W]."""
    return {name: one.enlarge(one.load(one.MODEL), image) for name, one in SCRIPTS.items()}


def written() -> dict[str, NDArray[np.int16]]:
    """The pixels of the image that each script writes."""
    pixels = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in SCRIPTS.items():
            target = Path(folder) / f"{name}.png"
            one.main(str(PHOTO), str(target))
            pixels[name] = np.asarray(Image.open(target), np.int16)
    return pixels


def refusal(run: Run, feed: dict[str, Any], *errors: type[Exception]) -> str:
    """The name of the error that a feed raises, or "nothing"."""
    try:
        run(None, feed)
    except errors as error:
        return type(error).__name__
    return "nothing"


def wrong_feeds(image: Floats) -> dict[str, dict[str, Any]]:
    """Feeds that no engine should take."""
    return {
        "an input that there is not": {"photo": image},
        "an input too few": {},
        "a rank too few": {"image": image[0]},
        "four channels": {"image": np.concatenate([image, image[:, :1]], 1)},
        "float64": {"image": image.astype(np.float64)},
    }


def both_refuse(image: Floats) -> bool:
    """Whether wrong feeds are errors to both; prints which."""
    first, second = before.load(before.MODEL), after.load(after.MODEL)
    good = True
    for name, feed in wrong_feeds(image).items():
        old = refusal(first.run, feed, ValueError, InvalidArgument)
        new = refusal(second.run, feed, saccade.SaccadeError)
        print(f"  {name}: {old} before, {new} after")
        good = good and "nothing" not in {old, new}
    return good


def sheet(results: dict[str, Floats]) -> Image.Image:
    """The photograph before and after, and their difference, magnified a million times."""
    apart = np.abs(results["before"] - results["after"])
    parts = {
        "ONNX Runtime": results["before"][0],
        "saccade.onnxruntime": results["after"][0],
        "difference, times 1,000,000": np.clip(apart[0] * MAGNIFIED, 0, 1),
    }
    whole = Image.new("RGB", (3 * (SIDE + 4) - 4, SIDE + 18), "white")
    pen = ImageDraw.Draw(whole)
    for place, (title, part) in enumerate(parts.items()):
        pixels = np.rint(np.clip(part, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
        small = Image.fromarray(pixels).crop((SIDE // 2, 0, SIDE // 2 + SIDE, SIDE))
        whole.paste(small, (place * (SIDE + 4), 18))
        pen.text((place * (SIDE + 4) + 2, 3), title, fill="black")
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sheet", type=Path, help="write both images and their difference here")
    options = parser.parse_args()

    photo = Image.open(PHOTO).convert("RGB")
    image = np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / np.float32(255)
    results, pixels = outputs(image), written()
    good = True
    for name in ("after", "native"):
        print(difference("before", name), end="\n\n")
        apart = float(np.abs(results["before"] - results[name]).max())
        levels = int(np.abs(pixels["before"] - pixels[name]).max())
        print(f"{name}: outputs within {apart:.1e}, images within {levels} of 255 levels\n")
        good = good and apart <= MOST and levels <= 1
    print("wrong feeds:")
    good = both_refuse(image) and good
    if shown() != {difference("before", name) for name in ("after", "native")}:
        print("README.md shows other differences")
        good = False
    if options.sheet:
        sheet(results).save(options.sheet, quality=88, optimize=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
