"""Images in tiles: the result of the whole on real networks, chosen when memory asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import saccade
from saccade import vision
from saccade.errors import InputError, OptionError
from saccade.vision import tiles

ROOT = Path(__file__).parents[2]
UPSCALER = ROOT / "examples" / "upscale" / "model.onnx"
RANDOM = np.random.default_rng(5)


@pytest.fixture(scope="module")
def exact():
    return saccade.compile(UPSCALER, exact=True, threads=2)


@pytest.fixture(scope="module")
def plain():
    return saccade.compile(UPSCALER, threads=2)


@pytest.mark.parametrize(("high", "wide", "edge"), [(71, 93, 40), (64, 50, 33), (40, 129, 64)])
def test_an_upscaler_gives_the_same_bits(exact, high, wide, edge):
    x = RANDOM.random((1, 3, high, wide), np.float32)
    np.testing.assert_array_equal(vision.tiled(exact, x, edge), exact(x))
    assert len(vision.tiling_of(exact, x.shape, edge)) > 1


def test_algorithms_that_round_otherwise_differ_by_their_rounding_alone(plain):
    x = RANDOM.random((1, 3, 90, 75), np.float32)
    whole = plain(x)
    tiled = vision.tiled(plain, x, 48)
    assert np.abs(tiled - whole).max() < 2e-5 * np.abs(whole).max()


def test_bytes_become_bytes_whose_seams_cannot_be_seen(plain):
    image = RANDOM.integers(0, 256, (61, 83, 3), np.uint8)
    values = vision.unit(image).values
    whole = np.rint(np.clip(plain(values)[0], 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    tiled = vision.tiled(plain, image, 40)
    assert tiled.shape == (122, 166, 3) and tiled.dtype == np.uint8
    differ = tiled.astype(int) - whole
    assert np.abs(differ).max() <= 1 and (differ != 0).mean() < 1e-3
    np.testing.assert_array_equal(vision.tiled(plain, image), whole)


def test_mean_and_std_reach_each_tile(exact):
    image = RANDOM.integers(0, 256, (50, 60, 3), np.uint8)
    more = {"mean": (0.1, 0.2, 0.3), "std": (2, 1, 0.5)}
    whole = tiles.as_bytes("y", exact(vision.unit(image, **more).values))
    np.testing.assert_array_equal(vision.tiled(exact, image, 40, **more), whole)


@pytest.mark.parametrize("high", [1, 2, 13, 14, 27])
def test_images_smaller_than_what_is_looked_at(exact, high):
    image = RANDOM.integers(0, 256, (high, 70, 3), np.uint8)
    np.testing.assert_array_equal(vision.tiled(exact, image, 40), vision.tiled(exact, image))


def test_progress_is_told(exact):
    told = []
    x = RANDOM.random((1, 3, 50, 60), np.float32)
    vision.tiled(exact, x, 40, report=told.append)
    assert told == list(range(1, len(vision.tiling_of(exact, x.shape, 40)) + 1))


def test_what_fits_is_left_whole_and_what_does_not_is_cut(plain, monkeypatch):
    shape = (1, 3, 1000, 1200)
    assert vision.tiling_of(plain, shape) is None
    needed = plain.run_bytes(image=shape)
    monkeypatch.setattr(tiles, "MOST_BYTES", needed // 2)
    monkeypatch.setattr(tiles, "_TILE_BYTES", needed // 8)
    found = vision.tiling_of(plain, shape)
    assert len(found) > 4
    assert plain.run_bytes(image=(1, 3, found.edge, found.edge)) <= needed // 8
    assert plain.run_bytes(image=(1, 3, found.edge + 32, found.edge + 32)) > needed // 8
    # Whatever is free: tiles may round otherwise.
    monkeypatch.setattr(tiles, "MOST_BYTES", 1 << 40)
    monkeypatch.setattr("saccade.memory.free_bytes", lambda: needed)
    assert vision.tiling_of(plain, shape) is None


def test_what_ran_before_does_not_decide_what_is_cut():
    """Later sizes take code that is there, and may take more memory: tiles stay as they are."""
    model = saccade.compile(UPSCALER, threads=2, cache=False)
    shape = {"image": (1, 3, 1000, 1200)}
    before, planned = model.run_bytes(**shape), model.plan(**shape)
    assert before == planned.arena_bytes + planned.output_bytes
    model(np.zeros((1, 3, 90, 75), np.float32))
    assert model.run_bytes(**shape) == before


def test_tiles_that_would_be_mostly_overlap_are_larger(plain, monkeypatch):
    shape = (1, 3, 1000, 1200)
    needed = plain.run_bytes(image=shape)
    monkeypatch.setattr(tiles, "MOST_BYTES", needed // 4)
    for small in (needed // 400, 1):  # of 64 pixels, with 13 around each; and of none
        monkeypatch.setattr(tiles, "_TILE_BYTES", small)
        found = vision.tiling_of(plain, shape)
        assert found.edge > 300 and found.pixels < 1.5 * 1000 * 1200
    # What no budget suffices for is cut as small as it may be.
    monkeypatch.setattr(tiles, "MOST_BYTES", 1)
    assert vision.tiling_of(plain, shape).edge == 32


def test_small_images_ask_for_no_plan():
    class Unplanned:
        inputs = (None,)

    assert vision.tiling_of(Unplanned(), (1, 3, 80, 80)) is None


def test_a_bundle_runs_its_sizes_whole(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "_LEAST_ELEMENTS", 1)
    plain.save(tmp_path / "m.saccade", {"image": (1, 3, 512, 520)})
    bundle = saccade.compile(tmp_path / "m.saccade", threads=2)
    assert vision.tiling_of(bundle, (1, 3, 512, 520)) is None
    with pytest.raises(OptionError, match=r"cannot be cut into tiles: .*holds programs for"):
        vision.tiling_of(bundle, (1, 3, 512, 520), 128)


def test_a_tile_that_is_too_small_is_refused(plain):
    with pytest.raises(OptionError, match="cannot be cut into tiles: tiles of 20 pixels: they are"):
        vision.tiled(plain, np.zeros((1, 3, 60, 60), np.float32), 20)


def test_an_image_that_does_not_fit_the_model_is_refused(plain):
    with pytest.raises(InputError):
        vision.tiled(plain, np.zeros((60, 60, 1), np.uint8))


MEASURED = """
import sys
import numpy as np
import saccade
from saccade import vision
from saccade.cli._bench_worker import peak_rss
model = saccade.compile(sys.argv[1])
rows, columns = np.indices((3000, 4000), np.uint16)
image = np.stack([rows, columns, rows + columns], axis=-1).astype(np.uint8)
print(vision.tiled(model, image).shape)
print(peak_rss())
"""


def test_twelve_megapixels_take_less_than_two_gigabytes():
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(UPSCALER)], capture_output=True, text=True, check=True
    )
    shape, peak = done.stdout.splitlines()
    assert shape == "(6000, 8000, 3)"
    assert int(peak) < 1.2e9


def save_channels_last(path, element, bias):
    """Twice as large, channels last; bytes in and out where they are asked for."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(element))
    text = f"""
        <ir_version: 8, opset_import: ["" : 18]>
        g ({onnx.TensorProto.DataType.Name(kind).lower()}[1, H, W, 3] x)
            => (float[1, h, w, 3] y)
        <float[3, 3, 3, 3] k, float[4] scales = {{1, 1, 2, 2}}>
        {{
            f = Cast<to = 1>(x)
            first = Transpose<perm = [0, 3, 1, 2]>(f)
            seen = Conv<pads = [1, 1, 1, 1]>(first, k)
            large = Resize<mode = "linear">(seen, , scales)
            y = Transpose<perm = [0, 2, 3, 1]>(large)
        }}
    """
    model = onnx.parser.parse_model(text)
    weights = (RANDOM.random((3, 3, 3, 3)) * bias).astype(np.float32)
    for one in model.graph.initializer:
        if one.name == "k":
            one.CopyFrom(onnx.numpy_helper.from_array(weights, "k"))
    if "k" not in {one.name for one in model.graph.initializer}:
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    onnx.save(model, path)


@pytest.mark.parametrize(("element", "bias"), [("float32", 0.05), ("uint8", 0.0002)])
def test_models_with_channels_last_and_bytes(tmp_path, element, bias):
    save_channels_last(tmp_path / "m.onnx", element, bias)
    model = saccade.compile(tmp_path / "m.onnx", exact=True, threads=2)
    image = RANDOM.integers(0, 256, (40, 52, 3), np.uint8)
    given = image[None] if element == "uint8" else np.float32(image[None]) / np.float32(255)
    whole = np.rint(np.clip(model(given)[0], 0, 1) * 255).astype(np.uint8)
    tiled = vision.tiled(model, image, 20)
    assert tiled.shape == (80, 104, 3) and 0 < whole.mean() < 255
    np.testing.assert_array_equal(tiled, whole)
    np.testing.assert_array_equal(vision.tiled(model, image), whole)
    if element == "uint8":
        with pytest.raises(InputError, match="takes bytes, which have no mean"):
            vision.tiled(model, image, 20, mean=(0.5,))
