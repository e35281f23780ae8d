from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused

from saccade.opdefs import Concat, GridSample, Reduce, WeightedSamples
from saccade.passes.compose_moves import PASS as COMPOSE
from saccade.passes.fuse_samples import PASS

N, HEADS, EACH, QUERIES = 2, 3, 4, 5
SIZES = ((4, 3), (2, 5))


class Deformed(Build):
    """Multi-scale deformable attention behind its products, as exporters write it."""

    def __init__(self, points=(2, 2), *, batch=N, heads=HEADS, stacked=True, sample=None):
        super().__init__()
        self.points, self.batch, self.heads, self.stacked = points, batch, heads, stacked
        self.sample = sample or [GridSample()] * len(points)
        self.pixels = sum(h * w for h, w in SIZES)

    def headed(self, x, *order):
        """Heads in front, beside the images."""
        moved = self.transpose(x, *order)
        return self.reshape(moved, self.batch * self.heads, *moved.shape[2:])

    def samples(self):
        heads, value = self.heads, self.input(self.batch, self.pixels, self.heads * EACH)
        places = self.input(self.batch, QUERIES, heads, sum(self.points), 2)
        at, first, found = 0, 0, []
        for (h, w), count, op in zip(SIZES, self.points, self.sample, strict=False):
            part = self.reshape(self.slice(value, 1, at, h * w), self.batch, h * w, heads, EACH)
            image = self.headed(part, 0, 2, 3, 1)
            image = self.reshape(image, self.batch * heads, EACH, h, w)
            grid = self.headed(self.slice(places, 3, first, count), 0, 2, 1, 3, 4)
            found.append(self.op(op, image, grid))
            at, first = at + h * w, first + count
        return found

    def joint(self, samples):
        if len(samples) == 1:
            return samples[0]
        if not self.stacked:
            return self.op(Concat(3), *samples)
        apart = [self.reshape(s, *s.shape[:3], 1, s.shape[3]) for s in samples]
        return self.reshape(self.op(Concat(3), *apart), *samples[0].shape[:3], sum(self.points))

    def weights(self):
        value = self.input(self.batch, QUERIES, self.heads, sum(self.points))
        moved = self.headed(value, 0, 2, 1, 3)
        return self.reshape(moved, moved.shape[0], 1, *moved.shape[1:])

    def sums(self, samples, weights, *, first=True):
        pair = (samples, weights) if first else (weights, samples)
        return self.op(Reduce("sum", (3,), keepdims=False), self.map("mul($0, $1)", *pair))


def built(**options):
    first = options.pop("first", True)
    b = Deformed(**options)
    sums = b.sums(b.joint(b.samples()), b.weights(), first=first)
    apart = b.reshape(sums, b.batch, b.heads, EACH, QUERIES)
    y = b.reshape(b.transpose(apart, 0, 3, 1, 2), b.batch, QUERIES, b.heads * EACH)
    return b.graph(y)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"first": False}, {"batch": 1}, {"heads": 1}, {"stacked": False},
        {"stacked": False, "points": (3, 1)}, {"points": (2,)}, {"points": (2,), "batch": 1},
        {"sample": [GridSample(aligned=True)] * 2},
    ],
    ids=str,
)  # fmt: skip
def test_samples_that_are_weighed_and_added_up_are_one_step(options):
    graph = built(**options)
    after = fused(graph, COMPOSE, PASS, COMPOSE)
    families = [node.op.family for node in after.nodes]
    assert set(families) <= {"Move", "WeightedSamples"}
    (node,) = (node for node in after.nodes if isinstance(node.op, WeightedSamples))
    levels, heads = len(options.get("points", (2, 2))), options.get("heads", HEADS)
    assert (node.op.levels, node.op.heads) == (levels, heads)
    # Parts of the pixels, as images; parts of the places.
    assert families.count("Move") <= 3 * levels


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        ([GridSample("nearest")] * 2, "samples that are not linear with zeros outside"),
        ([GridSample(padding="border")] * 2, "samples that are not linear with zeros outside"),
        (
            [GridSample(), GridSample(aligned=True)],
            "images whose corners are aligned and others",
        ),
    ],
)
def test_other_samples_stay(sample, reason):
    assert_refused(fused(built(sample=sample), COMPOSE), PASS, reason)


def _read_elsewhere(b, samples):
    return b.joint(samples), b.weights(), (samples[0],)


def _by_channel(b, samples):
    joint = b.joint(samples)
    return joint, b.input(*joint.shape), ()


def _repeated(b, samples):
    joint = b.joint(samples)
    return joint, b.input(1, 1, *joint.shape[2:]), ()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_read_elsewhere, "samples or sums are also read elsewhere"),
        (_by_channel, "weights that differ between channels, or are repeated"),
        (_repeated, "weights that differ between channels, or are repeated"),
    ],
)
def test_what_others_need_stays(make, reason):
    b = Deformed()
    joint, weights, others = make(b, b.samples())
    apart = b.reshape(b.sums(joint, weights), N, HEADS, EACH, QUERIES)
    y = b.reshape(b.transpose(apart, 0, 3, 1, 2), N, QUERIES, HEADS * EACH)
    assert_refused(fused(b.graph(y, *others), COMPOSE), PASS, reason)


def test_heads_that_become_no_channels_are_no_match():
    b = Deformed()
    sums = b.sums(b.joint(b.samples()), b.weights())
    graph = fused(b.graph(b.reshape(sums, N, HEADS * EACH, QUERIES)), COMPOSE)
    assert fused(graph, PASS).nodes == graph.nodes


def test_samples_that_are_repeated_are_no_match():
    b = Deformed(batch=1, heads=1)
    joint = b.joint(b.samples())
    sums = b.sums(joint, b.input(HEADS, 1, *joint.shape[2:]))
    y = b.reshape(b.transpose(sums, 2, 0, 1), 1, QUERIES, HEADS * EACH)
    graph = fused(b.graph(y), COMPOSE)
    assert fused(graph, PASS).nodes == graph.nodes


def test_other_sums_are_no_match():
    b = Deformed()
    product = b.map("mul($0, $1)", b.joint(b.samples()), b.weights())
    mean = b.op(Reduce("mean", (3,), keepdims=False), product)
    apart = b.reshape(mean, N, HEADS, EACH, QUERIES)
    y = b.reshape(b.transpose(apart, 0, 3, 1, 2), N, QUERIES, HEADS * EACH)
    graph = fused(b.graph(y), COMPOSE)
    assert fused(graph, PASS).nodes == graph.nodes
