r"""A service that enlarges images: FastAPI around a model that was built ahead.

    saccade build examples/upscale/model.onnx -o upscale.saccade \
        --shape 1x3x128x128 --shape 1x3x256x256 --shape 1x3x192x288
    python examples/service/app.py upscale.saccade --port 8000
    curl -F image=@examples/photos/coffee.jpg http://localhost:8000/upscale -o coffee_2x.png

A bundle has programs for a few sizes and starts without a compiler. An image is filled up to the
smallest of them that holds it, and what was filled up is cut off again.
"""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Response, UploadFile
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

import saccade

Floats = NDArray[np.float32]

SIZES = ((128, 128), (256, 256), (192, 288))  # height, width
MOST_BYTES = 4 << 20  # of an upload
RUNNING = 2  # requests that are decoded, run or encoded at once: one runs, one has its turn next
WAITING = 16  # requests that may wait for these; more are sent away


class Upscaler:
    """The network as the service has it.

    Attributes:
        ready: Whether each size has run once.
    """

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.ready = False

    def start(self) -> None:
        """Open the bundle and run each size once, so that no request pays for a first run."""
        self.model = saccade.compile(self.bundle)
        for height, width in SIZES:
            self.model(np.zeros((1, 3, height, width), np.float32))
        self.ready = True

    def enlarge(self, upload: bytes) -> bytes:
        """A PNG of twice the size.

        Raises:
            HTTPException: 415 if it is no image, 413 if no program holds it.
        """
        try:
            with Image.open(io.BytesIO(upload)) as image:
                tensor, size = fitted(image)
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
            raise HTTPException(415, "this is no image") from error
        enlarged = self.model(tensor)[0, :, : 2 * size[1], : 2 * size[0]]
        stream = io.BytesIO()
        pixels = np.rint(np.clip(enlarged, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(pixels).save(stream, "PNG")
        return stream.getvalue()


def fitted(image: Image.Image) -> tuple[Floats, tuple[int, int]]:
    """The image in [0, 1] as [1, 3, H, W], edges repeated up to a size there is; its own size.

    Raises:
        HTTPException: 413 if it is larger than all sizes; nothing is decoded then.
    """
    width, height = image.size
    holding = [(h, w) for h, w in SIZES if h >= height and w >= width]
    if not holding:
        most = " or ".join(f"{w}x{h}" for h, w in SIZES)
        raise HTTPException(413, f"the image is {width}x{height}; at most {most}")
    to_height, to_width = min(holding, key=lambda size: size[0] * size[1])
    pixels = np.asarray(image.convert("RGB"), np.float32) / np.float32(255)
    filled = np.pad(pixels, ((0, to_height - height), (0, to_width - width), (0, 0)), "edge")
    return np.ascontiguousarray(filled.transpose(2, 0, 1)[None]), (width, height)


class Turns:
    """Lets so many work at once and so many wait; who comes after these is told to come again."""

    def __init__(self, running: int, waiting: int) -> None:
        self.free = asyncio.Semaphore(running)
        self.most = running + waiting
        self.inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self.inside >= self.most:
            raise HTTPException(503, "busy", headers={"Retry-After": "1"})
        self.inside += 1
        try:
            async with self.free:
                yield
        finally:
            self.inside -= 1


def create_app(bundle: Path) -> FastAPI:
    """The application; the bundle is opened when it starts, in a thread beside it."""
    upscaler = Upscaler(bundle)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.turns = Turns(RUNNING, WAITING)
        starting = asyncio.create_task(asyncio.to_thread(upscaler.start))
        app.state.starting = starting
        yield
        await asyncio.gather(starting, return_exceptions=True)

    app = FastAPI(title="Twice the pixels", lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """200 when requests will be served at full speed, 503 before."""
        starting: asyncio.Task[None] = app.state.starting
        if starting.done() and starting.exception() is not None:
            raise HTTPException(503, f"the model does not start: {starting.exception()}")
        if not upscaler.ready:
            raise HTTPException(503, "the model is starting", headers={"Retry-After": "1"})
        return {"status": "ready", "inside": app.state.turns.inside}

    @app.post("/upscale", response_class=Response)
    async def upscale(image: UploadFile) -> Response:
        """The uploaded image with twice its width and height, as PNG."""
        if (image.size or 0) > MOST_BYTES:
            raise HTTPException(413, f"the upload is too large; at most {MOST_BYTES >> 20} MB")
        if not upscaler.ready:
            raise HTTPException(503, "the model is starting", headers={"Retry-After": "1"})
        async with app.state.turns.turn():
            # The event loop stays free: the thread decodes, runs and encodes.
            content = await asyncio.to_thread(upscaler.enlarge, await image.read())
        return Response(content, media_type="image/png")

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="what saccade build wrote")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    # When it is told to stop, uvicorn takes no more requests and finishes those that it has.
    uvicorn.run(create_app(options.bundle), host=options.host, port=options.port)


if __name__ == "__main__":
    main()
