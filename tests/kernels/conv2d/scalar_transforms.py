"""Stand-ins for vectors and their builder, so that transforms run on single float64 numbers."""


class Number:
    """A float64 that transforms take for a vector."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Number(self.value + other.value)

    def __sub__(self, other):
        return Number(self.value - other.value)

    def __mul__(self, factor):
        return Number(self.value * factor)

    def like(self, value):
        return Number(value)


class Builder:
    def fma(self, a, b, c):
        return Number(a.value * b.value + c.value)
