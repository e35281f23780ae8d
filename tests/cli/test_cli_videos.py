"""`saccade run` on a video: into a video or frames, whole or not at all."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np
import pytest
from fake_engine import FakeModel, Info

from saccade.vision.video import VideoFrame, VideoReader, VideoWriter

av = pytest.importorskip("av")
pytestmark = pytest.mark.usefixtures("engine")

RATE = Fraction(25)


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.mp4"
    with path.open("wb") as stream, VideoWriter(stream, ".mp4", RATE) as writer:
        for number in range(5):
            image = np.full((32, 48, 3), 40 + 20 * number, np.uint8)
            writer.write(VideoFrame(image, number / RATE))
    return path


def frames_of(path):
    with VideoReader(path) as reader:
        return [frame.pixels for frame in reader], reader.rate


def test_a_video_becomes_a_video(saccade_cli, engine, model_file, clip, tmp_path):
    engine.model.offset = 0.2
    result = saccade_cli("run", model_file, "--input", clip, "--output", tmp_path / "out.mp4")
    assert result.exit_code == 0, result.stderr
    frames, rate = frames_of(tmp_path / "out.mp4")
    assert rate == RATE and len(frames) == 5 and frames[0].shape == (32, 48, 3)
    levels = [int(frame.mean().round()) for frame in frames]
    assert np.abs(np.array(levels) - [91, 111, 131, 151, 171]).max() <= 3
    assert "out.mp4 (5 frames)" in result.stdout
    assert len(engine.model.calls) == 5


def test_a_video_becomes_frames(saccade_cli, model_file, clip, tmp_path):
    result = saccade_cli("run", model_file, "--input", f"input={clip}", "--output", tmp_path / "f")
    assert result.exit_code == 0, result.stderr
    names = sorted(path.name for path in (tmp_path / "f").iterdir())
    assert names == [f"frame_{n:06}.png" for n in range(5)]


def test_grey_models_and_classes(saccade_cli, engine, model_file, clip):
    info = Info("x", "float32", (1, 1, "H", "W"))
    engine.model = FakeModel((info,), (Info("y", "float32", (1, 3)),))
    engine.model.corrupt = lambda results: results.update(y=np.eye(1, 3, 1, np.float32))
    result = saccade_cli("run", model_file, "--input", clip, "--top", "1", "--json", "-")
    assert result.exit_code == 0, result.stderr
    frames = json.loads(result.stdout)["frames"]
    assert [one["top"][0][0]["number"] for one in frames] == [1] * 5
    assert engine.model.calls[0]["x"].shape == (1, 1, 32, 48)
    assert "frame 4:" in saccade_cli("run", model_file, "--input", clip).stdout


def test_what_fails_leaves_no_video(refused, engine, model_file, clip, tmp_path):
    calls = engine.model.calls

    def no_image(results):
        if len(calls) == 3:
            results["output"] = np.zeros((1, 5), np.float32)

    engine.model.corrupt = no_image
    line = refused("run", model_file, "--input", clip, "--output", tmp_path / "out.mp4")
    assert "is not one image" in line and line.endswith("nothing was written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.mp4", "tiny.onnx"]


def test_of_damaged_videos_the_frames_before_are_kept(refused, model_file, clip, tmp_path):
    with av.open(str(clip)) as container:
        places = [(one.pos, one.size) for one in container.demux(video=0) if one.size]
    begin, size = places[-1]
    raw = bytearray(clip.read_bytes())
    raw[begin : begin + size] = b"\xa5" * size
    clip.write_bytes(raw)
    line = refused("run", model_file, "--input", clip, "--output", tmp_path / "frames")
    (count,) = re.findall(r"clip.mp4 is damaged behind frame \d .*: (\d) frames are in", line)
    kept = list((tmp_path / "frames").iterdir()) if int(count) else []
    assert len(kept) == int(count)
    line = refused("run", model_file, "--input", clip, "--output", tmp_path / "out.mp4")
    assert line.endswith("nothing was written") and not (tmp_path / "out.mp4").exists()


def test_a_video_that_ends_early_is_told_by_the_exit_status(
    saccade_cli, model_file, clip, tmp_path
):
    cut = tmp_path / "cut.mkv"
    with clip.open("rb") as source, av.open(source) as read, av.open(str(cut), "w") as written:
        stream = written.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(video=0):
            if packet.size:
                packet.stream = stream
                written.mux(packet)
    with av.open(str(cut)) as container:
        begin = [one.pos for one in container.demux(video=0) if one.size][2]
    cut.write_bytes(cut.read_bytes()[:begin])
    result = saccade_cli("run", model_file, "--input", cut, "--output", tmp_path / "out.mp4")
    assert result.exit_code == 1
    assert re.search(r"cut.mkv: the video ends after 0\.[01] of 0\.2 seconds", result.stderr)
    assert 1 <= len(frames_of(tmp_path / "out.mp4")[0]) <= 2


def test_mistakes_are_told_before_anything_is_compiled(
    refused, engine, model_file, clip, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    other = ("--input", model_file.with_name("clip.mp4"))
    for output, says in (
        (tmp_path / "out.png", "a video becomes a video (.mp4, .mov"),
        (tmp_path / "out.wmv", "a video becomes a video (.mp4, .mov"),
        (tmp_path / "file", "a video becomes a video"),
        (clip, "would take the place of what is read"),
    ):
        assert says in refused("run", model_file, "--input", clip, "--output", output)
    assert "a video is run by itself" in refused("run", model_file, "--input", clip, *other)
    assert "no such file" in refused("run", model_file, "--input", tmp_path / "none.mp4")
    (tmp_path / "text.mp4").write_text("no video")
    assert "not a video that can be read" in refused(
        "run", model_file, "--input", tmp_path / "text.mp4"
    )
    monkeypatch.setattr("saccade.vision.video.find_spec", lambda _name: None)
    line = refused("run", model_file, "--input", clip)
    assert "pip install 'saccade[video]'" in line
    assert not engine.compiled


def test_models_of_several_inputs_take_no_videos(refused, engine, model_file, clip):
    infos = tuple(Info(name, "float32", (1, 3, "H", "W")) for name in "ab")
    engine.model = FakeModel(infos, infos)
    assert "a model of one input; it has 2" in refused("run", model_file, "--input", clip)
    engine.model = FakeModel((Info("a", "float32", (1, 7)),), (Info("b", "float32", (1, 7)),))
    assert "is not an image" in refused("run", model_file, "--input", clip)
    fixed = Info("a", "float32", (1, 3, 8, 8))
    engine.model = FakeModel((fixed,), (fixed,))
    assert "which 1x3x32x48 does not fit" in refused("run", model_file, "--input", clip)
