"""The reference backend."""

from saccade.runtime.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
