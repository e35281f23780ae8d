"""A headless Chromium, driven over two pipes by its own protocol: no driver, no package.

with Browser() as browser:
    browser.open(path, width=1280)
    browser.run("document.title")
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def executable():
    """The browser, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page at a time; `errors` and `requests` are what it said and asked for since then."""

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory()
        ours, theirs = os.pipe(), os.pipe()
        self._out, self._in = ours[1], theirs[0]
        self._process = self._start(ours[0], theirs[1])
        self._number, self._buffer, self._session = 0, b"", None
        self.errors, self.requests = [], []
        try:
            target = self._send("Target.createTarget", url="about:blank")["targetId"]
            attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._send(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, commands, answers):
        """The browser's process, which reads commands from descriptor 3 and writes to 4."""
        # Higher ones first: each of them may be the other's place.
        low = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (commands, answers)]
        line = [executable(), *ARGUMENTS, f"--user-data-dir={self._profile.name}", "about:blank"]
        actions = [
            *((os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_RDWR, 0) for one in (1, 2)),
            *((os.POSIX_SPAWN_DUP2, one, place) for one, place in zip(low, (3, 4), strict=True)),
        ]
        process = os.posix_spawn(line[0], line, os.environ, file_actions=actions)
        for one in (*low, commands, answers):
            os.close(one)
        return process

    def __exit__(self, *_error):
        os.close(self._out)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        os.close(self._in)
        # Its helpers may still be writing there.
        shutil.rmtree(self._profile.name, ignore_errors=True)
        self._profile.cleanup()

    def open(self, path: Path, width: int, height: int = 900, *, dark=False, still=True):
        """Show a file at this width of the window, as soon as it has drawn itself."""
        self._send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self._send("Emulation.setEmulatedMedia", features=features)
        self.errors, self.requests = [], []
        self._send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")
        # Charts are drawn once they know their width.
        self.wait("[...document.querySelectorAll('.canvas')].every((box) => box.firstChild)")

    def run(self, script: str):
        """The value of an expression, promises awaited."""
        answer = self._send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds=20.0):
        """Go on once an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, (f"never came true: {script}", self.errors)
            time.sleep(0.02)

    def move(self, x: float, y: float):
        """Put the pointer there."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, start: tuple[float, float], end: tuple[float, float]):
        """Press, move and release the pointer."""
        for kind, (x, y), down in (
            ("mousePressed", start, 1), ("mouseMoved", end, 1), ("mouseReleased", end, 0),
        ):  # fmt: skip
            button = "none" if kind == "mouseMoved" and not down else "left"
            self._send(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=down,
                clickCount=1,
            )  # fmt: skip

    def press(self, key: str):
        """Press a key of this name."""
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path, clip=None, *, whole=False):
        """Write what is seen, or all of the page, as PNG; `clip` is x, y, width, height."""
        more = {"captureBeyondViewport": True} if whole or clip else {}
        if clip is not None:
            more["clip"] = {
                **dict(zip(("x", "y", "width", "height"), clip, strict=True)),
                "scale": 1,
            }
        elif whole:
            size = self._send("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {**{n: size[n] for n in ("x", "y", "width", "height")}, "scale": 1}
        data = self._send("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def _send(self, method: str, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], 60)
            assert ready, "the browser does not answer"
            received = os.read(self._in, 1 << 20)
            assert received, "the browser went away"
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(told["exceptionDetails"].get("exception", {}).get("description"))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.errors.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
