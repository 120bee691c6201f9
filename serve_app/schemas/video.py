"""Requests of `gen-3-video`: four forms, told apart by `mode`; keyframes.

Unknown fields are refused. Errors are those of the form that `mode` names, at the fields as they were sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import AUTO, DEFAULT_RATIO, RATIOS, Ratio, video_area, video_ratio, video_size
from serve_app.inputs.settings import VIDEOS
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    LOWER_CASE,
    Flag,
    GenerationRequest,
    ImageField,
    ImageInput,
    NullIsUnset,
    Prompt,
    Seed,
    located_error,
    random_seed,
)

MAX_KEYFRAMES: Final = 10

Second = Annotated[float, Field(ge=0, allow_inf_nan=False), JSON_REAL]
TimedImage: TypeAlias = tuple[Second, ImageInput]
Images = Annotated[list[ImageInput], Field(min_length=1, max_length=MAX_KEYFRAMES)]
TimedImages = Annotated[list[TimedImage], Field(min_length=1, max_length=MAX_KEYFRAMES)]

_ONE: Final = TypeAdapter[str](ImageInput)
_PLAIN: Final = TypeAdapter[list[str]](Images)
_TIMED: Final = TypeAdapter[list[tuple[float, str]]](TimedImages)


def _by_form(value: Any, _: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str):
        return _ONE.validate_python(value)
    if not isinstance(value, list):
        raise PydanticCustomError("keyframes_form", "Input should be an image, or a list of images or of pairs")
    pairs = [isinstance(each, list) for each in value]
    if any(pairs) and not all(pairs):
        raise PydanticCustomError("keyframes_mixed", "Images and [seconds, image] pairs can't be mixed")
    return (_TIMED if any(pairs) else _PLAIN).validate_python(value)


Keyframes = Annotated[ImageInput | Images | TimedImages, WrapValidator(_by_form)]


class Keyframe(NamedTuple):
    """Image of a video. `second` is None if it follows from the number of keyframes."""

    loc: tuple[str, ...]
    """Location of the image in the field's value."""
    image: str
    second: float | None


def parse_keyframes(value: str | list[str] | list[tuple[float, str]]) -> list[Keyframe]:
    """Returns the keyframes of a field in the order of time."""
    if isinstance(value, str):
        return [Keyframe((), value, None)]
    return [
        Keyframe((str(index),), each, None)
        if isinstance(each, str)
        else Keyframe((str(index), "1"), each[1], float(each[0]))
        for index, each in enumerate(value)
    ]


def times(keyframes: list[Keyframe], duration: int) -> tuple[float, ...]:
    """Returns the second of each keyframe in a video of `duration` seconds, whose last frame counts as its end.

    Without times, one keyframe is the first frame, two are the first and the last, more are spread evenly.
    """
    spaces = max(1, len(keyframes) - 1)
    return tuple(
        index * duration / spaces if each.second is None else each.second for index, each in enumerate(keyframes)
    )


def check_times(field: str, keyframes: list[Keyframe], longest: int) -> None:
    """Raises ValidationError below `field` at the first time past `longest` seconds or out of order."""
    seconds = [each.second for each in keyframes if each.second is not None]
    for index, second in enumerate(seconds):
        if second > longest:
            message = "A keyframe must be within the video, which has {duration} seconds"
            raise located_error((field, index, 0), "keyframe_too_late", message, duration=longest)
    for index, (earlier, later) in enumerate(pairwise(seconds), start=1):
        if later <= earlier:
            message = "Keyframes must be in the order of time, each later than the one before"
            raise located_error((field, index, 0), "keyframes_out_of_order", message)


MAX_SAFETY_TOLERANCE: Final = 6
SHORTEST: Final = 5
LONGEST: Final = 20
LONGEST_CONTINUATION: Final = 15
"""Limits of durations, in whole seconds of new video."""

AspectRatio: TypeAlias = Literal["auto", "21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"]
Resolution: TypeAlias = Literal["hd", "fhd"]
DraftName = Annotated[str, Field(min_length=1, max_length=4096)]
"""Id or link of a draft; signed links are long."""


def _auto_or(seconds: Any) -> WrapValidator:
    """Returns a validator for `auto` or a number of `seconds`. Errors of a number don't mention `auto`."""
    number = TypeAdapter[int](seconds)

    def validate(value: Any, _: ValidatorFunctionWrapHandler) -> Any:
        if value == AUTO:
            return value
        if isinstance(value, str):
            raise PydanticCustomError("duration", "Input should be a number of seconds or 'auto'")
        return number.validate_python(value)

    return WrapValidator(validate)


Seconds = Annotated[int, Field(ge=SHORTEST, le=LONGEST), JSON_NUMBER]
FewSeconds = Annotated[int, Field(ge=SHORTEST, le=LONGEST_CONTINUATION), JSON_NUMBER]
Duration = Annotated[Seconds | Literal["auto"], _auto_or(Seconds), NullIsUnset()]
ShortDuration = Annotated[FewSeconds | Literal["auto"], _auto_or(FewSeconds), NullIsUnset()]


class BaseVideoRequest(GenerationRequest):
    """Base of video requests."""

    model_config = ConfigDict(extra="forbid")
    modes: ClassVar[tuple[str, ...]] = ("full", "draft", "enhance")
    makes_video: ClassVar[bool] = True
    finetunable: ClassVar[bool] = False

    safety_tolerance: Annotated[int, Field(ge=0, le=MAX_SAFETY_TOLERANCE), JSON_NUMBER] | None = Field(
        default=None, description="Moderation tolerance, 0 (strictest) to 6. 2 if omitted.", examples=[2]
    )


class NewVideoRequest(BaseVideoRequest):
    """Base of the forms that make a new video."""

    prompt: Prompt = Field(
        description="Content of the video and its sound: speech, sounds, music.",
        examples=["Waves roll onto a beach at dusk, gulls cry, the camera moves slowly towards a lighthouse"],
    )
    resolution: Annotated[Resolution, LOWER_CASE, NullIsUnset()] = Field(
        default="hd",
        description="`hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area.",
        examples=["hd"],
    )
    generate_audio: Flag = Field(
        default=True,
        description="Generates sound. An extended video keeps its own sound either way.",
        examples=[True],
    )
    draft: Flag = Field(
        default=False,
        description="A quick pass with half the width and height. `result.draft_cache` of its task is what "
        "`draft_enhance` makes the full video of.",
        examples=[False],
    )
    seed: Seed | None = Field(
        default=None,
        description="Seed of the video: the same request with the same seed gives the same video. Random if omitted.",
        examples=[42],
    )

    def chosen_mode(self) -> str:
        return "draft" if self.draft else "full"

    def _resolve(
        self, defaults: ModelDefaults, seconds: int, ratio: Ratio | None, times: tuple[float, ...] = ()
    ) -> ResolvedRequest:
        """Resolves the request. A `ratio` of None is chosen from the prompt later."""
        area = video_area(self.resolution, draft=self.draft)
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=random_seed() if self.seed is None else self.seed,
            output_format="mp4",
            size=video_size(RATIOS[DEFAULT_RATIO] if ratio is None else ratio, area, draft=self.draft),
            area=area,
        )
        video = defaults.video(seconds, audio=self.generate_audio, times=times, draft=self.draft)
        return replace(resolved, video=video, open_ratio=ratio is None)


class TextToVideoRequest(NewVideoRequest):
    mode: Literal["t2v"] = Field(description="Text to video.")
    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default=AUTO,
        description="Ratio of width to height. `auto`: chosen from the prompt, else 16:9.",
        examples=["16:9"],
    )
    duration: Duration = Field(default=AUTO, description="Whole seconds. `auto`: 5.", examples=[5, AUTO])

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        ratio = None if self.aspect_ratio == AUTO else RATIOS[self.aspect_ratio]
        return self._resolve(defaults, _seconds(self.duration), ratio)


class ImageToVideoRequest(NewVideoRequest):
    mode: Literal["i2v"] = Field(description="Images to video.")
    keyframes: Keyframes = Field(
        repr=False,
        description="1 to 10 images that the video shows (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at "
        "most 20 MB and 20 megapixels each). One is the first frame, two are the first and the last, more are spread "
        "evenly. Or pairs `[seconds, image]` in the order of time.",
        examples=[
            "https://example.com/first.jpeg",
            ["https://example.com/first.jpeg", "https://example.com/last.jpeg"],
            [[0, "https://example.com/first.jpeg"], [2.5, "https://example.com/next.jpeg"]],
        ],
    )
    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default=AUTO,
        description="Ratio of width to height. `auto`: the nearest to that of the first keyframe.",
        examples=["16:9"],
    )
    duration: Duration = Field(
        default=AUTO,
        description="Whole seconds. `auto`: up to the last keyframe that has a time, at least 5.",
        examples=[5, AUTO],
    )

    def image_inputs(self) -> list[ImageField]:
        return [ImageField(("keyframes", *each.loc), each.image, "references") for each in self._parse_keyframes()]

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        keyframes = self._parse_keyframes()
        latest = max((each.second or 0.0 for each in keyframes), default=0.0)
        seconds = _seconds(self.duration, at_least=ceil(latest))
        ratio = _ratio(self.aspect_ratio, sizes[0])
        return self._resolve(defaults, seconds, ratio, times(keyframes, seconds))

    def _parse_keyframes(self) -> list[Keyframe]:
        return parse_keyframes(self.keyframes)

    @model_validator(mode="after")
    def _keyframes_are_within_the_video(self) -> Self:
        check_times("keyframes", self._parse_keyframes(), LONGEST if self.duration == AUTO else self.duration)
        return self


class VideoToVideoRequest(NewVideoRequest):
    mode: Literal["v2v"] = Field(description="A video goes on.")
    start_video: ImageInput = Field(
        repr=False,
        description="The video to go on from: mp4 (H.264 or another common codec), as base64, `data:` URI or http(s) "
        f"URL; at most {VIDEOS.max_bytes // 2**20} MB, from 1/24 to {VIDEOS.max_seconds:g} seconds long, with sides "
        f"from {VIDEOS.min_side} to {VIDEOS.max_side} pixels. The result begins with it, and has at most {LONGEST} "
        "seconds.",
        examples=["https://example.com/start.mp4"],
    )
    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default=AUTO,
        description="Ratio of width to height. `auto`: the nearest to that of the video.",
        examples=["16:9"],
    )
    duration: ShortDuration = Field(
        default=AUTO, description="Whole seconds of new video. `auto`: 5.", examples=[5, AUTO]
    )

    def video_input(self) -> str | None:
        return self.start_video

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        return self._resolve(defaults, _seconds(self.duration), _ratio(self.aspect_ratio, sizes[0]))


class DraftEnhanceRequest(BaseVideoRequest):
    mode: Literal["draft_enhance"] = Field(description="A draft at full quality.")
    draft_cache: DraftName = Field(
        description="The draft: the id of its task, or `draft_cache` of its result. Prompt, seed, duration, ratio and "
        "sound are the draft's.",
        examples=["6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e"],
    )
    resolution: Annotated[Resolution, LOWER_CASE, NullIsUnset()] = Field(
        default="fhd", description="`hd` is 1280x704 at 16:9, `fhd` 1920x1088.", examples=["fhd"]
    )

    def chosen_mode(self) -> str:
        return "enhance"

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        assert draft is not None, "a draft is looked up before its video is resolved"
        area = video_area(self.resolution)
        size = video_size(video_ratio(Fraction(draft.width, draft.height)), area)
        resolved = defaults.resolve(prompt=draft.prompt, seed=draft.seed, output_format="mp4", size=size, area=area)
        return replace(resolved, video=defaults.video(draft.seconds, audio=draft.audio, times=draft.times))


FORMS: Final[Mapping[str, type[BaseVideoRequest]]] = MappingProxyType(
    {
        "t2v": TextToVideoRequest,
        "i2v": ImageToVideoRequest,
        "v2v": VideoToVideoRequest,
        "draft_enhance": DraftEnhanceRequest,
    }
)


class VideoRequest(BaseVideoRequest):
    """Union of the forms: validation returns an instance of one of them."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        forms = {name: handler.generate_schema(form) for name, form in FORMS.items()}
        union_schema = core_schema.tagged_union_schema(dict(forms), discriminator="mode")
        return core_schema.no_info_wrap_validator_function(cls._by_mode, union_schema)

    @classmethod
    def field_names(cls, body: Any) -> Collection[str]:
        mode = body.get("mode") if isinstance(body, dict) else None
        return FORMS[mode].model_fields if isinstance(mode, str) and mode in FORMS else cls.model_fields

    @classmethod
    def _by_mode(cls, body: Any, _: ValidatorFunctionWrapHandler) -> BaseVideoRequest:
        """Validates the form: the union itself would put the mode into every location."""
        if not isinstance(body, dict):
            raise PydanticCustomError("model_type", "Input should be an object")
        mode = body.get("mode")
        form = FORMS.get(mode) if isinstance(mode, str) else None
        if form is None:
            error_type, message = ("missing", "Field required") if mode is None else ("literal_error", "No such mode")
            raise located_error("mode", error_type, message + ": one of {modes}", modes=", ".join(FORMS))
        return form.model_validate(body)


def _seconds(duration: int | Literal["auto"], at_least: int = 0) -> int:
    return max(SHORTEST, at_least) if duration == AUTO else duration


def _ratio(aspect_ratio: AspectRatio, input_size: tuple[int, int]) -> Ratio:
    """Returns the named ratio, else the nearest to that of the input."""
    return video_ratio(Fraction(*input_size)) if aspect_ratio == AUTO else RATIOS[aspect_ratio]
