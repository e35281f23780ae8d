"""The photographs that ship inside scikit-image, as aligned small and large crops.

The small image is always made as a user would make it: Pillow's BICUBIC resize to half the size,
rounded to 8 bits. Only photographs that scikit-image states to be CC0, in the public domain or
without known copyright restrictions are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import skimage.data
from numpy.typing import NDArray
from PIL import Image

HELD_OUT = "astronaut"  # chosen before the first training run; no training code reads it

# How often each one is drawn: everyday scenes more often than textures and instrument images.
TRAINING = {
    "chelsea": 4,
    "coffee": 4,
    "rocket": 4,
    "camera": 4,
    "coins": 2,
    "immunohistochemistry": 2,
    "hubble_deep_field": 2,
    "retina": 1,
    "brick": 1,
    "grass": 1,
    "gravel": 1,
    "text": 1,
}

# Half a soft photograph is a sharp one. The large ones lose their JPEG artefacts in this, too.
SHRINKS = (1.0, 0.8, 0.65, 0.5, 0.4)


@dataclass(frozen=True)
class Pair:
    """One photograph twice, uint8 RGB [H, W, 3]: `large` is exactly twice as wide and high."""

    small: NDArray[np.uint8]
    large: NDArray[np.uint8]


def load(name: str) -> Image.Image:
    """The photograph `skimage.data.<name>()` as RGB; grey ones with three equal channels."""
    return Image.fromarray(getattr(skimage.data, name)()).convert("RGB")


def halve(large: Image.Image) -> Image.Image:
    """Half the width and height; both must be even."""
    return large.resize((large.width // 2, large.height // 2), Image.Resampling.BICUBIC)


def even(image: Image.Image) -> Image.Image:
    """Without the last column or row where their number is odd."""
    return image.crop((0, 0, image.width // 2 * 2, image.height // 2 * 2))


class Crops:
    """Draws random crops, augmented, from all training photographs at several sizes."""

    def __init__(self, side: int, seed: int) -> None:
        """Prepares crops of `side` x `side` small pixels, their order given by `seed`."""
        self.side = side
        self.random = np.random.default_rng(seed)
        self.pools = [self._pool(load(name)) for name in TRAINING]
        weights = np.array(list(TRAINING.values()), dtype=np.float64)
        self.chances = weights / weights.sum()

    def _pool(self, photograph: Image.Image) -> list[Pair]:
        pairs = []
        for shrink in SHRINKS:
            size = (round(photograph.width * shrink), round(photograph.height * shrink))
            large = even(photograph.resize(size, Image.Resampling.LANCZOS))
            if min(large.size) >= 2 * self.side:
                pairs.append(Pair(np.asarray(halve(large)), np.asarray(large)))
        return pairs

    def batch(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Small [count, 3, side, side] and large [count, 3, 2 side, 2 side], both in [0, 1]."""
        crops = [self._crop() for _ in range(count)]
        small = np.stack([pair.small for pair in crops]).transpose(0, 3, 1, 2)
        large = np.stack([pair.large for pair in crops]).transpose(0, 3, 1, 2)
        # A linear change of a channel's values commutes with the resize, which sums to one: it
        # recolours both alike. Grey photographs become coloured ones.
        gain = self.random.uniform(0.6, 1.0, (count, 3, 1, 1))
        lift = self.random.uniform(0.0, 1.0, (count, 3, 1, 1)) * (1.0 - gain)
        return _recolour(small, gain, lift), _recolour(large, gain, lift)

    def _crop(self) -> Pair:
        pool = self.pools[self.random.choice(len(self.pools), p=self.chances)]
        pair = pool[self.random.integers(len(pool))]
        height, width, _ = pair.small.shape
        top = self.random.integers(height - self.side + 1)
        left = self.random.integers(width - self.side + 1)
        turns, flip = self.random.integers(4), self.random.integers(2)
        channels = self.random.permutation(3)

        def cut(image: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
            rows = slice(top * scale, (top + self.side) * scale)
            columns = slice(left * scale, (left + self.side) * scale)
            crop = np.rot90(image[rows, columns], turns)
            return (crop[:, ::-1] if flip else crop)[..., channels]

        return Pair(cut(pair.small, 1), cut(pair.large, 2))


def _recolour(
    crops: NDArray[np.uint8], gain: NDArray[np.float64], lift: NDArray[np.float64]
) -> NDArray[np.float32]:
    return (crops * (gain / 255.0) + lift).astype(np.float32)
