"""Weights of checkpoints: which replicas need which, and fetching them from the hub, here or onto every node."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars
from huggingface_hub.utils.logging import set_verbosity_error

from deployments.contract.checkpoint_layout import ANY_WEIGHTS, TEXT_ENCODERS, WeightsChoice, loaded_files
from deployments.contract.hub_files import (
    CheckpointKind,
    HubFiles,
    find_hub_files,
    linked_repositories,
    local_checkpoint,
)
from deployments.contract.model import ENGINE, NETWORKS, RESTORERS, SIMULATED, MattingConfig
from deployments.proxies import ENVIRONMENT, apply_proxy
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings

_TOKEN: Final = "set HF_TOKEN or HF_TOKEN_PATH where it is fetched to a token"
_CORRECT: Final = "correct it in the catalog or the settings"


class NothingThere(Exception):
    """The repository has none of the files."""


def in_words(files: HubFiles, problem: Exception) -> str:
    """The hub's own words are left out: they have addresses in them, which may be signed."""
    match problem:
        case GatedRepoError():
            page = f"{constants.ENDPOINT}/{files.repository}"
            return f"it is gated: accept its terms at {page}, and {_TOKEN} of that account"
        case RepositoryNotFoundError():
            return f"the hub has none of this name, or not for everyone: {_CORRECT}, or {_TOKEN} that may read it"
        case RevisionNotFoundError():
            return f"it has no revision {files.revision}: {_CORRECT}"
        case NothingThere():
            return f"it has no files like {', '.join(files.patterns)}: {_CORRECT}"
        case json.JSONDecodeError():
            return "its index is no JSON: it is broken on the hub, or here"
        case HFValidationError():
            return f"that is no name of a repository on the hub: {_CORRECT}"
        case LocalEntryNotFoundError() if constants.is_offline_mode():
            return "not here, and HF_HUB_OFFLINE is set for this command: fetch with HF_HUB_OFFLINE=0"
        case LocalEntryNotFoundError():
            return f"{constants.ENDPOINT} did not give it ({_cause(problem)}): is it in reach from there? Fetch again"
        case HfHubHTTPError():
            return f"{constants.ENDPOINT} answered {problem.response.status_code}: {_TOKEN} that may read it, or wait"
        case OSError(errno=errno.ENOSPC):
            return f"there is no room in {constants.HF_HUB_CACHE}"
        case OSError(strerror=str(words)):
            return f"it can't be kept in {constants.HF_HUB_CACHE}: {words}"
    return f"it broke off ({type(problem).__name__}): fetch again, files that came whole are kept"


def _cause(problem: Exception) -> str:
    cause = problem.__cause__
    return type(problem if cause is None else cause).__name__


_LISTS: Final = ("lexicon", "known-images")
"""Classifiers that read a file here, and no model."""
_ACCELERATOR: Final = 0.001
"""What Ray asks of a node's `accelerator_type:` resource."""


@dataclass(frozen=True, slots=True)
class RequiredCheckpoint:
    """One checkpoint that replicas of a deployment load."""

    who: str
    """The queue, or what else loads it."""
    checkpoint: str
    revision: str | None = None
    kind: CheckpointKind = CheckpointKind.PIPELINE
    gpus: float = 0.0
    """Of a replica, where the checkpoint is what fills its share."""
    actor: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Ray's options of a replica, which say where it can run."""
    weights: WeightsChoice = ANY_WEIGHTS
    infers_configs: bool = False
    """True for weights in one file whose configuration diffusers asks the hub for."""

    def files(self) -> HubFiles | None:
        """On the hub; None where it lies on the machine that is asked."""
        return find_hub_files(self.kind, self.checkpoint, self.revision, self.weights)

    def local_files(self, place: Path) -> Iterator[Path]:
        """Returns those of the files in `place` that are loaded."""
        if self.kind is CheckpointKind.PIPELINE and place.is_dir():
            yield from loaded_files(place, self.weights)
        else:
            yield from [place] if place.is_file() else (file for file in place.rglob("*") if file.is_file())

    def place(self) -> Path | None:
        """Where it is on this machine; None where its files are the hub's, and not all here."""
        files = self.files()
        if files is None:
            return local_checkpoint(self.kind, self.checkpoint)
        folder = files.cached_folder()
        try:
            return folder if folder and all(each.cached_folder() for each in linked_repositories(folder)) else None
        except ValueError:  # no replica could read it either
            return None

    def fits(self, resources: Mapping[str, float]) -> bool:
        """Whether a replica could run on a node that has these in all, as Ray names them."""
        amounts = {
            "CPU": self.actor.get("num_cpus"),
            "GPU": self.actor.get("num_gpus"),
            "memory": self.actor.get("memory"),
        }
        amounts |= self.actor.get("resources") or {}
        if accelerator := self.actor.get("accelerator_type"):
            amounts[f"accelerator_type:{accelerator}"] = _ACCELERATOR
        return all(resources.get(name, 0) >= (amount or 0) for name, amount in amounts.items())


def required_checkpoints(settings: Settings, catalog: Catalog) -> tuple[RequiredCheckpoint, ...]:
    """In the order of the catalog."""
    return (
        *_models(settings, catalog),
        *_encoders(settings),
        *_rewriter(settings, catalog),
        *_classifiers(settings, catalog),
    )


def _models(settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    finetunable = {each.model for each in catalog.served.values() if each.takes_finetunes}
    for name, model in catalog.models.items():
        chosen = settings.model(name)
        config = model.config(chosen)
        checkpoint, revision, diffusion = config.checkpoint, config.revision, config.backend not in RESTORERS
        if checkpoint.startswith(SIMULATED) or config.backend == ENGINE:
            continue
        if diffusion or config.backend in NETWORKS:
            kind = CheckpointKind.PIPELINE if diffusion and not config.is_single_file else CheckpointKind.NETWORK
            gpus = float(chosen.ray_actor_options.get("num_gpus") or 0)
            infers_configs = config.is_single_file and config.config_from is None
            actor, weights = chosen.ray_actor_options, config.weights
            yield RequiredCheckpoint(name, checkpoint, revision, kind, gpus, actor, weights, infers_configs)
        if config.config_from:
            who = f"configuration of {name}"
            yield RequiredCheckpoint(
                who, config.config_from, kind=CheckpointKind.CONFIGS, actor=chosen.ray_actor_options
            )
        for part, file in config.quantization.gguf_files.items() if config.quantization else ():
            who = f"{part} of {name}"
            yield RequiredCheckpoint(who, file, kind=CheckpointKind.NETWORK, actor=chosen.ray_actor_options)
        if config.redux and not config.is_generic:
            yield RequiredCheckpoint(f"image prompts of {name}", config.redux, actor=chosen.ray_actor_options)
        if diffusion:
            yield from _matting(name, config.matting, chosen.ray_actor_options)
        if name in finetunable:
            who, where = f"uploads for {name}", settings.service.ray_actor_options
            base, base_revision = (config.config_from, None) if config.config_from else (checkpoint, revision)
            yield RequiredCheckpoint(who, base, base_revision, CheckpointKind.CONFIGURATION, actor=where)


def _matting(name: str, chosen: MattingConfig, actor: Mapping[str, Any]) -> Iterator[RequiredCheckpoint]:
    if chosen.backend in NETWORKS and chosen.checkpoint:
        yield RequiredCheckpoint(
            f"matting of {name}", chosen.checkpoint, chosen.revision, CheckpointKind.NETWORK, actor=actor
        )


def _encoders(settings: Settings) -> Iterator[RequiredCheckpoint]:
    for name, chosen in settings.text_encoders.items():
        who, actor = f"text encoder {name}", chosen.ray_actor_options
        yield RequiredCheckpoint(who, chosen.checkpoint, chosen.revision, actor=actor, weights=TEXT_ENCODERS)


def _rewriter(settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    model, chosen = catalog.rewriter, settings.rewriter
    if model is not None and chosen.enabled:
        checkpoint, revision = chosen.checkpoint or model.checkpoint, None if chosen.checkpoint else model.revision
        gpus = float(chosen.ray_actor_options.get("num_gpus") or 0)
        yield RequiredCheckpoint(
            "rewriter", checkpoint, revision, CheckpointKind.PRETRAINED, gpus, chosen.ray_actor_options
        )


def _classifiers(settings: Settings, catalog: Catalog) -> Iterator[RequiredCheckpoint]:
    defaults, chosen = catalog.moderation, settings.moderation
    if defaults is None or not chosen.enabled:
        return
    for classifier in (*(chosen.text or defaults.text), *(chosen.images or defaults.images)):
        if classifier.checkpoint:
            kind = CheckpointKind.LIST if classifier.backend in _LISTS else CheckpointKind.PRETRAINED
            yield RequiredCheckpoint(
                f"classifier {classifier.backend}",
                classifier.checkpoint,
                classifier.revision,
                kind,
                actor=chosen.ray_actor_options,
            )


_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Nodes have these so that replicas don't ask the hub. Whoever fetches wants to: this command's environment counts."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What came of one repository."""

    checkpoint: str
    problem: str = ""
    """In a line, with what to do about it; empty for one that is here now."""
    was_here: bool = False


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """How one checkpoint is on this machine."""

    is_here: bool
    size: int | None
    """Bytes, as far as they are known."""


def fetch_weights(checkpoints: Sequence[RequiredCheckpoint], proxy: str = ENVIRONMENT) -> Iterator[FetchResult]:
    """Onto this machine, one repository after the other. The hub's own bars show how far it is, on a terminal.

    Processes that share a folder wait for each other's files by the hub's locks. `proxy` is as in `apply_proxy`.
    """
    apply_proxy(proxy)
    set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    done, waiting = set[HubFiles](), hub_files(checkpoints)
    while waiting:
        files = waiting.pop(0)
        if files in done:
            continue
        done.add(files)
        try:
            was_here = files.cached_folder() is not None
            files.clear()
            folder = files.fetch()
            if files.cached_folder() is None:
                raise NothingThere
            waiting += linked_repositories(folder)
        except Exception as problem:  # whatever it is, the others are fetched
            yield FetchResult(files.repository, in_words(files, problem))
        else:
            yield FetchResult(files.repository, was_here=was_here)


def find_weights(checkpoints: Sequence[RequiredCheckpoint]) -> list[LocalCheckpoint]:
    """On this machine, in their order. The hub is not asked."""
    return [_locate(each) for each in checkpoints]


def hub_files(checkpoints: Sequence[RequiredCheckpoint]) -> list[HubFiles]:
    """Of the hub, for all of it on one machine: a pipeline's configuration is part of the pipeline."""
    pipelines = {(each.checkpoint, each.revision) for each in checkpoints if each.kind is CheckpointKind.PIPELINE}
    files_by_checkpoint = (
        each.files()
        for each in checkpoints
        if each.kind is not CheckpointKind.CONFIGURATION or (each.checkpoint, each.revision) not in pipelines
    )
    return list(dict.fromkeys(files for files in files_by_checkpoint if files))


class Nodes:
    """The nodes of the cluster that this process has joined which may run replicas that load any of it."""

    def __init__(self, checkpoints: Sequence[RequiredCheckpoint]) -> None:
        import ray

        self.checkpoints: Mapping[str, tuple[RequiredCheckpoint, ...]] = {}
        """By node, what replicas there may load."""
        self._ids: dict[str, str] = {}
        for each in ray.nodes():
            here = tuple(one for one in checkpoints if one.fits(each["Resources"]))
            if each["Alive"] and here:
                where = f"node {each['NodeManagerAddress']}"
                self.checkpoints = {**self.checkpoints, where: here}
                self._ids[where] = each["NodeID"]

    def fetch(self, proxy: str) -> Iterator[tuple[str, FetchResult]]:
        """On all of them at a time, with each node's own HF_HOME and token: where, and what came of one repository."""
        import ray
        from ray.exceptions import RayError

        waiting: dict[Any, str] = {
            self._run(fetch_weights, where, proxy, num_returns="streaming"): where for where in self._ids
        }
        while waiting:
            ready: Any = ray.wait(list(waiting))[0]
            [stream] = ready
            try:
                result: Any = ray.get(next(stream))
                yield waiting[stream], result
            except StopIteration:
                del waiting[stream]
            except RayError as problem:
                yield waiting.pop(stream), FetchResult("", f"it does not answer: {_last_line(problem)}")

    def look(self) -> Mapping[str, list[LocalCheckpoint]]:
        """By node, how what it may load is there. Raises RayError where one does not answer."""
        import ray

        calls = {where: self._run(find_weights, where) for where in self._ids}
        return {where: ray.get(answer) for where, answer in calls.items()}

    def _run(self, function: Any, where: str, *args: Any, **options: Any) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            ray.remote(num_cpus=0)(function)
            .options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._ids[where], soft=False),
                runtime_env={"env_vars": {name: os.environ.get(name, "0") for name in _OFFLINE}},
                **options,
            )
            .remote(self.checkpoints[where], *args)
        )


def _last_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[-1]


def _locate(checkpoint: RequiredCheckpoint) -> LocalCheckpoint:
    place, files = checkpoint.place(), checkpoint.files()
    if files is not None:
        return LocalCheckpoint(place is not None, files.size())
    if place is None or not place.exists():
        return LocalCheckpoint(False, None)
    return LocalCheckpoint(True, sum(file.stat().st_size for file in checkpoint.local_files(place)))
