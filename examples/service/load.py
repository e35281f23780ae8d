"""Starts the service, loads it, and holds each answer against a direct call of the model.

    python examples/service/load.py --requests 200 --concurrency 8

Reports requests a second and percentiles of their latencies. The exit status is 1 where an answer
has other pixels than a direct call, a bad upload is not refused, too many requests at once fail in
any way but with 503, or a request is lost when the service is told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from app import RUNNING, SIZES, WAITING, fitted
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import saccade

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "upscale" / "model.onnx"
PHOTOS = tuple(sorted((HERE.parent / "photos").glob("*.jpg")))
PERCENTILES = (50, 90, 99)
STARTED = 60.0  # seconds that a start may take


class Load(NamedTuple):
    """Latencies in milliseconds, seconds of all together, how many answers were wrong."""

    latencies: list[float]
    seconds: float
    wrong: int


def direct(model: saccade.Model) -> dict[str, NDArray[np.int16]]:
    """The pixels that each photograph's answer has to have, by its name."""
    pixels = {}
    for file in PHOTOS:
        with Image.open(file) as image:
            tensor, (width, height) = fitted(image)
        enlarged = model(tensor)[0, :, : 2 * height, : 2 * width]
        levels = np.rint(np.clip(enlarged, 0, 1) * 255).astype(np.int16)
        pixels[file.name] = levels.transpose(1, 2, 0)
    return pixels


def right(answer: httpx.Response, expected: NDArray[np.int16]) -> bool:
    """Whether the answer is an image with these pixels."""
    if answer.status_code != 200:
        return False
    pixels = np.asarray(Image.open(io.BytesIO(answer.content)), np.int16)
    return pixels.shape == expected.shape and bool((pixels == expected).all())


async def send(client: httpx.AsyncClient, name: str, content: bytes) -> httpx.Response:
    return await client.post("/upscale", files={"image": (name, content, "image/jpeg")})


async def started(client: httpx.AsyncClient, service: subprocess.Popen[bytes]) -> None:
    """Waits until the service says that it is ready."""
    end = time.perf_counter() + STARTED
    while time.perf_counter() < end and service.poll() is None:
        try:
            if (await client.get("/health")).status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        await asyncio.sleep(0.05)
    sys.exit("the service did not start")


async def load(
    client: httpx.AsyncClient,
    expected: dict[str, NDArray[np.int16]],
    requests: int,
    concurrency: int,
) -> Load:
    """So many requests, so many of them at a time, one photograph after the other."""
    contents = {file.name: file.read_bytes() for file in PHOTOS}
    names = itertools.islice(itertools.cycle(contents), requests)
    latencies: list[float] = []
    answers: list[tuple[str, httpx.Response]] = []

    async def sender() -> None:
        for name in names:  # shared by all senders: each takes the next
            start = time.perf_counter()
            answer = await send(client, name, contents[name])
            latencies.append(1000 * (time.perf_counter() - start))
            answers.append((name, answer))

    begin = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(concurrency)))
    seconds = time.perf_counter() - begin
    wrong = sum(not right(answer, expected[name]) for name, answer in answers)
    return Load(latencies, seconds, wrong)


async def refuses_bad_uploads(client: httpx.AsyncClient) -> bool:
    """Whether what is no image, and what is too large, is refused with the status that says so."""
    stream = io.BytesIO()
    Image.new("RGB", (4000, 10)).save(stream, "PNG")
    answers = [await send(client, "x.jpg", content) for content in (b"text", stream.getvalue())]
    codes = [answer.status_code for answer in answers]
    print(f"no image: {codes[0]}, too wide: {codes[1]}")
    return codes == [415, 413]


async def stays_up(client: httpx.AsyncClient, expected: dict[str, NDArray[np.int16]]) -> bool:
    """Whether too many requests at once are served rightly or sent away with 503."""
    name, content = PHOTOS[0].name, PHOTOS[0].read_bytes()
    burst = 3 * (RUNNING + WAITING)
    answers = await asyncio.gather(*(send(client, name, content) for _ in range(burst)))
    served = [answer for answer in answers if answer.status_code != 503]
    away = [answer for answer in answers if answer.status_code == 503]
    print(f"{burst} at once: {len(served)} served, {len(away)} told to come again")
    good = all(right(answer, expected[name]) for answer in served)
    return good and len(served) > 0 and all("retry-after" in a.headers for a in away)


async def stops_in_order(
    client: httpx.AsyncClient,
    service: subprocess.Popen[bytes],
    expected: dict[str, NDArray[np.int16]],
) -> bool:
    """Whether requests that were under way when the service was told to stop get their answers."""
    name, content = PHOTOS[0].name, PHOTOS[0].read_bytes()
    under_way = [asyncio.create_task(send(client, name, content)) for _ in range(4)]
    while (await client.get("/health")).json()["inside"] < len(under_way):
        if all(task.done() for task in under_way):
            break  # too quick to be seen
    service.send_signal(signal.SIGTERM)
    answers = await asyncio.gather(*under_way, return_exceptions=True)
    status = await asyncio.to_thread(service.wait, 30)
    got = sum(isinstance(a, httpx.Response) and right(a, expected[name]) for a in answers)
    print(f"told to stop: {got} of {len(answers)} answered, exit status {status}")
    return got == len(answers)


def chart(latencies: list[float], marks: dict[int, float]) -> Image.Image:
    """A histogram of the latencies, and lines at their percentiles."""
    width, height, foot, ticks = 640, 240, 24, 5
    tick = 10 ** np.floor(np.log10(max(latencies) / ticks))
    tick = next(tick * k for k in (1, 2, 5, 10) if tick * k * ticks >= max(latencies))
    counts, _ = np.histogram(latencies, 60, (0, ticks * tick))
    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    step, base = width / len(counts), height - foot
    for place, count in enumerate(counts):
        top = base - (base - 50) * count / counts.max()
        pen.rectangle((place * step, top, (place + 1) * step - 2, base), fill="#4a7ab5")
    pen.line((0, base, width, base), fill="black")
    for number in range(ticks):
        x = width * number / ticks
        pen.line((x, base, x, base + 5), fill="black")
        pen.text((x + 4, base + 6), f"{tick * number:g} ms", fill="black")
    for number, (percentile, value) in enumerate(marks.items()):
        x = width * value / (ticks * tick)
        pen.line((x, 0, x, base), fill="#c0392b")
        text = f"p{percentile} {value:.0f} ms"
        pen.text((x - 6 * len(text) - 4, 2 + 13 * number), text, fill="#c0392b")
    return image


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time")
    parser.add_argument("--chart", type=Path, help="write a histogram of the latencies here")
    options = parser.parse_args()

    model = saccade.compile(MODEL)
    expected = direct(model)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        bundle = Path(folder) / "upscale.saccade"
        model.save(bundle, *({"image": (1, 3, height, width)} for height, width in SIZES))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, str(HERE / "app.py"), str(bundle), "--port", str(port)]
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limits = httpx.Limits(max_connections=None)
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits
            ) as client:
                await started(client, service)
                done = await load(client, expected, options.requests, options.concurrency)
                marks = {p: float(np.percentile(done.latencies, p)) for p in PERCENTILES}
                told = ", ".join(f"p{p} {value:.1f} ms" for p, value in marks.items())
                rate = len(done.latencies) / done.seconds
                print(f"{len(done.latencies)} requests, {rate:.1f} a second, {told}")
                print(f"{done.wrong} answers differ from a direct call")
                good = [
                    done.wrong == 0,
                    await refuses_bad_uploads(client),
                    await stays_up(client, expected),
                    await stops_in_order(client, service, expected),
                ]
        finally:
            service.kill()
            service.wait()
    if options.chart:
        chart(done.latencies, marks).save(options.chart, optimize=True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
