"""Requests of workflows: typed inputs that an operator exposes of a ComfyUI workflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, create_model, model_validator

from deployments.contract.request import MEGAPIXEL, Placement, ResolvedRequest, Scalar
from deployments.contract.strict_settings import StrictSettings
from deployments.contract.workflow import PREFIX, InputType, ObjectInfo, Place, Workflow, WorkflowError
from serve_app.inputs.geometry import MAX_SIDE, MIN_SIDE
from serve_app.schemas.custom import MAX_SAFETY_TOLERANCE
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.examples import FINETUNE_FIELDS, example_file
from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    MAX_SEED,
    Flag,
    GenerationRequest,
    ImageInput,
    NullIsUnset,
    Prompt,
    Role,
    Seed,
    Text,
    check_exact_size,
    random_seed,
)
from serve_app.schemas.tolerant import IMAGE_LIMITS

WORKFLOW: Final = "workflow"
"""Name of this form in the catalog."""
InputRole: TypeAlias = Literal["prompt", "negative_prompt", "seed", "steps", "size", "finetune"]
_INTEGER_LIMIT: Final = 2**53
"""Largest whole number that every JSON client sends exactly."""


class WorkflowInput(StrictSettings):
    """An input of the endpoint, and the places of the workflow that it fills."""

    at: str | tuple[str, ...]
    """Place or places, as node.input: a node's id or title, and one of its inputs. size: width, then height. finetune:
    the file of a LoRA loader, then its strengths."""
    role: InputRole | None = None
    """Meaning to this service: prompts are moderated, sizes and steps are billed, a seed is random if left out.
    finetune: no field, but where the endpoint's finetuned variant puts a tuned model."""
    type: Literal["image", "mask", "float"] | None = None
    """image or mask: a file. float: a fraction, where ComfyUI wrote 7.0 as 7. null: the type of the value there."""
    min: float | None = None
    """Lowest number. null: the server's, where it is known."""
    max: float | None = None
    """Highest number. null: the server's, where it is known."""
    options: tuple[Scalar, ...] | dict[str, Scalar] | None = None
    """Accepted values, or names for them. null: all."""
    default: Scalar | None = None
    """Value if the request has none. null: that of the workflow; files and prompts are required."""
    multiple: int = Field(default=8, ge=1, le=256)
    """role: size: pixels that sides are multiples of."""
    description: str = ""
    """Text for API documentation."""

    @property
    def is_file(self) -> bool:
        return self.type in ("image", "mask")

    @property
    def places(self) -> tuple[str, ...]:
        return (self.at,) if isinstance(self.at, str) else self.at


@dataclass(frozen=True, slots=True)
class BoundInput:
    """An input with the type and the value of its place."""

    name: str
    """Name of the field; an input of the role size has two, width and height."""
    places: tuple[str, ...]
    settings: WorkflowInput
    type: InputType
    default: Scalar

    @property
    def is_file(self) -> bool:
        return self.settings.is_file


def bind(workflow: Workflow, inputs: Mapping[str, WorkflowInput], info: ObjectInfo | None = None) -> list[BoundInput]:
    """Returns the inputs with their types. Raises WorkflowError, which names every wrong input.

    With the server's `info`, ranges and options are the server's, which the settings may only narrow.
    """
    bound, problems = list[BoundInput](), list[str]()
    for name, settings in inputs.items():
        try:
            if settings.role != "size":
                bound.append(_bind(workflow, name, settings.places, settings, info))
                continue
            if len(settings.places) != 2:
                raise WorkflowError("at must be the places of width and height")
            for side, place in zip(("width", "height"), settings.places, strict=True):
                bound.append(_bind(workflow, side, (place,), settings, info))
        except WorkflowError as problem:
            problems.append(f"inputs.{name}: {problem}")
    roles = [settings.role for settings in inputs.values() if settings.role is not None]
    problems += [f"role {role} stands twice: at may have several places" for role in {*roles} if roles.count(role) > 1]
    names = [each.name for each in bound]
    problems += [f"two inputs are named {name}" for name in {*names} if names.count(name) > 1]
    if info is not None:
        problems += workflow.problems(info)
    if problems:
        raise WorkflowError("; ".join(problems))
    return bound


def _bind(
    workflow: Workflow, name: str, places: tuple[str, ...], settings: WorkflowInput, info: ObjectInfo | None
) -> BoundInput:
    if hasattr(WorkflowRequest, name) or name in WorkflowRequest.model_fields:
        raise WorkflowError(f"{name} is a field of every request: choose another name")
    first, *others = [workflow.find_place(text) for text in places]
    file_type = workflow.file_type(first)
    if (file_type is not None) != settings.is_file:
        needed = f"type must be {file_type}" if file_type else f"{first} names no file, so type must be left out"
        raise WorkflowError(needed)
    if PREFIX in (first.input, *(other.input for other in others)):
        raise WorkflowError(f"{PREFIX} is this service's own")
    value = workflow.value(first)
    declared = _declared_type(workflow, first, info) or InputType(type(value))
    if settings.type == "float":
        if declared.type not in (int, float):
            raise WorkflowError(f"{first} is no number, so type must be left out")
        declared = replace(declared, type=float)
    if settings.role == "finetune":
        return BoundInput(name, places, settings, InputType(str), value)
    for other in others:
        other_type = (_declared_type(workflow, other, info) or InputType(type(workflow.value(other)))).type
        if other_type != declared.type and not (settings.type == "float" and other_type is int):
            raise WorkflowError(f"{first} and {other} have values of different types")
    default, narrowed = value if settings.default is None else settings.default, _narrow(settings, declared)
    if isinstance(settings.options, dict):
        default = settings.options.get(str(default), default)
    if settings.role not in ("seed", "prompt") and not settings.is_file and not _accepts(narrowed, default):
        raise WorkflowError(f"{default!r}, the value of requests that have none, is not accepted: set another default")
    return BoundInput(name, places, settings, narrowed, default)


def _accepts(accepted: InputType, value: Scalar) -> bool:
    if accepted.options:
        return value in accepted.options
    if accepted.type not in (int, float):
        return isinstance(value, accepted.type)
    if isinstance(value, (str, bool)):
        return False
    low = -math.inf if accepted.minimum is None else accepted.minimum
    return low <= value <= (math.inf if accepted.maximum is None else accepted.maximum)


def _declared_type(workflow: Workflow, place: Place, info: ObjectInfo | None) -> InputType | None:
    return info.input_type(workflow.class_of(place.node), place.input) if info else None


def _narrow(settings: WorkflowInput, declared: InputType) -> InputType:
    """Returns the type within the limits of the settings. Raises WorkflowError if they are wider."""
    if settings.is_file:
        return InputType(str)
    if declared.type not in (int, float) and (settings.min is not None or settings.max is not None):
        raise WorkflowError(f"min and max are for numbers, not for {declared.type.__name__}")
    for own, limit, is_wider in (
        (settings.min, declared.minimum, lambda a, b: a < b),
        (settings.max, declared.maximum, lambda a, b: a > b),
    ):
        if own is not None and limit is not None and is_wider(own, limit):
            raise WorkflowError(f"the server accepts {declared.minimum} to {declared.maximum}")
    options = settings.options
    values = tuple(options.values()) if isinstance(options, dict) else options or ()
    if declared.options and (strange := [each for each in values if each not in declared.options]):
        raise WorkflowError(f"the server has no {strange[0]!r}; it has {', '.join(map(str, declared.options))}")
    return InputType(
        declared.type,
        declared.minimum if settings.min is None else settings.min,
        declared.maximum if settings.max is None else settings.max,
        values or declared.options,
    )


class WorkflowRequest(GenerationRequest):
    """Runs a workflow."""

    model_config = ConfigDict(extra="forbid")
    inputs: ClassVar[tuple[BoundInput, ...]] = ()

    output_format: Annotated[Literal["original", "png", "jpeg", "webp"], NullIsUnset()] = Field(
        default="original",
        description="File format of images; `original`: as the workflow wrote them.",
        examples=["png"],
    )
    safety_tolerance: Annotated[int, Field(ge=0, le=MAX_SAFETY_TOLERANCE), JSON_NUMBER] | None = Field(
        default=None, description="Moderation tolerance, 0 is strictest.", examples=[2]
    )

    @classmethod
    def examples(cls) -> dict[str, dict[str, Any]]:
        """Returns a body for the API description by its title."""
        body = {
            each.name: example_file("circle.png") if each.is_file else str(each.default)
            for each in cls.inputs
            if each.is_file or each.settings.role == "prompt"
        }
        return {"The workflow's own values": body | (FINETUNE_FIELDS if "finetune_id" in cls.model_fields else {})}

    @model_validator(mode="after")
    def _size_is_valid(self) -> WorkflowRequest:
        if any(each.settings.role == "size" for each in self.inputs):
            check_exact_size(getattr(self, "width", None), getattr(self, "height", None))
        return self

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        fields: dict[str, Any] = {}
        placements = list[Placement]()
        for each in self.inputs:
            role = each.settings.role
            if role == "finetune":
                file, *strengths = each.places
                placements += [
                    Placement(each.name, (file,), adapter="file"),
                    Placement(each.name, tuple(strengths), adapter="strength"),
                ]
                continue
            value = getattr(self, each.name)
            if role is not None:
                field = each.name if role == "size" else role
                fields[field] = value
                placements.append(Placement(each.name, each.places, field=field))
            elif each.is_file:
                placements.append(Placement(each.name, each.places))
            else:
                is_text = each.type.type is str and not each.type.options
                placements.append(Placement(each.name, each.places, _value(each, value), is_text=is_text))
        seed, width, height = (fields.get(name) for name in ("seed", "width", "height"))
        return ResolvedRequest(
            prompt=fields.get("prompt", ""),
            negative_prompt=fields.get("negative_prompt", ""),
            width=width or 0,
            height=height or 0,
            area=width * height if width and height else MEGAPIXEL,
            steps=fields.get("steps") or defaults.steps or 1,
            seed=random_seed() % (self._largest_seed() + 1) if seed is None else seed,
            output_format=self.output_format,
            is_workflow=True,
            placements=tuple(placements),
        )

    def _largest_seed(self) -> int:
        return next((_seed_limit(each) for each in self.inputs if each.settings.role == "seed"), MAX_SEED)


def _seed_limit(each: BoundInput) -> int:
    return MAX_SEED if each.type.maximum is None else min(int(each.type.maximum), MAX_SEED)


def _value(each: BoundInput, value: Any) -> Scalar:
    options = each.settings.options
    return options[value] if isinstance(options, dict) else value


def workflow_request(name: str, inputs: Sequence[BoundInput]) -> type[WorkflowRequest]:
    """Returns the request of the endpoint `name`."""
    fields: dict[str, Any] = {each.name: _field(each) for each in inputs if each.settings.role != "finetune"}
    title = "".join(part.capitalize() for part in name.replace("/", "-").replace(".", "-").split("-"))
    model = create_model(f"{title}Request", __base__=WorkflowRequest, __doc__=WorkflowRequest.__doc__, **fields)
    model.inputs = tuple(inputs)
    model.finetunable = any(each.settings.role == "finetune" for each in inputs)
    roles: dict[str, Role] = {each.name: "workflow" for each in inputs if each.is_file}
    model.image_fields = roles
    return model


def _field(each: BoundInput) -> tuple[Any, Any]:
    """Returns the type of the input's field, and its default with a description."""
    settings, text = each.settings, each.settings.description
    if each.is_file:
        return ImageInput, Field(repr=False, description=f"{text or 'An image'} ({IMAGE_LIMITS}).")
    match settings.role:
        case "prompt":
            return Prompt, Field(description=text or "What the result shows.")
        case "negative_prompt":
            info = Field(default=str(each.default), description=text or "What the result must not show.")
            return Annotated[Text, NullIsUnset()], info
        case "seed":
            seed: Any = Annotated[Seed, Field(le=_seed_limit(each))]
            return seed | None, Field(default=None, description=text or "Seed. Random if omitted.", examples=[42])
        case "size":
            low, high = int(each.type.minimum or MIN_SIDE), int(each.type.maximum or MAX_SIDE)
            limits = Field(ge=max(low, MIN_SIDE), le=min(high, MAX_SIDE), multiple_of=settings.multiple)
            info = Field(default=each.default, description=text or f"{each.name.capitalize()} in pixels.")
            return Annotated[int, limits, JSON_NUMBER, NullIsUnset()], info
        case _:
            return _value_type(each), Field(default=_public_default(each), description=text or None)


def _value_type(each: BoundInput) -> Any:
    declared, settings, options = each.type, each.settings, each.settings.options
    names = tuple(options) if isinstance(options, dict) else declared.options
    if names:
        return Annotated[Literal[names], NullIsUnset()]
    if declared.type is bool:
        return Flag
    if declared.type is str:
        return Annotated[Text, NullIsUnset()]
    limits: Any = Field(ge=declared.minimum, le=declared.maximum, allow_inf_nan=False)
    if declared.type is int:
        lowest = 1 if settings.role == "steps" else -_INTEGER_LIMIT
        limits = Field(
            ge=lowest if declared.minimum is None else max(int(declared.minimum), lowest),
            le=_INTEGER_LIMIT if declared.maximum is None else min(int(declared.maximum), _INTEGER_LIMIT),
        )
    return Annotated[declared.type, limits, JSON_NUMBER if declared.type is int else JSON_REAL, NullIsUnset()]


def _public_default(each: BoundInput) -> Any:
    options = each.settings.options
    if isinstance(options, dict):
        return next((name for name, value in options.items() if value == each.default), next(iter(options)))
    return each.default
