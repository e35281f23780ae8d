"""Enlarges a folder of images: files are read, run and written at the same time, in batches.

    python examples/folder/folder.py examples/photos enlarged --sheet sheet.jpg

Threads read ahead and write behind while the network runs; images of one size share a call. A file
that is no image is told and left out, and the exit status is then 1. `--check` runs each image
alone as well, and wants the files to hold the same pixels.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

import saccade

Floats = NDArray[np.float32]

MODEL = Path(__file__).resolve().parent.parent / "upscale" / "model.onnx"
AHEAD = 2  # batches that are read before they are needed
CELL = 150  # side of a part of the sheet, in pixels
DETAIL = 48  # side of the details in it, in pixels of the small images


class Batch(NamedTuple):
    """Files whose images have one size."""

    files: tuple[Path, ...]
    size: tuple[int, int]  # width, height


def sizes(folder: Path) -> tuple[dict[tuple[int, int], list[Path]], list[str]]:
    """The folder's images by their size, which their headers tell; and why others are left out."""
    found: dict[tuple[int, int], list[Path]] = defaultdict(list)
    left_out = []
    for file in sorted(path for path in folder.iterdir() if path.suffix in {".jpg", ".png"}):
        try:
            with Image.open(file) as image:
                found[image.size].append(file)
        except (UnidentifiedImageError, OSError) as error:
            left_out.append(f"{file.name}: {error}")
    return found, left_out


def batches(found: dict[tuple[int, int], list[Path]], most: int) -> Iterator[Batch]:
    """At most so many files of one size at a time."""
    for size, files in found.items():
        for first in range(0, len(files), most):
            yield Batch(tuple(files[first : first + most]), size)


def read(file: Path) -> Floats | str:
    """The image as RGB in [0, 1], [3, H, W]; or why it cannot be read: a header may lie."""
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB"), np.float32)
    except OSError as error:
        return f"{file.name}: {error}"
    return pixels.transpose(2, 0, 1) / np.float32(255)


def pixels_of(enlarged: Floats) -> NDArray[np.uint8]:
    """The network's answer [3, 2H, 2W] as the pixels [2H, 2W, 3] of an image."""
    return np.rint(np.clip(enlarged, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def write(file: Path, enlarged: Floats) -> None:
    Image.fromarray(pixels_of(enlarged)).save(file)


class Enlarger:
    """The network between threads that read and threads that write."""

    def __init__(self, model: saccade.Model, target: Path, threads: int) -> None:
        self.model, self.target = model, target
        self.readers = ThreadPoolExecutor(threads, "read")
        self.writers = ThreadPoolExecutor(threads, "write")
        self.written: list[Future[None]] = []
        self.left_out: dict[Path, str] = {}

    def run(self, work: Sequence[Batch]) -> None:
        """All batches, in order; what cannot be written raises OSError."""
        ahead: deque[tuple[Batch, list[Future[Floats | str]]]] = deque()
        with self.readers, self.writers:
            for batch in work:
                ahead.append((batch, [self.readers.submit(read, file) for file in batch.files]))
                if len(ahead) > AHEAD:
                    self._one(*ahead.popleft())
            while ahead:
                self._one(*ahead.popleft())
        for future in self.written:
            future.result()

    def _one(self, batch: Batch, reading: list[Future[Floats | str]]) -> None:
        images, files = [], []
        for file, future in zip(batch.files, reading, strict=True):
            image = future.result()
            if isinstance(image, str):
                self.left_out[file] = image
            else:
                images.append(image)
                files.append(file)
        if not images:
            return
        enlarged = self.model(np.stack(images))  # releases the GIL: others read and write meanwhile
        for file, image in zip(files, enlarged, strict=True):
            target = self.target / f"{file.stem}.png"
            self.written.append(self.writers.submit(write, target, image))
        # Not more than two batches wait for the disk.
        waiting = [future for future in self.written if not future.done()]
        for writing in waiting[: -2 * len(batch.files)]:
            writing.result()


def liveliest(image: Image.Image) -> tuple[int, int]:
    """Left and top of the detail, among those side by side, whose grey levels differ most."""
    grey = np.asarray(image.convert("L"), np.float32)
    corners = [
        (left, top)
        for top in range(0, grey.shape[0] - DETAIL + 1, DETAIL)
        for left in range(0, grey.shape[1] - DETAIL + 1, DETAIL)
    ]
    return max(corners, key=lambda c: grey[c[1] : c[1] + DETAIL, c[0] : c[0] + DETAIL].std())


def sheet(files: Sequence[Path], target: Path) -> Image.Image:
    """Each image, and a detail of it: by Pillow's bicubic in the middle, by the network right."""
    cells = []
    for file in files:
        small = Image.open(file).convert("RGB")
        large = Image.open(target / f"{file.stem}.png")
        left, top = liveliest(small)
        box = (2 * left, 2 * top, 2 * (left + DETAIL), 2 * (top + DETAIL))
        cell = Image.new("RGB", (3 * CELL, CELL), "white")
        whole = small.copy()
        whole.thumbnail((CELL - 6, CELL - 6), Image.Resampling.LANCZOS)
        cell.paste(whole, ((CELL - whole.width) // 2, (CELL - whole.height) // 2))
        for place, image in ((1, small.resize(large.size, Image.Resampling.BICUBIC)), (2, large)):
            detail = image.crop(box).resize((CELL - 6, CELL - 6), Image.Resampling.NEAREST)
            cell.paste(detail, (place * CELL, 3))
        cells.append(cell)
    rows = -(-len(cells) // 2)
    contact = Image.new("RGB", (2 * 3 * CELL, rows * CELL), "white")
    for place, cell in enumerate(cells):
        contact.paste(cell, (place % 2 * 3 * CELL, place // 2 * CELL))
    return contact


def check(files: Sequence[Path], target: Path, model: saccade.Model) -> bool:
    """Whether each file holds what the network makes of its image alone, to one of 255 levels."""
    most = 0
    for file in files:
        image = read(file)
        if isinstance(image, str):
            continue
        alone = pixels_of(model(image[None])[0]).astype(np.int16)
        stored = np.asarray(Image.open(target / f"{file.stem}.png"), np.int16)
        if stored.shape != alone.shape:
            print(f"{file.stem}.png has another size")
            return False
        most = max(most, int(np.abs(stored - alone).max()))
    print(f"in batches and alone: within {most} of 255 levels")
    return most <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with images, .jpg and .png")
    parser.add_argument("target", type=Path, help="where the enlarged ones go, as .png")
    parser.add_argument("--batch", type=int, default=4, help="most images of one call")
    parser.add_argument("--threads", type=int, default=2, help="that read, and that write")
    parser.add_argument("--sheet", type=Path, help="write details of all, beside bicubic, here")
    parser.add_argument("--check", action="store_true", help="run each image alone as well")
    options = parser.parse_args()

    found, left_out = sizes(options.folder)
    work = list(batches(found, options.batch))
    options.target.mkdir(parents=True, exist_ok=True)
    model = saccade.compile(MODEL)
    for count, size in {(len(batch.files), batch.size) for batch in work}:
        model.warm({"image": (count, 3, size[1], size[0])})  # plans, compiles what is missing
    enlarger = Enlarger(model, options.target, options.threads)
    start = time.perf_counter()
    enlarger.run(work)
    seconds = time.perf_counter() - start
    for reason in (*left_out, *enlarger.left_out.values()):
        print(f"left out: {reason}", file=sys.stderr)
    files = sorted(file for batch in work for file in batch.files)
    done = [file for file in files if file not in enlarger.left_out]
    print(f"{len(done)} images in {len(work)} calls, {len(done) / seconds:.1f} a second")
    if options.sheet:
        sheet(done, options.target).save(options.sheet, quality=88, optimize=True)
    good = not left_out and not enlarger.left_out
    return 0 if (not options.check or check(done, options.target, model)) and good else 1


if __name__ == "__main__":
    sys.exit(main())
