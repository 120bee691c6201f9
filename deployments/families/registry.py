"""Which family a checkpoint belongs to."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path

from deployments.checkpoint_files import CheckpointError
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family

FAMILIES = {
    "FluxPipeline": "deployments.families.flux1:Flux1",
    "FluxKontextPipeline": "deployments.families.flux1:Flux1",
    "FluxFillPipeline": "deployments.families.flux1:Flux1",
    "FluxControlPipeline": "deployments.families.flux1:Flux1",
    "Flux2Pipeline": "deployments.families.flux2:Flux2",
    "Flux2KleinPipeline": "deployments.families.flux2:Flux2",
    "Flux3DistilledModularPipeline": "deployments.families.flux3:Flux3",
    "LTX2Pipeline": "deployments.families.ltx2:Ltx2",
    "LTX2ConditionPipeline": "deployments.families.ltx2:Ltx2",
}
"""Pipeline class, as a checkpoint's index names it, to family. By name: importing every pipeline takes seconds."""

_INDEXES = ("modular_model_index.json", "model_index.json")


def family_of(folder: Path) -> type[Family] | type[ClipFamily]:
    """The family of the checkpoint in `folder`, by the pipeline class in its index.

    Raises CheckpointError when there is no index, or none that any family here can run.
    """
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is None:
        raise CheckpointError(f"{folder} is no checkpoint: it has neither {_INDEXES[0]} nor {_INDEXES[1]}")
    pipeline = str(json.loads(index.read_text()).get("_class_name"))
    if pipeline not in FAMILIES:
        raise CheckpointError(f"{folder} is a {pipeline}; the families here run {', '.join(sorted(FAMILIES))}")
    family: type[Family] | type[ClipFamily] = pkgutil.resolve_name(FAMILIES[pipeline])
    return family
