"""The reference backend."""

from saccade.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
