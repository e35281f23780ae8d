"""Writes this folder: photographs that ship inside scikit-image, smaller, as JPEG.

    pip install scikit-image
    python examples/photos/shrink.py

Only photographs that scikit-image states to be CC0, in the public domain or without known copyright
restrictions are taken. `coffee`, `coins` and `rocket` share a size, `astronaut` and `camera` too.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from skimage import data

HERE = Path(__file__).resolve().parent
SIZES = {
    "astronaut": (256, 256), "camera": (256, 256), "chelsea": (224, 150), "coffee": (288, 192),
    "coins": (288, 192), "retina": (240, 240), "rocket": (288, 192),
}  # fmt: skip


def main() -> None:
    for name, (width, height) in SIZES.items():
        photo = Image.fromarray(getattr(data, name)())
        # As large a part of the middle as has the proportions, then smaller.
        scale = min(photo.width / width, photo.height / height)
        left = (photo.width - width * scale) / 2
        top = (photo.height - height * scale) / 2
        box = (left, top, left + width * scale, top + height * scale)
        small = photo.resize((width, height), Image.Resampling.LANCZOS, box=box)
        small.save(HERE / f"{name}.jpg", quality=88, optimize=True)
        print(f"{name}.jpg {width}x{height} {small.mode}")


if __name__ == "__main__":
    main()
