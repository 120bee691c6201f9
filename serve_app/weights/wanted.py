"""What the replicas of a profile load, checkpoint by checkpoint: what is looked for, and fetched, before they start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deployments.contract.checkpoint import SIMULATED
from deployments.contract.hub_files import HubFiles, Kind, elsewhere, files_of, place_here
from deployments.contract.model import DIFFUSION, NETWORKS
from serve_app.config.catalog import Catalog
from serve_app.config.models import MattingSettings
from serve_app.config.settings import Settings

_LISTS: Final = ("lexicon", "known-pictures")
"""Judges that read a file here, and no model."""
_ACCELERATOR: Final = 0.001
"""What Ray asks of a node's `accelerator_type:` resource."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One checkpoint that replicas of a deployment load."""

    who: str
    """The lane, or what else loads it."""
    checkpoint: str
    revision: str | None = None
    kind: Kind = Kind.PIPELINE
    gpus: float = 0.0
    """Of a replica, where the checkpoint is what fills its share."""
    actor: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Ray's options of a replica, which say where it can run."""

    def files(self) -> HubFiles | None:
        """On the hub; None where it lies on the machine that is asked."""
        return files_of(self.kind, self.checkpoint, self.revision)

    def place(self) -> Path | None:
        """Where it is on this machine; None where its files are the hub's, and not all here."""
        files = self.files()
        if files is None:
            return place_here(self.kind, self.checkpoint)
        folder = files.here()
        try:
            return folder if folder and all(each.here() for each in elsewhere(folder)) else None
        except ValueError:  # no replica could read it either
            return None

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Whether a replica could run on a node that has these in all, as Ray names them."""
        asked = {
            "CPU": self.actor.get("num_cpus"),
            "GPU": self.actor.get("num_gpus"),
            "memory": self.actor.get("memory"),
        }
        asked |= self.actor.get("resources") or {}
        if accelerator := self.actor.get("accelerator_type"):
            asked[f"accelerator_type:{accelerator}"] = _ACCELERATOR
        return all(resources.get(name, 0) >= (amount or 0) for name, amount in asked.items())


def wanted(settings: Settings, catalog: Catalog) -> tuple[Wanted, ...]:
    """In the order of the catalog."""
    return (
        *_models(settings, catalog),
        *_encoders(settings),
        *_rewriter(settings, catalog),
        *_judges(settings, catalog),
    )


def _models(settings: Settings, catalog: Catalog) -> Iterator[Wanted]:
    finetuned = {each.model for each in catalog.served.values() if each.takes_finetunes}
    for name, model in catalog.models.items():
        chosen = settings.model(name)
        backend = chosen.backend or model.backend
        checkpoint = chosen.checkpoint or model.checkpoint
        revision = None if chosen.checkpoint else model.revision
        if checkpoint.startswith(SIMULATED):
            continue
        if backend == DIFFUSION or backend in NETWORKS:
            kind = Kind.PIPELINE if backend == DIFFUSION else Kind.NETWORK
            gpus = float(chosen.actor.get("num_gpus") or 0)
            yield Wanted(name, checkpoint, revision, kind, gpus, chosen.actor)
        if model.redux and not chosen.checkpoint:
            yield Wanted(f"image prompts of {name}", model.redux, actor=chosen.actor)
        if backend == DIFFUSION:
            yield from _matting(name, chosen.matting or model.matting, chosen.actor)
        if name in finetuned:
            who, where = f"uploads for {name}", settings.service.actor
            yield Wanted(who, checkpoint, revision, Kind.CONFIGURATION, actor=where)


def _matting(name: str, chosen: MattingSettings, actor: Mapping[str, Any]) -> Iterator[Wanted]:
    if chosen.backend in NETWORKS and chosen.checkpoint:
        yield Wanted(f"matting of {name}", chosen.checkpoint, chosen.revision, Kind.NETWORK, actor=actor)


def _encoders(settings: Settings) -> Iterator[Wanted]:
    for name, chosen in settings.text_encoders.items():
        yield Wanted(f"text encoder {name}", chosen.checkpoint, chosen.revision, actor=chosen.actor)


def _rewriter(settings: Settings, catalog: Catalog) -> Iterator[Wanted]:
    model, chosen = catalog.rewriter, settings.rewriter
    if model is not None and chosen.enabled:
        checkpoint, revision = chosen.checkpoint or model.checkpoint, None if chosen.checkpoint else model.revision
        gpus = float(chosen.actor.get("num_gpus") or 0)
        yield Wanted("rewriter", checkpoint, revision, Kind.PRETRAINED, gpus, chosen.actor)


def _judges(settings: Settings, catalog: Catalog) -> Iterator[Wanted]:
    known, chosen = catalog.moderation, settings.moderation
    if known is None or not chosen.enabled:
        return
    for judge in (*(chosen.text or known.text), *(chosen.pictures or known.pictures)):
        if judge.checkpoint:
            kind = Kind.LIST if judge.backend in _LISTS else Kind.PRETRAINED
            yield Wanted(f"judge {judge.backend}", judge.checkpoint, judge.revision, kind, actor=chosen.actor)
