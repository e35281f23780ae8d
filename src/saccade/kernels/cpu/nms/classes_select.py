"""The boxes of one class that stay, in falling order of their scores.

Where few boxes are wanted of many, the best of them are tried alone first: a sample of the scores
says from which score on there should be enough. Greedy suppression never looks back, so what stays
of the best is what would stay of them among all; only where they are used up before enough stay,
all are tried.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.nms.box_iou import BoxPairs
from saccade.kernels.cpu.nms.box_strips import Strips
from saccade.kernels.cpu.nms.config import DIGITS, ClassesConfig
from saccade.kernels.cpu.nms.greedy_suppression import GreedySuppression
from saccade.kernels.cpu.nms.score_order import RadixSort, falling

__all__ = ["SAMPLED", "emit_select"]

SAMPLED = 16
"""One vector of so many is looked at for a sample."""

_ELEMENT = "float32"


def emit_select(k: KernelBuilder, config: ClassesConfig) -> None:
    """The phase that decides which boxes stay, a chunk for each class of each image."""
    _Select(k, config).emit()


class _Select:
    def __init__(self, k: KernelBuilder, config: ClassesConfig) -> None:
        self.k, self.centred = k, config.centred
        self.boxes = k.pointer("boxes", config.boxes)
        self.scores = k.pointer("scores", config.scores)
        self.kept, self.counts = k.pointer("kept", "int32"), k.pointer("counts", "int64")
        keys, items = (k.scratch(name, "int64") for name in ("keys", "items"))
        histogram = k.scratch("histogram", "int32")
        self.sort = RadixSort(k, keys, items, histogram, DIGITS[_ELEMENT])
        records = k.scratch("records", _ELEMENT)
        strips = Strips(k, _ELEMENT, scratch=True)
        self.runs, self.classes, self.size, self.most = k.integers("runs classes size most")
        self.image, self.row, self.column = k.integers("image row column")
        self.score_image, self.score_class = k.integers("score_image score_class")
        self.least = k.convert(k.real("least"), _ELEMENT)
        self.rank = k.integer("rank")
        strips.declare_integers()
        self.run = GreedySuppression(k, records, strips, BoxPairs(k, _ELEMENT))

    def emit(self) -> None:
        """What stays of each class, and how many that are."""
        k = self.k
        with k.chunks(self.runs) as number:
            image, group = number // self.classes, number % self.classes
            scores = self.scores + (image * self.score_image + group * self.score_class)
            boxes, kept = self.boxes + image * self.image, self.kept + number * self.most
            # One try, of all that count, unless `_raise` has a better one come before it.
            count, tries, bar = k.var(0), k.var(1), k.var(self.least)
            self._raise(scores, bar, tries)
            with k.repeat_while(lambda: tries.get() > 0):
                count.set(0)
                self._try(scores, bar.get(), boxes, kept, count)
                short: Bool = count.get() < self.most
                tries.set(short.select(tries.get() - 1, 0))
                bar.set(self.least)
            self.counts.store_int(count.get(), number)

    def _raise(self, scores: Ptr, bar: Var, tries: Var) -> None:
        """Begin at a higher score, where there should be enough boxes from it on."""
        k = self.k
        with k.when(self.rank >= 0):
            found = self._candidates(scores, self.least, SAMPLED)
            with k.when(found > self.rank):
                best = self.sort.items + self.sort.sort(found)
                bar.set(floats.load_one(k, scores, best.load_int(self.rank), _ELEMENT))
                tries.set(2)

    def _try(self, scores: Ptr, bar: Vec, boxes: Ptr, kept: Ptr, count: Var) -> None:
        """What stays of the boxes with such a score or a better one."""
        found = self._candidates(scores, bar, 1)
        with self.k.when(found > 0):
            order = self.sort.items + self.sort.sort(found)
            self.run.begin(self.k.int(0), found, lambda place: self._corners(boxes, order, place))
            self._choose(order, found, kept, count)

    def _candidates(self, scores: Ptr, bar: Vec, step: int) -> Int:
        """Note boxes with such a score or a better one; how many they are. Most vectors have none.

        Only one of `step` vectors is looked at.
        """
        k, count = self.k, self.k.var(0)
        self.sort.clear()
        least = k.broadcast(bar)
        with k.range(0, self.size, step * k.lanes) as first:
            inside = k.first(self.size - first)
            vector = floats.load(k, scores, first, k.lanes, _ELEMENT, inside)
            # Lanes that are not there read as 0, which may be a score that counts.
            bits = k.var(k.mask_bits(vector.compare(">=", least) & inside))
            with k.repeat_while(lambda: bits.get().differs(0)):
                word: Int = bits.get()
                box = first + k.count_trailing_zeros(word)
                # Clears the lowest bit that is set.
                bits.set(word & (word - 1))
                key = falling(k, floats.load_one(k, scores, box, _ELEMENT), _ELEMENT)
                self.sort.note(key, box, count.get())
                count.set(count.get() + 1)
        found: Int = count.get()
        return found

    def _corners(self, boxes: Ptr, order: Ptr, place: Int) -> list[Vec]:
        """x1, y1, x2, y2 with x1 <= x2 and y1 <= y2, unless a size is negative."""
        k = self.k
        at = order.load_int(place) * self.row
        numbers = [floats.load_one(k, boxes, at + self.column * i, _ELEMENT) for i in range(4)]
        if self.centred:
            x, y, width, height = numbers[0], numbers[1], numbers[2] * 0.5, numbers[3] * 0.5
            return [x - width, y - height, x + width, y + height]
        # ONNX has y before x, and any two opposite corners.
        ends = ((numbers[1], numbers[3]), (numbers[0], numbers[2]))
        return [*(k.minimum(*pair) for pair in ends), *(k.maximum(*pair) for pair in ends)]

    def _choose(self, order: Ptr, found: Int, kept: Ptr, count: Var) -> None:
        """One box after the other, until all are asked or enough stay."""
        k, place = self.k, self.k.var(0)

        def more() -> Bool:
            at, stay = place.get(), count.get()
            wanted: Bool = (at < found) & (stay < self.most)
            return wanted

        with k.repeat_while(more):
            at = place.get()
            with k.when(self.run.stays(at)):
                kept.store_int(order.load_int(at), count.get())
                count.set(count.get() + 1)
            place.set(at + 1)
