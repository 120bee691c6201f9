"""Checks of diffusers' pipelines: they accept the requests of their endpoints. Nothing is loaded for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deployments.contract.capabilities import pipeline_name, runs_natively
from deployments.contract.model import DIFFUSERS, DIFFUSION, GENERIC_ONLY, NATIVE_ONLY, SIMULATED, ModelConfig
from deployments.contract.pipelines import PipelineClass, find_pipeline, takes_several_images
from serve_app.cluster.checks.result import CheckResult
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.schemas.custom import FORMS

_WHAT: Final = "pipelines"


def check_pipelines(settings: Settings, catalog: Catalog) -> Iterator[CheckResult]:
    """Checks models whose pipeline the settings name, or whose checkpoint is on this machine."""
    has_fitting = False
    for name, model in catalog.models.items():
        config = model.config(settings.model(name))
        yield from _check_settings(name, config)
        has_endpoint = any(each.request in FORMS and name in each.models for each in catalog.endpoints.values())
        if not (has_endpoint or config.pipeline or config.pipeline_kwargs):
            continue
        if (class_name := pipeline_name(config)) is None:
            continue
        if (pipeline := find_pipeline(class_name)) is None:
            if config.pipeline is not None:
                message = f"models.{name}.pipeline: diffusers has no {class_name}"
                yield CheckResult.refused(_WHAT, message, "name a pipeline class of diffusers")
            continue
        if unknown := sorted(config.pipeline_kwargs.keys() - pipeline.parameters.keys()):
            texts = "; ".join(f"{class_name} takes no {each}" for each in unknown)
            remedy = f"use some of {', '.join(sorted(pipeline.parameters))}"
            yield CheckResult.refused(_WHAT, f"models.{name}.pipeline_kwargs: {texts}", remedy)
            continue
        refused = list(_check_endpoints(name, class_name, pipeline, config, catalog))
        yield from refused
        has_fitting = has_fitting or not refused
    if has_fitting:
        yield CheckResult.fine(_WHAT, "they accept the requests of their endpoints")


def _check_endpoints(
    name: str, class_name: str, pipeline: PipelineClass, config: ModelConfig, catalog: Catalog
) -> Iterator[CheckResult]:
    for path, endpoint in catalog.endpoints.items():
        if name not in endpoint.models or endpoint.request not in FORMS:
            continue
        if (problem := pipeline.problem(endpoint.request, config.pipeline_kwargs)) is not None:
            others = f"another request ({', '.join(pipeline.forms)}), or " if pipeline.forms else ""
            message = f"endpoints.{path}: {class_name} of models.{name} can't do {endpoint.request}: {problem}"
            yield CheckResult.refused(_WHAT, message, f"use {others}another pipeline for the model")
        fields = endpoint.fields
        if "max_images" in fields.model_fields_set and fields.max_images > 1 and not takes_several_images(class_name):
            message = f"endpoints.{path}.fields.max_images: {class_name} of models.{name} takes one image"
            yield CheckResult.refused(_WHAT, message, "set it to 1")


def _check_settings(name: str, config: ModelConfig) -> Iterator[CheckResult]:
    """Finds settings that the model's backend does not have."""
    if conflict := config.conflict():
        yield CheckResult.refused(_WHAT, f"models.{name}.{conflict}", "use another value, or another checkpoint")
    if not isinstance(config.dtype, str) and runs_natively(config):
        message = f"models.{name}.dtype: a native family has one for all components"
        yield CheckResult.refused(_WHAT, message, "use auto, float32, bfloat16 or float16, or backend: diffusers")
    is_diffusion = config.backend in (DIFFUSION, DIFFUSERS) and not config.checkpoint.startswith(SIMULATED)
    if is_diffusion and config.is_generic and (native := config.differing(NATIVE_ONLY)):
        message = f"models.{name}: {', '.join(native)} have no effect, because diffusers' pipeline runs it"
        generic = ", ".join(config.differing(GENERIC_ONLY)) or "backend"
        yield CheckResult.warning(_WHAT, message, f"leave them out, or for the native family {generic}")
