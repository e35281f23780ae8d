"""A model from a bundle: what was built runs, and nothing else can be made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.bundlefile import BundleHead, is_bundle, open_bundle
from saccade.devices import DEVICES, device_named
from saccade.errors import ModelError, OptionError
from saccade.model import Model
from saccade.options import Options, usable_path
from saccade.signature import shape_text
from saccade.version import VERSION

if TYPE_CHECKING:
    from saccade.engine import Engine
    from saccade.plan import Plan

__all__ = ["bundle_at", "bundled_model"]

# A default cannot be told from an option that was not given.
_DEFAULTS = {"device": "cpu", "precision": "fp32", "threads": None}
_WITHOUT_MEANING = ("cache", "limits")
"""Options that change nothing where nothing is compiled or kept."""


def bundle_at(source: object) -> Path | None:
    """The path of a bundle, if that is what a source is."""
    path = usable_path(source)
    return path if path is not None and is_bundle(path) else None


def bundled_model(path: Path, **given: Any) -> Model:  # noqa: ANN401 - checked by `Options`
    """The model in a bundle.

    Args:
        path: The bundle.
        **given: What the user gave to `saccade.compile`; a default means the bundle's own.

    Raises:
        ModelError: If it is damaged, or of another version of Saccade.
        OptionError: If an option makes no sense, or is not what the bundle was built with.
    """
    file = open_bundle(path)
    head = file.head
    # Plans and code are laid out as one version has them.
    if head.saccade != VERSION:
        raise ModelError(f"{path}: built by Saccade {head.saccade}, this is {VERSION}: build again")
    built = {name: getattr(head, name) for name in _DEFAULTS}
    for name, value in built.items():
        if given[name] not in (_DEFAULTS[name], value):
            raise OptionError(f"{path}: built for {name}={value!r}, not {given[name]!r}")
    if head.device not in DEVICES:
        raise ModelError(f"{path}: built for device {head.device!r}, which there is not")
    options = Options.make(**(given | built))
    # What is left steers compilation, and would be without effect.
    for option in fields(Options):
        name, value = option.name, getattr(options, option.name)
        if option.init and name not in (*built, *_WITHOUT_MEANING) and value != option.default:
            if name == "shapes":
                raise _other_sizes(path, head)
            raise OptionError(
                f"{path}: a bundle runs as it was built: {name}={value!r} is for what builds it"
            )
    chosen = device_named(head.device)
    # In place of an engine: whoever needs one asks for what no bundle holds.
    return _BundledModel(_refusal(path, head), chosen.arrays, chosen.bundled(file), options)


class _BundledModel(Model):
    """A model whose plans are those that were built."""

    def plan(self, *args: object, **shapes: object) -> Plan:
        """See the base class.

        Raises:
            OptionError: If it was not built for these shapes.
        """
        named = self._named(args, self._with_held(args, shapes))
        return self._program(self._shapes(named)).plan


def _refusal(path: Path, head: BundleHead) -> Callable[[], Engine]:
    def refuse() -> Engine:
        raise _other_sizes(path, head)

    return refuse


def _other_sizes(path: Path, head: BundleHead) -> OptionError:
    return OptionError(
        f"{path} holds programs for {_shapes(head)} alone, and nothing to make others of: "
        "run it at these sizes, or build it again with more of them (saccade build --shape)"
    )


def _shapes(head: BundleHead) -> str:
    names = [info.name for info in head.signature.inputs]
    return "; ".join(
        ", ".join(f"{n}={shape_text(s)}" for n, s in zip(names, shapes, strict=True))
        for shapes in head.shapes
    )
