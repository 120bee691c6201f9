"""Pipeline check: whether diffusers' pipelines take what endpoints send them, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deployments.contract.capabilities import pipeline_class, pipeline_parameters
from serve_app.cluster.finding import Finding, fine, refusal
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.schemas.custom import FORMS

_WHAT: Final = "pipelines"
_WHERE: Final = "settings"
_NEEDS: Final = {
    "text-to-image": ("prompt",),
    "edit": ("prompt", "image"),
    "inpaint": ("prompt", "image", "mask_image"),
    "text-to-video": ("prompt", "num_frames"),
    "image-to-video": ("prompt", "image", "num_frames"),
}
"""Parameters of a pipeline that each custom form needs."""


def check_pipelines(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Of models whose pipeline is known here: by its name in the settings, or by a checkpoint on this machine."""
    good = False
    for name, model in catalog.models.items():
        config = model.config(settings.model(name))
        custom = any(each.request in FORMS and name in each.models for each in catalog.endpoints.values())
        if not (custom or config.pipeline or config.pipeline_kwargs):
            continue
        parameters: frozenset[str] | None = None
        if (pipeline := pipeline_class(config)) is not None:
            parameters = pipeline_parameters(pipeline)
            if parameters is None and config.pipeline is not None:
                yield refusal(_WHAT, _WHERE, f"models.{name}.pipeline: diffusers has no {pipeline}", "a class of it")
        if pipeline is None or parameters is None:
            continue
        problems = [f"{pipeline} takes no {each}" for each in sorted(config.pipeline_kwargs.keys() - parameters)]
        if problems:
            known = ", ".join(sorted(parameters))
            yield refusal(_WHAT, _WHERE, f"models.{name}.pipeline_kwargs: {'; '.join(problems)}", f"some of {known}")
            continue
        for path, endpoint in catalog.endpoints.items():
            missing = set(_NEEDS.get(endpoint.request, ())) - parameters if name in endpoint.models else set[str]()
            if missing:
                message = f"endpoints.{path}: {pipeline} of models.{name} takes no {', '.join(sorted(missing))}"
                yield refusal(_WHAT, _WHERE, message, "another request, or another pipeline for the model")
                problems.append(message)
        good = good or not problems
    if good:
        yield fine(_WHAT, _WHERE, "they take what endpoints send")
