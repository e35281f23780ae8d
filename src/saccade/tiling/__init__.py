"""Which part of its image each part of a network's result depends on, and tiles that follow."""

from saccade.tiling.reach import Reach, Tile

__all__ = ["Reach", "Tile"]
