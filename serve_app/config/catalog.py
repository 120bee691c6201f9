"""The catalog: endpoints, their prices, and the models that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import Field, PrivateAttr, field_validator, model_validator

from deployments.contract.capabilities import takes_one_image, unsupported_fields
from deployments.contract.model import REDUX, RESTORERS, ModelConfig, local_path
from deployments.contract.strict_settings import StrictSettings
from deployments.contract.workflow import Workflow, WorkflowError
from deployments.contract.yaml_files import find_line, read_yaml
from serve_app.config.model_settings import MemorySettings, ModelSettings, RewriterSettings
from serve_app.config.prices import EndpointPrice
from serve_app.config.problems import located
from serve_app.config.settings import Settings
from serve_app.moderation.settings import Category, Level, ModerationCatalog
from serve_app.schemas import REQUESTS, GenerationRequest
from serve_app.schemas.custom import FORMS, FormSettings, custom_request
from serve_app.schemas.defaults import ModelDefaults
from serve_app.schemas.tolerant import with_finetune
from serve_app.schemas.workflow import WORKFLOW, BoundInput, WorkflowInput, bind, workflow_request


class Safety(StrictSettings):
    default: int = Field(default=2, ge=0)
    """Tolerance if the request names none."""
    approved: int = Field(ge=0)
    """Highest tolerance that requests may name."""
    ceilings: dict[Category, Level] = {}
    """Highest tolerance of a category on this endpoint."""


class Deprecation(StrictSettings):
    since: date
    sunset: date | None = None
    """Day on which it stops answering; None if not decided."""
    successors: tuple[str, ...] = ()
    """Names of the endpoints to use instead."""

    @model_validator(mode="after")
    def _in_order(self) -> Deprecation:
        if self.sunset is not None and self.sunset < self.since:
            raise ValueError("sunset must not be before since")
        return self


class FinetunedVariant(StrictSettings):
    """Settings of `<name>-finetuned` that differ from the base endpoint."""

    request: str | None = None
    deprecated: Deprecation | None = None
    regions: tuple[str, ...] | None = None


class OtherName(StrictSettings):
    """A further name of an endpoint."""

    deprecated: Deprecation | None = None


class Mode(StrictSettings):
    """A mode of an endpoint. Settings that it leaves out are the endpoint's."""

    model: str | None = None
    steps: int | None = Field(default=None, ge=1)
    guidance: float | None = None
    price: EndpointPrice | None = None


class Endpoint(StrictSettings):
    model: str
    """Model that runs its tasks."""
    request: str
    """Form of its requests: one of the service's own, or a custom one (`schemas/custom.py`)."""
    fields: FormSettings = FormSettings()
    """Ranges and defaults of a custom form."""
    inputs: dict[str, WorkflowInput] = {}
    """request: workflow: inputs of its requests, by their names."""
    _bound_inputs: tuple[BoundInput, ...] = PrivateAttr(default=())
    """The inputs with their types in the workflow."""
    price: EndpointPrice
    safety: Safety
    name: str = Field(default="", exclude=True)
    """Name in the catalog; not set in files."""
    quotes_price: bool = True
    """Include `cost`, `input_mp` and `output_mp` in the reply to a submission."""
    summary: str = ""
    instruction: str = ""
    """Text before every prompt, for endpoints with one job."""
    modes: dict[str, Mode] = {}
    """Modes by their names in requests."""
    deprecated: Deprecation | None = None
    other_names: dict[str, OtherName] = {}
    regions: tuple[str, ...] = ()
    """Regions that serve it, by their names in `service.regions`. Empty: all."""

    finetuned: FinetunedVariant | None = None
    """Variant `<name>-finetuned`, which accepts fine-tunes (LoRA) of this endpoint's model. None: no variant."""
    takes_finetunes: bool = Field(default=False, exclude=True)
    """True for such a variant; not set in files."""

    @property
    def request_type(self) -> type[GenerationRequest]:
        return with_finetune(self._form()) if self.takes_finetunes else self._form()

    def _form(self) -> type[GenerationRequest]:
        if self.request == WORKFLOW:
            return workflow_request(self.name, self._bound_inputs)
        if self.request in REQUESTS:
            return REQUESTS[self.request]
        return custom_request(self.request, self.name, self.fields)

    @property
    def highest_tolerance(self) -> int:
        """Highest safety tolerance that requests of this form can name."""
        return self.request_type.highest_tolerance()

    @property
    def models(self) -> set[str]:
        """Models of all its modes."""
        return {self.model} | {mode.model for mode in self.modes.values() if mode.model is not None}

    @property
    def modes_or_default(self) -> dict[str, Mode]:
        """Its modes; an endpoint without modes has one under the empty name."""
        return self.modes or {"": Mode()}

    def get_price(self, mode: str) -> EndpointPrice:
        own = self.modes[mode].price if mode else None
        return own or self.price

    def finetuned_variant(self) -> Endpoint | None:
        if self.finetuned is None:
            return None
        own = self.finetuned
        changes = {
            "takes_finetunes": True,
            "finetuned": None,
            "other_names": {},
            "request": own.request or self.request,
            "deprecated": own.deprecated,
            "regions": self.regions if own.regions is None else own.regions,
            "summary": f"{self.summary} · with a tuned model",
        }
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _check_request(self) -> Endpoint:
        own = self.finetuned.request if self.finetuned else None
        forms = REQUESTS.keys() | FORMS.keys() | {WORKFLOW}
        if self.request not in forms or (own is not None and own not in forms):
            raise ValueError(f"request must be one of {sorted(forms)}")
        if self.request not in FORMS and "fields" in self.model_fields_set:
            raise ValueError(f"fields: only for custom requests, one of {sorted(FORMS)}")
        if self.inputs and self.request != WORKFLOW:
            raise ValueError(f"inputs: only for request: {WORKFLOW}")
        if self.safety.approved > self.highest_tolerance:
            raise ValueError(f"safety.approved must be at most {self.highest_tolerance}, which requests can name")
        form = self._form()
        if set(form.modes) != set(self.modes):
            raise ValueError(f"modes must be {sorted(form.modes)}, between which requests of this form choose")
        places_finetunes = any(each.role == "finetune" for each in self.inputs.values())
        if self.finetuned is not None and not (places_finetunes if self.request == WORKFLOW else form.finetunable):
            raise ValueError("finetuned: requests of this form take no tuned models")
        return self


T = TypeVar("T")
DefaultsByMode: TypeAlias = Mapping[str, ModelDefaults]
"""Defaults by mode; those of an endpoint without modes are under the empty name."""


class Withdrawn(Deprecation):
    """An endpoint that is not served any more."""

    advice: str = ""
    """Advice to clients if it has no successor."""


_CHECKPOINT_FIELDS: Final = frozenset(
    ("revision", "config_from", "redux", "pipeline", "pipeline_kwargs", "quantization", "preview_decoder")
)
"""Settings that describe the checkpoint. Those of the catalog don't apply to another checkpoint."""


class Model(ModelConfig):
    """A model of the catalog. Profiles may override all its settings."""

    memory: MemorySettings | None = None
    """GPU memory of the checkpoint; None if unknown or negligible."""
    steps: int | None = Field(default=None, ge=1)
    """Denoising steps if the request names none."""
    guidance: float | None = None
    """Guidance if the request names none."""

    @model_validator(mode="after")
    def _leaves_replicas_to_profiles(self) -> Model:
        if own := {"max_running", "sharing"} & self.model_fields_set:
            raise ValueError(f"{', '.join(sorted(own))}: how replicas share machines belongs in the profile")
        return self

    def config(self, profile: ModelSettings) -> ModelConfig:
        """Returns the model's configuration on this profile."""
        names = ModelConfig.model_fields
        if "engine" in profile.model_fields_set:  # an inference server has its own checkpoint and settings
            replaced = frozenset(names.keys() - {"backend", "fps"})
        else:
            replaced = _CHECKPOINT_FIELDS if "checkpoint" in profile.model_fields_set else frozenset[str]()
        own = {name: getattr(self, name) for name in self.model_fields_set & names.keys() - replaced}
        return ModelConfig(**own | profile.overrides(names))


class RewriterModel(StrictSettings):
    checkpoint: str
    """Causal language model: hub id, folder or `bundled/<name>`. Profiles may override it."""
    revision: str | None = None
    memory: MemorySettings | None = None
    instruction: str = ""
    """Instruction to a chat model for a prompt. Other models continue the prompt."""
    edit_instruction: str = ""
    """Instruction to a chat model for the prompt of an edit. Empty, or with other models: the prompt stays."""
    ratio_instruction: str = ""
    """Instruction to a chat model for the choice of an aspect ratio."""
    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.7, ge=0)

    def on_profile(self, profile: RewriterSettings) -> RewriterModel:
        """Returns the rewriter of this profile. Revision and memory of the catalog are those of its own checkpoint."""
        if not profile.checkpoint:
            return self.model_copy(update={"memory": profile.memory or self.memory})
        return self.model_copy(update={"checkpoint": profile.checkpoint, "revision": None, "memory": profile.memory})


class Catalog(StrictSettings):
    endpoints: dict[str, Endpoint]
    withdrawn: dict[str, Withdrawn] = {}
    """Withdrawn endpoints by name."""
    models: dict[str, Model]
    rewriter: RewriterModel | None = None
    moderation: ModerationCatalog | None = None
    licensed_models: tuple[str, ...] = ()
    """Models that organizations run on their own machines and report usage of."""

    @field_validator("endpoints", mode="before")
    @classmethod
    def _name_endpoints(cls, endpoints: Any) -> Any:
        if not isinstance(endpoints, dict):
            return endpoints
        return {name: each | {"name": name} if isinstance(each, dict) else each for name, each in endpoints.items()}

    @model_validator(mode="after")
    def _models_exist(self) -> Catalog:
        for name, endpoint in self.endpoints.items():
            if unknown := endpoint.models - set(self.models):
                raise ValueError(f"endpoints.{name}: there is no model {', '.join(sorted(unknown))}")
            if endpoint.request == WORKFLOW:
                self._bind(endpoint)
            steps = endpoint.request_type.model_fields.get("steps")
            form_has_default = steps is not None and steps.default is not None
            for mode in endpoint.modes_or_default.values():
                defaults = self._defaults(endpoint, mode, ModelSettings())
                if not form_has_default and defaults.steps is None:
                    raise ValueError(f"models.{defaults.model}.steps is missing, and requests to {name} don't say")
        return self

    def _bind(self, endpoint: Endpoint) -> None:
        """Gives the endpoint the types of its inputs. Raises ValueError that names what the workflow does not have."""
        engine = self.models[endpoint.model].engine
        if engine is None or engine.workflow is None:
            raise ValueError(f"endpoints.{endpoint.name}: {endpoint.model} has no engine with a workflow")
        if endpoint.finetuned is not None and engine.lora_dir is None:
            raise ValueError(f"endpoints.{endpoint.name}: finetuned needs engine.lora_dir of {endpoint.model}")
        try:
            endpoint._bound_inputs = tuple(bind(Workflow.load(engine.workflow), endpoint.inputs))
        except WorkflowError as problem:
            raise ValueError(f"endpoints.{endpoint.name}: {problem}") from None

    @model_validator(mode="after")
    def _names_are_clear(self) -> Catalog:
        others = [other for endpoint in self.endpoints.values() for other in endpoint.other_names]
        used_names = set(self.served)
        for other in (*others, *self.withdrawn):
            if other in used_names:
                raise ValueError(f"{other} is the name of two endpoints")
            used_names.add(other)
        for name, deprecation in self.deprecated.items():
            if unknown := set(deprecation.successors) - set(self.names):
                raise ValueError(f"{name}: there is no successor {', '.join(sorted(unknown))}")
        return self

    @property
    def served(self) -> dict[str, Endpoint]:
        """All endpoints, with their variants for fine-tunes."""
        variants = {f"{name}-finetuned": endpoint.finetuned_variant() for name, endpoint in self.endpoints.items()}
        return self.endpoints | {name: variant for name, variant in variants.items() if variant is not None}

    @property
    def min_price(self) -> int:
        """Lowest price of any task, milli-credits."""
        endpoints = self.endpoints.values()
        return min((each.get_price(mode).minimum for each in endpoints for mode in each.modes_or_default), default=0)

    @property
    def names(self) -> dict[str, str]:
        """The endpoint's own name by each name that requests may use."""
        others = {other: name for name, endpoint in self.endpoints.items() for other in endpoint.other_names}
        return {name: name for name in self.served} | others

    @property
    def deprecated(self) -> dict[str, Deprecation]:
        """Deprecated names and withdrawn endpoints."""
        deprecations = {name: endpoint.deprecated for name, endpoint in self.served.items()}
        for endpoint in self.endpoints.values():
            deprecations |= {name: other.deprecated for name, other in endpoint.other_names.items()}
        return {
            name: deprecation for name, deprecation in deprecations.items() if deprecation is not None
        } | self.withdrawn

    def without(self, models: Set[str]) -> Catalog:
        """Returns the catalog without these models and without the endpoints that use one of them."""
        return self.model_copy(
            update={
                "models": {name: model for name, model in self.models.items() if name not in models},
                "endpoints": {name: each for name, each in self.endpoints.items() if not each.models & models},
            }
        )

    def defaults(self, endpoint: Endpoint, settings: Settings) -> DefaultsByMode:
        """Returns the defaults of each mode of the endpoint on this profile."""
        by_mode: dict[str, ModelDefaults] = {}
        for name, mode in endpoint.modes_or_default.items():
            profile = settings.model(mode.model or endpoint.model)
            defaults = self._defaults(endpoint, mode, profile)
            config = self.models[defaults.model].config(profile)
            # Requests of the service's own forms reach native families, which take more than their pipelines do.
            if endpoint.request != WORKFLOW and (config.engine is not None or endpoint.request in FORMS):
                unsupported, one_image = unsupported_fields(config), takes_one_image(config)
                defaults = replace(defaults, unsupported=unsupported, one_image=one_image)
            by_mode[name] = defaults
        return by_mode

    def _defaults(self, endpoint: Endpoint, mode: Mode, profile: ModelSettings) -> ModelDefaults:
        name = mode.model or endpoint.model
        model = self.models[name]
        config = model.config(profile)
        in_one_pass = config.backend in RESTORERS or endpoint.request == WORKFLOW
        return ModelDefaults(
            model=name,
            steps=_first(mode.steps, profile.steps, model.steps, 1 if in_one_pass else None),
            guidance=_first(mode.guidance, profile.guidance, model.guidance),
            instruction="" if in_one_pass else endpoint.instruction,
            image_prompts=config.redux is not None or _reads_image_prompts(config.checkpoint),
            fps=config.fps,
            demo=config.checkpoint.startswith("bundled/"),
        )


def load(settings: Settings) -> Catalog:
    """Raises FileNotFoundError, or ValueError naming the key at fault."""
    path: Path = settings.catalog
    if not path.is_file():
        raise FileNotFoundError(f"no such catalog: {path}")
    with located([path]):
        catalog = Catalog.model_validate(read_yaml(path))
    for name in sorted(set(settings.models) - set(catalog.models)):
        line = find_line(settings.file, ("models", name)) if settings.file else None
        near = get_close_matches(name, catalog.models, n=1)
        raise ValueError(
            f"{f'{settings.file}:{line}: ' if line else ''}models.{name}: no model of the catalog has this name"
            f"{f': did you mean {near[0]}?' if near else ''}"
        )
    catalog = catalog.without({name for name, model in settings.models.items() if not model.enabled})
    if settings.service.region is not None:
        for name, endpoint in catalog.served.items():
            if unknown := set(endpoint.regions) - set(settings.service.regions):
                raise ValueError(f"endpoints.{name}.regions: {sorted(unknown)} are not in service.regions")
    return catalog


def _reads_image_prompts(checkpoint: str) -> bool:
    """Returns whether a local checkpoint reads image prompts. One of the hub needs `redux`."""
    folder = local_path(checkpoint)
    return folder is not None and (folder / REDUX).is_dir()


def _first(*values: T | None) -> T | None:
    """Returns the first value that is not None."""
    return next((value for value in values if value is not None), None)
