"""Constants on a GPU, once per process for all programs and models that read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver
    from saccade.backends.cuda.runtime.memory import Secure
    from saccade.ir import Array

__all__ = ["Constants"]

Upload = Callable[[int, "Array"], None]
"""Copies a contiguous array to an address, for good when it returns."""


@dataclass(slots=True)
class _Held:
    address: int
    users: int


class Constants:
    """The constants of all programs.

    Args:
        driver: Of the GPU.
        secure: See `memory.Secure`.
        upload: See `Upload`.
    """

    def __init__(self, driver: CudaDriver, secure: Secure, upload: Upload) -> None:
        self._driver, self._secure, self._upload = driver, secure, upload
        self._held: dict[tuple[str, str], _Held] = {}
        self._lock = Lock()

    def hold(self, key: tuple[str, str], make: Callable[[], Array]) -> int:
        """The address of a constant, which stays until it is let go as often as it was held.

        Args:
            key: Its model's identity and its own name.
            make: Gives it if it is not there.

        Raises:
            OutOfMemoryError: If the GPU has no room.
        """
        with self._lock:
            # Made under the lock: two programs must not bring the same constant twice.
            held = self._held.get(key)
            if held is None:
                array = np.ascontiguousarray(make())
                # The driver refuses to allocate 0 bytes.
                address = self._secure(partial(self._driver.allocate, max(1, array.nbytes)))
                try:
                    self._upload(address, array)
                except BaseException:
                    # Of a lost GPU nothing can be freed, and trying would hide this error.
                    if self._driver.lost is None:
                        self._driver.free(address)
                    raise
                held = self._held[key] = _Held(address, 0)
            held.users += 1
            return held.address

    def let_go(self, key: tuple[str, str]) -> bool:
        """Give one hold up, after the last use; False if somebody is about to take one.

        A finalizer may ask, on the very thread.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            held = self._held[key]
            held.users -= 1
            if not held.users:
                del self._held[key]
                self._driver.free(held.address)
        finally:
            self._lock.release()
        return True

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._held)
