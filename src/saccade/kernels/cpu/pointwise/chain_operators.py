"""What an expression consists of."""

from __future__ import annotations

from functools import lru_cache

from saccade.ir.expr import Expr, fold

__all__ = ["operators"]


@lru_cache(maxsize=4096)
def operators(expr: Expr) -> dict[str, int]:
    """How often each operator occurs, each distinct subtree once."""
    count: dict[str, int] = {}

    def on_apply(op: str, _args: tuple[None, ...]) -> None:
        count[op] = count.get(op, 0) + 1

    fold(expr, lambda _: None, lambda _: None, on_apply)
    return count
