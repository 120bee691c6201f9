"""Keyframes: the pictures that a video is to show, and when.

Sent as one picture, as a list of pictures, or as a list of `[seconds, picture]` pairs. What was meant follows from the
form of what was sent, so that errors are about that one form alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from serve_app.requests.fields import JSON_REAL, ImageInput, located_error

MAX_KEYFRAMES: Final = 10

Second = Annotated[float, Field(ge=0, allow_inf_nan=False), JSON_REAL]
TimedPicture: TypeAlias = tuple[Second, ImageInput]
Pictures = Annotated[list[ImageInput], Field(min_length=1, max_length=MAX_KEYFRAMES)]
TimedPictures = Annotated[list[TimedPicture], Field(min_length=1, max_length=MAX_KEYFRAMES)]

_ONE: Final = TypeAdapter[str](ImageInput)
_PLAIN: Final = TypeAdapter[list[str]](Pictures)
_TIMED: Final = TypeAdapter[list[tuple[float, str]]](TimedPictures)


def _by_form(value: Any, _: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str):
        return _ONE.validate_python(value)
    if not isinstance(value, list):
        raise PydanticCustomError("keyframes_form", "Input should be a picture, or a list of pictures or of pairs")
    pairs = [isinstance(each, list) for each in value]
    if any(pairs) and not all(pairs):
        raise PydanticCustomError("keyframes_mixed", "Pictures and [seconds, picture] pairs can't be mixed")
    return (_TIMED if any(pairs) else _PLAIN).validate_python(value)


Keyframes = Annotated[ImageInput | Pictures | TimedPictures, WrapValidator(_by_form)]


class Keyframe(NamedTuple):
    """`second` is None where the request leaves it to the number of keyframes."""

    loc: tuple[str, ...]
    """Of the picture, in the value of the field."""
    image: str
    second: float | None


def listed(sent: str | list[str] | list[tuple[float, str]]) -> list[Keyframe]:
    """The keyframes of a field, in the order of time."""
    if isinstance(sent, str):
        return [Keyframe((), sent, None)]
    return [
        Keyframe((str(index),), each, None)
        if isinstance(each, str)
        else Keyframe((str(index), "1"), each[1], float(each[0]))
        for index, each in enumerate(sent)
    ]


def times(keyframes: list[Keyframe], duration: int) -> tuple[float, ...]:
    """When each is to be seen in a video of `duration` seconds, whose last frame counts as its end.

    Without times of their own one is the first frame, two are the first and the last, more are spread evenly.
    """
    spaces = max(1, len(keyframes) - 1)
    return tuple(
        index * duration / spaces if each.second is None else each.second for index, each in enumerate(keyframes)
    )


def check_times(field: str, keyframes: list[Keyframe], longest: int) -> None:
    """Raises ValidationError below `field` at the first time that is past `longest` seconds, or out of order."""
    seconds = [each.second for each in keyframes if each.second is not None]
    for index, second in enumerate(seconds):
        if second > longest:
            message = "A keyframe must be within the video, which has {duration} seconds"
            raise located_error((field, index, 0), "keyframe_too_late", message, duration=longest)
    for index, (earlier, later) in enumerate(pairwise(seconds), start=1):
        if later <= earlier:
            message = "Keyframes must be in the order of time, each later than the one before"
            raise located_error((field, index, 0), "keyframes_out_of_order", message)
