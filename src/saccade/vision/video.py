"""Videos as frames, and frames as videos, where PyAV is installed (`pip install 'saccade[video]'`).

Frames are RGB bytes, the right way up. What is written keeps each frame's time, and the sound as it
is where the file's kind can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib.util import find_spec
from os import PathLike, fspath
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError, OptionError, printable

__all__ = ["WRITTEN_VIDEOS", "VideoFrame", "VideoReader", "VideoWriter", "check_video"]

_H264 = ("libx264", "mpeg4")
_KINDS = MappingProxyType(
    {
        ".mp4": ("mp4", _H264), ".mov": ("mov", _H264), ".mkv": ("matroska", _H264),
        ".avi": ("avi", ("mpeg4",)), ".webm": ("webm", ("libvpx-vp9", "libvpx")),
    }
)  # fmt: skip
"""By suffix what a file is, and encoders, the first of which that there is makes it."""
WRITTEN_VIDEOS = tuple(_KINDS)
"""Suffixes of videos that are written."""
_RIGHT_ANGLE = 90  # degrees
_TICK = Fraction(1, 60000)  # seconds, of which frames at usual rates take a whole number


class VideoFrame(NamedTuple):
    """One image of a video.

    Attributes:
        pixels: [H, W, 3] bytes.
        time: Since the video's beginning, in seconds.
    """

    pixels: NDArray[np.uint8]
    time: Fraction


def check_video(path: str | PathLike[str] | None = None) -> None:
    """See to it that videos can be read.

    Args:
        path: One to look into; none if None.

    Raises:
        OptionError: If PyAV is not installed.
        InputError: If the file is no video, or has no images in it.
    """
    if find_spec("av") is None:
        raise OptionError("videos need PyAV: pip install 'saccade[video]'")
    if path is not None:
        with VideoReader(path):
            pass


class VideoReader:
    """A video that is read, as a context.

    Args:
        path: The file.

    Attributes:
        rate: Frames a second, on average.
        count: How many frames there are, as the file says; None if it does not.
        duration: Seconds, as the file says; None if it does not.

    Raises:
        OptionError: If PyAV is not installed.
        InputError: If there is no such file, or it is no video.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        check_video()
        import av  # noqa: PLC0415 - an extra

        self._name = printable(fspath(path))
        self._sound: list[Any] = []
        with self._told("is not a video that can be read"):
            self._container: Any = av.open(fspath(path))
        streams = self._container.streams
        if not streams.video:
            self._container.close()
            raise InputError(f"{self._name} has no images in it")
        self._stream = streams.video[0]
        # By frames, decoders would lose some before damage, and not say so.
        self._stream.thread_type = "SLICE"
        self._heard = streams.audio[0] if streams.audio else None
        self.rate: Fraction = self._stream.average_rate or Fraction(25)
        self.count: int | None = self._stream.frames or None
        self.duration: Fraction | None = None
        if self._container.duration is not None:
            self.duration = Fraction(self._container.duration, av.time_base)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._container.close()

    def __iter__(self) -> Iterator[VideoFrame]:
        """All frames, in order.

        Raises:
            InputError: If the video is damaged; frames before that were given.
        """
        number = 0
        # Where frames have no time, or one that was, they follow each other at the usual distance.
        latest: Fraction | None = None
        wanted = [one for one in (self._stream, self._heard) if one is not None]
        with self._told(lambda: f"is damaged behind frame {number}"):
            for packet in self._container.demux(*wanted):
                if packet.stream is self._heard:
                    self._sound.append(packet)
                    continue
                for frame in packet.decode():
                    time = None if frame.pts is None else frame.pts * frame.time_base
                    if latest is not None and (time is None or time <= latest):
                        time = latest + 1 / self.rate
                    latest = Fraction(0) if time is None else time
                    number += 1
                    yield VideoFrame(_upright(frame), latest)

    @property
    def sound(self) -> Any:  # noqa: ANN401 - PyAV's
        """The stream of the sound, for a `VideoWriter`; None if there is none."""
        return self._heard

    def heard(self) -> list[Any]:
        """The packets of sound that were met since this was asked last."""
        packets, self._sound = self._sound, []
        return packets

    @contextmanager
    def _told(self, problem: Any) -> Iterator[None]:  # noqa: ANN401 - a text, or what gives it
        import av  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError:
            raise InputError(f"{self._name}: there is no such file") from None
        except av.FFmpegError as error:
            text = problem() if callable(problem) else problem
            raise InputError(f"{self._name} {text} ({error.strerror})") from error


def _upright(frame: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - PyAV's
    """A frame's pixels, as the camera was held."""
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / _RIGHT_ANGLE)))


class VideoWriter:
    """A video that is written, as a context; the size is that of its first frame.

    Args:
        stream: Of a file that is written to, which can be gone back in.
        suffix: One of `WRITTEN_VIDEOS`.
        rate: Frames a second, on average.
        source: The video whose sound it gets.

    Raises:
        OptionError: If PyAV is not installed, or writes no such files.
    """

    def __init__(
        self, stream: BinaryIO, suffix: str, rate: Fraction, source: VideoReader | None = None
    ) -> None:
        check_video()
        if suffix not in _KINDS:
            raise OptionError(f"videos are written as {', '.join(_KINDS)}, not {suffix}")
        import av  # noqa: PLC0415

        kind, encoders = _KINDS[suffix]
        self._encoder = next((one for one in encoders if _encodes(one)), encoders[-1])
        self._container: Any = av.open(stream, "w", format=kind)
        self._rate, self._source = rate, source
        # One kind of file holds a place for each frame that there could be.
        self._base = 1 / rate if suffix == ".avi" else _TICK
        self._video: Any = None
        self._sound: Any = None
        self._size: tuple[int, ...] = ()
        self._ticks = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._video is not None:
            self._mux(self._video.encode())
            self._copy_sound()
        self._container.close()

    @property
    def lacks_sound(self) -> bool:
        """Whether the source has sound that a file of this kind cannot hold."""
        heard = self._source is not None and self._source.sound is not None
        return heard and self._video is not None and self._sound is None

    def write(self, frame: VideoFrame) -> None:
        """Add a frame.

        Raises:
            InputError: If it is of another size than those before it, or is no [H, W, 1 or 3], or
                its size cannot be encoded.
        """
        import av  # noqa: PLC0415

        pixels = frame.pixels
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8:
            raise InputError(f"a frame is [H, W, 1 or 3] bytes, not {pixels.shape}")
        if self._video is None:
            self._begin(pixels.shape[:2])
        if pixels.shape[:2] != self._size:
            raise InputError(f"a frame of {pixels.shape[:2]} in a video of {self._size}")
        colours = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
        image = av.VideoFrame.from_ndarray(np.ascontiguousarray(colours), format="rgb24")
        # Times that are nearer than a tick would be one.
        self._ticks = max(self._ticks + 1, round(frame.time / self._base))
        image.pts, image.time_base = self._ticks, self._base
        try:
            self._mux(self._video.encode(image))
        except av.FFmpegError as error:
            wide, high = pixels.shape[1], pixels.shape[0]
            raise InputError(
                f"frames of {wide}x{high} cannot be encoded with {self._encoder} ({error.strerror})"
            ) from error
        self._copy_sound()

    def _begin(self, size: tuple[int, ...]) -> None:
        self._size = size
        self._video = self._container.add_stream(self._encoder, rate=self._rate)
        self._video.height, self._video.width = size
        self._video.codec_context.time_base = self._base
        # Colours of every second pixel only where there is an even number.
        odd = size[0] % 2 or size[1] % 2
        self._video.pix_fmt = "yuv444p" if odd and self._encoder != "mpeg4" else "yuv420p"
        sound = None if self._source is None else self._source.sound
        if sound is not None and _holds(self._container, sound):
            self._sound = self._container.add_stream_from_template(sound)

    def _copy_sound(self) -> None:
        for packet in self._source.heard() if self._source is not None else ():
            # The last one is empty, and says that there are no more.
            if self._sound is not None and packet.dts is not None:
                packet.stream = self._sound
                self._container.mux(packet)

    def _mux(self, packets: Any) -> None:  # noqa: ANN401 - PyAV's
        for packet in packets:
            self._container.mux(packet)


def _encodes(name: str) -> bool:
    import av  # noqa: PLC0415

    try:
        av.Codec(name, "w")
    except ValueError:  # which PyAV's error for it is
        return False
    return True


def _holds(container: Any, sound: Any) -> bool:  # noqa: ANN401 - PyAV's
    """Whether a kind of file can hold sound of this coding."""
    return sound.codec_context.name in container.supported_codecs
