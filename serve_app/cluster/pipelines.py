"""Pipeline check: whether diffusers' pipelines take what endpoints send them, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deployments.contract.capabilities import pipeline_name, runs_natively
from deployments.contract.model import DIFFUSERS, DIFFUSION, GENERIC_ONLY, NATIVE_ONLY, SIMULATED, ModelConfig
from deployments.contract.pipelines import find_pipeline, takes_several_images
from serve_app.cluster.finding import Finding, fine, refusal, warning
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.schemas.custom import FORMS

_WHAT: Final = "pipelines"
_WHERE: Final = "settings"


def check_pipelines(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Of models whose pipeline is known here: by its name in the settings, or by a checkpoint on this machine."""
    good = False
    for name, model in catalog.models.items():
        config = model.config(settings.model(name))
        yield from _check_settings(name, config)
        custom = any(each.request in FORMS and name in each.models for each in catalog.endpoints.values())
        if not (custom or config.pipeline or config.pipeline_kwargs):
            continue
        if (kind := pipeline_name(config)) is None:
            continue
        if (pipeline := find_pipeline(kind)) is None:
            if config.pipeline is not None:
                yield refusal(_WHAT, _WHERE, f"models.{name}.pipeline: diffusers has no {kind}", "a class of it")
            continue
        if strange := sorted(config.pipeline_kwargs.keys() - pipeline.parameters.keys()):
            message = f"models.{name}.pipeline_kwargs: {'; '.join(f'{kind} takes no {each}' for each in strange)}"
            yield refusal(_WHAT, _WHERE, message, f"some of {', '.join(sorted(pipeline.parameters))}")
            continue
        problems = list[str]()
        for path, endpoint in catalog.endpoints.items():
            if name not in endpoint.models or endpoint.request not in FORMS:
                continue
            if (problem := pipeline.problem(endpoint.request, config.pipeline_kwargs)) is not None:
                others = f"another request ({', '.join(pipeline.forms)}), or " if pipeline.forms else ""
                problems.append(f"endpoints.{path}: {kind} of models.{name} can't do {endpoint.request}: {problem}")
                yield refusal(_WHAT, _WHERE, problems[-1], f"{others}another pipeline for the model")
            fields = endpoint.fields
            if "max_images" in fields.model_fields_set and fields.max_images > 1 and not takes_several_images(kind):
                problems.append(f"endpoints.{path}.fields.max_images: {kind} of models.{name} takes one image")
                yield refusal(_WHAT, _WHERE, problems[-1], "1")
        good = good or not problems
    if good:
        yield fine(_WHAT, _WHERE, "they take what endpoints send")


def _check_settings(name: str, config: ModelConfig) -> Iterator[Finding]:
    """Yields what settings the way that the model is run does not have."""
    if conflict := config.conflict():
        yield refusal(_WHAT, _WHERE, f"models.{name}.{conflict}", "another value, or another checkpoint")
    if not isinstance(config.dtype, str) and runs_natively(config):
        message = f"models.{name}.dtype: a native family has one for all components"
        yield refusal(_WHAT, _WHERE, message, "auto, float32, bfloat16 or float16, or backend: diffusers")
    is_diffusion = config.backend in (DIFFUSION, DIFFUSERS) and not config.checkpoint.startswith(SIMULATED)
    if is_diffusion and config.is_generic and (native := config.differing(NATIVE_ONLY)):
        message = f"models.{name}: {', '.join(native)} have no effect, as diffusers' own pipeline runs it"
        remedy = f"leave them out, or for the native family {', '.join(config.differing(GENERIC_ONLY)) or 'backend'}"
        yield warning(_WHAT, _WHERE, message, remedy)
