"""Videos: frames with their times, the right way up, and sound that stays; damage is told."""

from __future__ import annotations

import io
from contextlib import ExitStack
from fractions import Fraction

import numpy as np
import pytest

from saccade import vision
from saccade.errors import InputError, OptionError
from saccade.vision.video import WRITTEN_VIDEOS, VideoFrame, VideoReader, VideoWriter, check_video

av = pytest.importorskip("av")

RATE = Fraction(30000, 1001)


def image_at(number, size=(48, 64)):
    """Flat areas, which coding keeps: a bright bar moves from left to right."""
    image = np.full((*size, 3), 60, np.uint8)
    image[:, 4 * number : 4 * number + 8] = 220
    return image


def video(path, count=8, size=(48, 64), times=None, sound=False, rotation=0):
    """A file made with PyAV alone."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, 30000)
        heard = container.add_stream("aac", rate=44100, layout="mono") if sound else None
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(image_at(number, size), format="rgb24")
            time = number / RATE if times is None else times[number]
            frame.pts, frame.time_base = round(time * 30000), Fraction(1, 30000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        for number in range(12 if sound else 0):
            frame = av.AudioFrame.from_ndarray(
                np.full((1, 1024), 0.1, np.float32), format="fltp", layout="mono"
            )
            frame.sample_rate, frame.pts = 44100, number * 1024
            container.mux(heard.encode(frame))
        if heard is not None:
            container.mux(heard.encode())
    return path


def copied(source, target):
    """Frame by frame; the writer."""
    with ExitStack() as stack:
        reader = stack.enter_context(VideoReader(source))
        stream = stack.enter_context(target.open("wb"))
        writer = stack.enter_context(VideoWriter(stream, target.suffix, reader.rate, reader))
        for frame in reader:
            writer.write(frame)
    return writer


def test_frames_come_in_order_with_their_times(tmp_path):
    with VideoReader(video(tmp_path / "a.mp4")) as reader:
        frames = list(reader)
        assert reader.rate == RATE and reader.count == 8
    assert len(frames) == 8
    for number, frame in enumerate(frames):
        assert abs(frame.time - number / RATE) < Fraction(1, 10000)
        assert frame.pixels.shape == (48, 64, 3) and frame.pixels.dtype == np.uint8
        assert np.abs(frame.pixels.astype(int) - image_at(number)).mean() < 6


@pytest.mark.parametrize("suffix", WRITTEN_VIDEOS)
@pytest.mark.parametrize("size", [(48, 64), (47, 65)])
def test_what_is_written_is_read_again(tmp_path, suffix, size):
    path = tmp_path / f"a{suffix}"
    with path.open("wb") as stream, VideoWriter(stream, suffix, RATE) as writer:
        for number in range(6):
            writer.write(VideoFrame(image_at(number, size), number / RATE))
    with VideoReader(path) as reader:
        frames = list(reader)
        assert abs(reader.rate - RATE) < Fraction(1, 10)
    assert len(frames) == 6
    for number, frame in enumerate(frames):
        if suffix != ".avi":  # whose coding takes whole blocks
            assert frame.pixels.shape == (*size, 3)
        assert abs(frame.time - frames[0].time - number / RATE) < Fraction(2, 1000)
    high, wide = min(size[0], frames[3].pixels.shape[0]), size[1]
    difference = frames[3].pixels[:high, :wide].astype(int) - image_at(3, size)[:high]
    assert np.abs(difference).mean() < 8


def test_times_that_vary_are_kept(tmp_path):
    times = [Fraction(n, 100) for n in (0, 3, 4, 20, 21)]
    source = video(tmp_path / "a.mp4", 5, times=times)
    target = tmp_path / "b.mkv"
    copied(source, target)
    with VideoReader(target) as reader:
        found = [frame.time for frame in reader]
    assert [round(float(time), 2) for time in found] == [0, 0.03, 0.04, 0.2, 0.21]


def test_sound_stays_as_it_is_where_it_can(tmp_path):
    source = video(tmp_path / "a.mp4", sound=True)
    packets = {}
    for suffix in (".mp4", ".mkv", ".webm"):
        target = tmp_path / f"b{suffix}"
        assert copied(source, target).lacks_sound == (suffix == ".webm")
        with av.open(str(target)) as container:
            packets[suffix] = (
                [bytes(one) for one in container.demux(*container.streams.audio) if one.size]
                if container.streams.audio
                else []
            )
    with av.open(str(source)) as container:
        wanted = [bytes(one) for one in container.demux(audio=0) if one.size]
    assert len(wanted) > 10 and packets == {".mp4": wanted, ".mkv": wanted, ".webm": []}


def test_a_camera_that_was_held_upright():
    class Frame:
        def __init__(self, rotation):
            self.rotation = rotation

        def to_ndarray(self, **more):
            assert more == {"format": "rgb24"}
            return np.arange(6, dtype=np.uint8).reshape(1, 2, 3)

    from saccade.vision.video import _upright  # noqa: PLC0415

    assert _upright(Frame(0)).shape == (1, 2, 3)
    # A quarter to the right, as phones say it: the left end comes to the top.
    assert _upright(Frame(-90))[:, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert _upright(Frame(90))[:, 0].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert _upright(Frame(180))[0].tolist() == [[3, 4, 5], [0, 1, 2]]


def test_files_that_are_no_videos(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty.mp4").touch()
    for name in ("text.mp4", "empty.mp4"):
        with pytest.raises(InputError, match=f"{name} is not a video that can be read"):
            check_video(tmp_path / name)
    with pytest.raises(InputError, match="there is no such file"):
        check_video(tmp_path / "none.mp4")
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=44100, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(InputError, match="has no images in it"):
        check_video(tmp_path / "sound.mp4")


def test_damage_is_told_with_what_came_before(tmp_path):
    source = video(tmp_path / "a.mp4", 8)
    raw = bytearray(source.read_bytes())
    begin = raw.index(b"mdat") + 4
    raw[begin : begin + 600] = b"\xa5" * 600
    source.write_bytes(raw)
    with VideoReader(source) as reader, pytest.raises(InputError, match=r"damaged behind frame \d"):
        list(reader)


def test_frames_that_do_not_fit_are_refused():
    with VideoWriter(io.BytesIO(), ".mp4", RATE) as writer:
        writer.write(VideoFrame(image_at(0), Fraction(0)))
        with pytest.raises(InputError, match="a frame of"):
            writer.write(VideoFrame(image_at(0, (10, 12)), Fraction(1)))
        with pytest.raises(InputError, match="a frame is"):
            writer.write(VideoFrame(image_at(0)[..., :2], Fraction(1)))
        writer.write(VideoFrame(image_at(0)[..., :1], Fraction(1)))
    with pytest.raises(OptionError, match=r"videos are written as \.mp4"):
        VideoWriter(io.BytesIO(), ".wmv", RATE)


def test_without_pyav_one_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("saccade.vision.video.find_spec", lambda _name: None)
    with pytest.raises(OptionError, match=r"pip install 'saccade\[video\]'"):
        vision.VideoReader(tmp_path / "a.mp4")
