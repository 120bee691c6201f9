"""Which family a checkpoint belongs to."""

from __future__ import annotations

import pkgutil
from pathlib import Path

from deployments.checkpoint_files import CheckpointError, index_of
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family

FAMILIES = {
    "FluxPipeline": "deployments.families.flux1:Flux1",
    "FluxKontextPipeline": "deployments.families.flux1:Flux1",
    "FluxFillPipeline": "deployments.families.flux1:Flux1",
    "FluxControlPipeline": "deployments.families.flux1:Flux1",
    "Flux2Pipeline": "deployments.families.flux2:Flux2",
    "Flux2KleinPipeline": "deployments.families.flux2:Flux2",
    "Flux2KleinKVPipeline": "deployments.families.flux2_kv:Flux2KV",
    "Flux3DistilledModularPipeline": "deployments.families.flux3:Flux3",
    "LTX2Pipeline": "deployments.families.ltx2:Ltx2",
    "LTX2ConditionPipeline": "deployments.families.ltx2:Ltx2",
}
"""Pipeline class, as a checkpoint's index names it, to family. By name: importing every pipeline takes seconds."""


def family_of(folder: Path) -> type[Family] | type[ClipFamily]:
    """The family of the checkpoint in `folder`, by the pipeline class in its index.

    Raises CheckpointError when there is no index, or none that any family here can run.
    """
    pipeline = str(index_of(folder).get("_class_name"))
    if pipeline not in FAMILIES:
        raise CheckpointError(f"{folder} is a {pipeline}; the families here run {', '.join(sorted(FAMILIES))}")
    family: type[Family] | type[ClipFamily] = pkgutil.resolve_name(FAMILIES[pipeline])
    return family
