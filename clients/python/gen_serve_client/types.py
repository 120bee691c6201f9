"""Request and response bodies of the interface.

Generated from openapi.json by clients/python/generate_types.py. Do not edit; run `make openapi`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

R_co = TypeVar("R_co", covariant=True)


class Request(TypedDict):
    """Fields of every endpoint."""

    user: NotRequired[str | None]
    """Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else."""
    webhook_secret: NotRequired[str | None]
    """Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself.
    Without a secret, webhooks are not signed."""
    webhook_url: NotRequired[str | None]
    """URL that receives the result as a POST once the task has one. It must be reachable publicly."""


class SeededRequest(Request):
    """Fields of most image endpoints."""

    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 6. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative.
    JavaScript rounds seeds above 2^53 when it reads the answer."""


class CannyRequest(SeededRequest):
    """One of the two images is needed. Unknown fields are ignored."""

    canny_high_threshold: NotRequired[int | None]
    """Stronger edges than this are kept; those between are kept where they touch one. Default: `200`."""
    canny_low_threshold: NotRequired[int | None]
    """Weaker edges than this are dropped. Default: `50`."""
    control_image: NotRequired[str | None]
    """The image to take the edges from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20
    megapixels; turned upright). Needed unless `preprocessed_image` is sent."""
    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `30`."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    preprocessed_image: NotRequired[str | None]
    """An image of edges, white on black, used as it is; `control_image` and the thresholds then don't matter."""
    prompt: str
    """Content of the image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `50`."""


class CreateLinkRequest(TypedDict):
    expires_in: NotRequired[int]
    """Seconds. Default: `86400`."""


class CreateUploadRequest(TypedDict):
    content_type: Literal["image/jpeg", "image/png", "image/webp", "video/mp4"]
    size: NotRequired[int | None]
    """Bytes of the file, if known. The URL accepts no more"""


class Credits(TypedDict):
    credits: float
    """Balance after subtracting the holds of unfinished tasks"""


class DailyUsage(TypedDict):
    cost: float
    """Credits"""
    day: str
    """UTC day on which the tasks became ready"""
    endpoint: str
    project: str
    tasks: int


class DeblurRequest(SeededRequest):
    """Unknown fields are ignored."""

    image: str
    """The image to sharpen (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels;
    turned upright)."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `png`."""


class DeleteFinetuneRequest(TypedDict):
    finetune_id: str


class DeletedFinetune(TypedDict):
    deleted_finetune_id: str
    message: str
    status: str
    timestamp: float


class DeletedVideo(TypedDict):
    deleted: NotRequired[bool]
    """Default: `true`."""
    id: str
    object: NotRequired[Literal["video.deleted"]]
    """Default: `video.deleted`."""


class DeliveryAttempt(TypedDict):
    at: float
    """Epoch seconds"""
    error: str | None
    """Reason for a missing response"""
    response: str | None
    """Start of the response body, at most 1 KiB"""
    status: int | None
    """HTTP status of the response; null without one"""
    took_s: float
    """Seconds from connection to response"""


class DraftEnhanceRequest(Request):
    draft_cache: str
    """The draft: the id of its task, or `draft_cache` of its result. Prompt, seed, duration, ratio and sound are the
    draft's."""
    mode: Literal["draft_enhance"]
    """A draft at full quality."""
    resolution: NotRequired[Literal["hd", "fhd"] | None]
    """`hd` is 1280x704 at 16:9, `fhd` 1920x1088. Default: `fhd`."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 6. 2 if omitted."""


class EraseRequest(SeededRequest):
    """Unknown fields are ignored."""

    dilate_pixels: NotRequired[int | None]
    """Margin around the white of the mask that is also removed, in pixels. Default: `10`."""
    image: str
    """The image to remove something from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and
    20 megapixels; turned upright)."""
    mask: str
    """Black-and-white image of the same size: white is removed, black stays as it is. Some of it must be white, and
    not all."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `png`."""


class ErrorResponse(TypedDict):
    code: str
    """Code for programs; never changes"""
    detail: str
    """Message for people"""
    hint: NotRequired[str | None]
    """Suggestion what to send instead"""
    request_id: NotRequired[str | None]
    """Value of `x-request-id`, also in the logs"""


class FillRequest(SeededRequest):
    """`input_image` is taken for `image`, where only that is sent; other unknown fields are ignored."""

    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `60`."""
    image: str
    """The image to change (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). Transparent parts are repainted when there is no `mask`."""
    mask: NotRequired[str | None]
    """Black-and-white image of the same size: white is painted anew, black stays as it is. Needed unless the image
    has transparent parts."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: NotRequired[str | None]
    """Content of the masked area."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `50`."""


class FinetuneDetails(TypedDict):
    base: str
    created: float
    finetune_id: str
    layers: int
    name: str
    rank: int
    size: int
    status: str


class FinetuneDetailsResponse(TypedDict):
    finetune_details: FinetuneDetails


class FinetuneList(TypedDict):
    finetunes: list[FinetuneDetails]


class Gen2MaxRequest(Request):
    """Adds removal of the background to `gen-2-pro`. `prompt_upsampling` is the opposite of `disable_pup`."""

    disable_pup: NotRequired[bool | None]
    """Takes the prompt as it is, not rewritten. Default: `false`."""
    height: NotRequired[int | Literal[0] | None]
    """Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default size."""
    input_image_2: NotRequired[str | None]
    """The second image to take from."""
    input_image_3: NotRequired[str | None]
    """The third image to take from."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from."""
    input_image_5: NotRequired[str | None]
    """The fifth image to take from."""
    input_image_6: NotRequired[str | None]
    """The sixth image to take from."""
    input_image_7: NotRequired[str | None]
    """The seventh image to take from."""
    input_image_8: NotRequired[str | None]
    """The eighth image to take from."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative.
    JavaScript rounds seeds above 2^53 when it reads the answer."""
    transparent_bg: NotRequired[bool | None]
    """Removes the background: a PNG with transparency, whatever `output_format` says. Default: `false`."""
    width: NotRequired[int | Literal[0] | None]
    """Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`."""


class Gen2ProRequest(Request):
    """Text to image when no image is sent, else an edit of the first. Unknown fields are ignored."""

    height: NotRequired[int | Literal[0] | None]
    """Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default size."""
    input_image_2: NotRequired[str | None]
    """The second image to take from."""
    input_image_3: NotRequired[str | None]
    """The third image to take from."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from."""
    input_image_5: NotRequired[str | None]
    """The fifth image to take from."""
    input_image_6: NotRequired[str | None]
    """The sixth image to take from."""
    input_image_7: NotRequired[str | None]
    """The seventh image to take from."""
    input_image_8: NotRequired[str | None]
    """The eighth image to take from."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative.
    JavaScript rounds seeds above 2^53 when it reads the answer."""
    width: NotRequired[int | Literal[0] | None]
    """Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`."""


class GenerationReport(TypedDict):
    number_of_generations: NotRequired[int]
    """Default: `1`."""


class GenerationReportReceipt(TypedDict):
    message: str


class ImageKleinRequest(Request):
    """Text to image when `images` is left out, else an edit of its first item. Unknown fields are refused."""

    aspect_ratio: NotRequired[
        Literal[
            "auto",
            "21:9",
            "2:1",
            "16:9",
            "3:2",
            "7:5",
            "4:3",
            "5:4",
            "1:1",
            "4:5",
            "3:4",
            "5:7",
            "2:3",
            "9:16",
            "1:2",
            "9:21",
        ]
        | None
    ]
    """Ratio of width to height. `auto`: for edits that of the first reference, else chosen from the prompt, which
    itself stays as it is. Ignored when `width` and `height` are set. Default: `auto`."""
    height: NotRequired[int | None]
    """Exact height in pixels; needs `width`. `width` x `height` is at most 16822272."""
    images: NotRequired[list[str] | None]
    """1 to 10 reference images (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20
    megapixels each). The first is the one to edit and sets the default output size."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make. It can end with a JSON array that places elements: boxes are
    `[top, left, bottom, right]`, 0 to 1000."""
    resolution: NotRequired[Literal["768sq", "1k", "1.5k", "2k", "4k"] | None]
    """Size tier; every ratio has about the same area at one tier. Left out: `1k` for text to image; for edits the
    first reference's own size, or its nearest tier when `aspect_ratio` is set. Ignored when `width` and `height`
    are set."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 7. The approved levels depend on your organization."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `16`."""
    width: NotRequired[int | None]
    """Exact width in pixels; needs `height`. Overrides `resolution` and `aspect_ratio`."""


class ImageToVideoRequest(Request):
    aspect_ratio: NotRequired[Literal["auto", "21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"] | None]
    """Ratio of width to height. `auto`: the nearest to that of the first keyframe. Default: `auto`."""
    draft: NotRequired[bool | None]
    """A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes
    the full video of. Default: `false`."""
    duration: NotRequired[int | Literal["auto"] | None]
    """Whole seconds. `auto`: up to the last keyframe that has a time, at least 5. Default: `auto`."""
    generate_audio: NotRequired[bool | None]
    """Generates sound. An extended video keeps its own sound either way. Default: `true`."""
    keyframes: str | list[str] | list[tuple[float, str]]
    """1 to 10 images that the video shows (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and
    20 megapixels each). One is the first frame, two are the first and the last, more are spread evenly. Or pairs
    `[seconds, image]` in the order of time."""
    mode: Literal["i2v"]
    """Images to video."""
    prompt: str
    """Content of the video and its sound: speech, sounds, music."""
    resolution: NotRequired[Literal["hd", "fhd"] | None]
    """`hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 6. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the video: the same request with the same seed gives the same video. Random if omitted."""


class ImagesResponse(TypedDict):
    created: int
    """Epoch seconds"""
    data: list[OpenAIImage]
    output_format: str


class KontextRequest(SeededRequest):
    """Text to image when no image is sent, else an edit of the first. Unknown fields are ignored."""

    aspect_ratio: NotRequired[str | None]
    """Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the first image's,
    else `1:1`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default ratio."""
    input_image_2: NotRequired[str | None]
    """The second image to take from. Experimental."""
    input_image_3: NotRequired[str | None]
    """The third image to take from. Experimental."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from. Experimental."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `png`."""
    prompt: str
    """Change to make, or content of a new image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""


class ModelList(TypedDict):
    data: list[OpenAIModel]
    object: NotRequired[Literal["list"]]
    """Default: `list`."""


ModelState: TypeAlias = Literal["ready", "starting", "scaled to zero", "no replica"]
"""States, ordered by the time until a result."""


class NotReady(TypedDict):
    code: str
    detail: str
    missing: list[str]
    """A sentence for each missing requirement"""


class OpenAIError(TypedDict):
    code: str
    message: str
    param: str | None
    type: str


class OpenAIErrorResponse(TypedDict):
    error: OpenAIError


class OpenAIImage(TypedDict):
    b64_json: NotRequired[str | None]
    id: str
    """Id of the task"""
    revised_prompt: NotRequired[str | None]
    """The prompt, if it was rewritten"""
    url: NotRequired[str | None]
    """Signed link, valid for minutes"""


class OpenAIModel(TypedDict):
    created: NotRequired[int]
    """Always 0: unknown. Default: `0`."""
    demo: NotRequired[bool]
    """True for the bundled demonstration model, which only knows coloured shapes. Default: `false`."""
    id: str
    object: NotRequired[Literal["model"]]
    """Default: `model`."""
    owned_by: NotRequired[str]
    """Default: `gen-serve`."""
    predicted_wait_s: NotRequired[float | None]
    """Estimated wait of a new task in seconds; null before the first finished task"""
    shutdown_date: NotRequired[str | None]
    """Day of the endpoint's shutdown, if announced"""
    state: NotRequired[ModelState | None]
    """State of the model's replicas; null if unknown"""


class OutpaintingRequest(SeededRequest):
    """Unknown fields are refused."""

    auto_crop: NotRequired[bool | None]
    """Cuts off what sticks out of the result, which is refused otherwise. Default: `false`."""
    height: int
    """Height of the result in pixels. `width` x `height` is at most 4194304."""
    input_image: str
    """The image to extend (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright)."""
    mode: NotRequired[Literal["high", "fast"] | None]
    """`high` for the best quality, `fast` for the shortest time. Default: `high`."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `png`."""
    reference_offset_x: NotRequired[int | None]
    """Position of the image's left edge in the result, in pixels. Centred if omitted. It can be negative with
    `auto_crop`."""
    reference_offset_y: NotRequired[int | None]
    """Position of the image's top edge in the result, in pixels. Centred if omitted. It can be negative with
    `auto_crop`."""
    width: int
    """Width of the result in pixels."""


class Price(TypedDict):
    cost: float
    """Credits"""
    input_mp: float
    output_mp: float
    warnings: NotRequired[list[str]]
    """Parts of the request that will have no effect"""


class PriceRequest(TypedDict):
    body: dict[str, Any]
    """Body of the request"""
    path: str
    """Path of the request: /v1/gen-…"""


class ProRequest(SeededRequest):
    """Width and height have defaults of their own, so either may be sent alone. Unknown fields are ignored."""

    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `2.5`."""
    height: NotRequired[int | None]
    """Height in pixels, a multiple of 32. Default: `768`."""
    image_prompt: NotRequired[str | None]
    """An image to work from as from a prompt (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB
    and 20 megapixels; turned upright)."""
    interval: NotRequired[float | None]
    """Guidance is applied at every n-th step. Default: `2`."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: NotRequired[str | None]
    """Content of the image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `40`."""
    width: NotRequired[int | None]
    """Width in pixels, a multiple of 32. Default: `1024`."""


class ProtectedResource(TypedDict):
    authorization_servers: list[str]
    bearer_methods_supported: NotRequired[list[str]]
    """Default: `["header"]`."""
    resource: str
    resource_name: NotRequired[str]
    """Default: `gen-serve`."""
    scopes_supported: NotRequired[list[str]]
    """Default: `["developer", "viewer"]`."""


class ResultLink(TypedDict):
    expires: float
    """Epoch seconds; not later than the deletion of the result"""
    page: str
    """Link to a page with the result and its prompt, until `expires` or its revocation"""
    url: str
    """Link to the file"""


Status: TypeAlias = Literal[
    "Pending", "Reasoning", "Generating", "Ready", "Error", "Request Moderated", "Content Moderated", "Task not found"
]
"""The contract's vocabulary. `NOT_FOUND` is an answer only, no task ever has it."""


class Submission(TypedDict):
    """An accepted task."""

    cost: float | None
    """Cost in credits"""
    id: str
    input_mp: float | None
    """Size of the inputs without masks, in 2^20 pixels, 2 decimals"""
    output_mp: float | None
    """Size of the result in 2^20 pixels, 2 decimals; the tier's size if the prompt decides the ratio"""
    polling_url: str
    status: NotRequired[str | None]
    """`Pending`; only with a webhook"""
    warnings: NotRequired[list[str] | None]
    """Parts of the request that will be ignored; also in `details` beside the result. Absent if none"""
    webhook_url: NotRequired[str | None]
    """The webhook of the request; absent without one"""


class TaskDelivery(TypedDict):
    """State of a task's webhook."""

    attempts: list[DeliveryAttempt]
    """The latest 50, oldest first"""
    destination: str
    """Scheme, host and port of `webhook_url`, whose other parts may be secrets"""
    id: str
    """Id of the task, sent as `webhook-id` with every attempt"""
    next: float | None
    """Time of the next attempt, epoch seconds"""
    state: Literal["not due", "waiting", "sending", "delivered", "failed"]
    """`not due` before the task ends; `failed` after the last attempt"""


class TaskDetails(TypedDict):
    attempt: int
    """Number of attempts started"""
    cost: float | None
    """Settled cost in credits, once known"""
    created: float
    """Epoch seconds"""
    endpoint: str
    expires: float | None
    """Time of deletion; null before the end"""
    finished: float | None
    id: str
    inputs: int
    """Number of images and videos sent"""
    parameters: dict[str, str | int | float | bool]
    """Known parameters of the generation: `width`, `height`, `steps`, `seed` …"""
    progress: float | None
    """0.0 to 1.0; null if unknown"""
    prompt: str | None
    """Prompt as sent. Null if it can't be read"""
    shared: bool
    """True while its page has links that are not revoked"""
    started: float | None
    status: Status
    thumbnail: str | None
    """Link to a small image of the result or of the latest preview; null if there is none"""


class TaskPage(TypedDict):
    next: str | None
    """Cursor of the next page; null on the last one. With filters, a page before the last may have fewer tasks than
    `limit`"""
    tasks: list[TaskSummary]


class TaskResult(TypedDict):
    """Status of a task and, once it is `Ready`, its result."""

    cost: NotRequired[float | None]
    """Settled cost in credits, once known"""
    details: NotRequired[dict[str, Any] | None]
    """An unfinished task has, if known: `eta` (seconds until the result), `eta_range` (its 80 % range),
    `queue_position` (1 is next) while it waits, and a `message` while its model starts. A finished task has
    `Moderation Reasons`, `error`, or beside a result `warnings` about ignored parts of the request"""
    id: str
    preview: NotRequired[dict[str, Any] | None]
    progress: NotRequired[float | None]
    """0.0 to 1.0, never decreases; null if unknown"""
    result: NotRequired[dict[str, Any] | None]
    status: Status


class TaskSummary(TypedDict):
    attempt: int
    """Number of attempts started"""
    cost: float | None
    """Settled cost in credits, once known"""
    created: float
    """Epoch seconds"""
    endpoint: str
    expires: float | None
    """Time of deletion; null before the end"""
    finished: float | None
    id: str
    progress: float | None
    """0.0 to 1.0; null if unknown"""
    prompt: str | None
    """Prompt as sent, truncated. Null if it can't be read"""
    started: float | None
    status: Status
    thumbnail: str | None
    """Link to a small image of the result or of the latest preview; null if there is none"""


class TextToVideoRequest(Request):
    aspect_ratio: NotRequired[Literal["auto", "21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"] | None]
    """Ratio of width to height. `auto`: chosen from the prompt, else 16:9. Default: `auto`."""
    draft: NotRequired[bool | None]
    """A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes
    the full video of. Default: `false`."""
    duration: NotRequired[int | Literal["auto"] | None]
    """Whole seconds. `auto`: 5. Default: `auto`."""
    generate_audio: NotRequired[bool | None]
    """Generates sound. An extended video keeps its own sound either way. Default: `true`."""
    mode: Literal["t2v"]
    """Text to video."""
    prompt: str
    """Content of the video and its sound: speech, sounds, music."""
    resolution: NotRequired[Literal["hd", "fhd"] | None]
    """`hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 6. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the video: the same request with the same seed gives the same video. Random if omitted."""


class TryOnV1Request(SeededRequest):
    """Images over 2 megapixels are scaled to about one. Unknown fields are ignored."""

    garment: str
    """The garment (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned
    upright)."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    person: str
    """The person to dress (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the size of the result."""
    prompt: NotRequired[str | None]
    """Styling of the garment. Optional."""


class TryOnV2Request(SeededRequest):
    """Images of up to 4 megapixels are used as they are, larger ones refused. Unknown fields are ignored."""

    garment: str
    """The garment (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned
    upright)."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    person: str
    """The person to dress (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels;
    turned upright). It sets the size of the result."""
    prompt: NotRequired[str | None]
    """Styling of the garment. Optional."""


class TunedControlCannyRequest(SeededRequest):
    canny_high_threshold: NotRequired[int | None]
    """Stronger edges than this are kept; those between are kept where they touch one. Default: `200`."""
    canny_low_threshold: NotRequired[int | None]
    """Weaker edges than this are dropped. Default: `50`."""
    control_image: str
    """The image to take the edges from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20
    megapixels; turned upright)."""
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `30`."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `50`."""


class TunedFillRequest(SeededRequest):
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `60`."""
    image: str
    """The image to change (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). Transparent parts are repainted when there is no `mask`."""
    mask: NotRequired[str | None]
    """Black-and-white image of the same size: white is painted anew, black stays as it is. Needed unless the image
    has transparent parts."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: NotRequired[str | None]
    """Content of the masked area."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `50`."""


class TunedGen2MaxRequest(Request):
    disable_pup: NotRequired[bool | None]
    """Takes the prompt as it is, not rewritten. Default: `false`."""
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    height: NotRequired[int | Literal[0] | None]
    """Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default size."""
    input_image_2: NotRequired[str | None]
    """The second image to take from."""
    input_image_3: NotRequired[str | None]
    """The third image to take from."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from."""
    input_image_5: NotRequired[str | None]
    """The fifth image to take from."""
    input_image_6: NotRequired[str | None]
    """The sixth image to take from."""
    input_image_7: NotRequired[str | None]
    """The seventh image to take from."""
    input_image_8: NotRequired[str | None]
    """The eighth image to take from."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative.
    JavaScript rounds seeds above 2^53 when it reads the answer."""
    transparent_bg: NotRequired[bool | None]
    """Removes the background: a PNG with transparency, whatever `output_format` says. Default: `false`."""
    width: NotRequired[int | Literal[0] | None]
    """Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`."""


class TunedGen2ProRequest(Request):
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    height: NotRequired[int | Literal[0] | None]
    """Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default size."""
    input_image_2: NotRequired[str | None]
    """The second image to take from."""
    input_image_3: NotRequired[str | None]
    """The third image to take from."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from."""
    input_image_5: NotRequired[str | None]
    """The fifth image to take from."""
    input_image_6: NotRequired[str | None]
    """The sixth image to take from."""
    input_image_7: NotRequired[str | None]
    """The seventh image to take from."""
    input_image_8: NotRequired[str | None]
    """The eighth image to take from."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative.
    JavaScript rounds seeds above 2^53 when it reads the answer."""
    width: NotRequired[int | Literal[0] | None]
    """Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`."""


class TunedImageKleinRequest(Request):
    aspect_ratio: NotRequired[
        Literal[
            "auto",
            "21:9",
            "2:1",
            "16:9",
            "3:2",
            "7:5",
            "4:3",
            "5:4",
            "1:1",
            "4:5",
            "3:4",
            "5:7",
            "2:3",
            "9:16",
            "1:2",
            "9:21",
        ]
        | None
    ]
    """Ratio of width to height. `auto`: for edits that of the first reference, else chosen from the prompt, which
    itself stays as it is. Ignored when `width` and `height` are set. Default: `auto`."""
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    height: NotRequired[int | None]
    """Exact height in pixels; needs `width`. `width` x `height` is at most 16822272."""
    images: NotRequired[list[str] | None]
    """1 to 10 reference images (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20
    megapixels each). The first is the one to edit and sets the default output size."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: str
    """Content of the image, or the change to make. It can end with a JSON array that places elements: boxes are
    `[top, left, bottom, right]`, 0 to 1000."""
    resolution: NotRequired[Literal["768sq", "1k", "1.5k", "2k", "4k"] | None]
    """Size tier; every ratio has about the same area at one tier. Left out: `1k` for text to image; for edits the
    first reference's own size, or its nearest tier when `aspect_ratio` is set. Ignored when `width` and `height`
    are set."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 7. The approved levels depend on your organization."""
    seed: NotRequired[int | None]
    """Seed of the image: the same request with the same seed gives the same image. Random if omitted."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `16`."""
    width: NotRequired[int | None]
    """Exact width in pixels; needs `height`. Overrides `resolution` and `aspect_ratio`."""


class TunedKontextRequest(SeededRequest):
    aspect_ratio: NotRequired[str | None]
    """Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the first image's,
    else `1:1`."""
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    input_image: NotRequired[str | None]
    """The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels;
    turned upright). It sets the default ratio."""
    input_image_2: NotRequired[str | None]
    """The second image to take from. Experimental."""
    input_image_3: NotRequired[str | None]
    """The third image to take from. Experimental."""
    input_image_4: NotRequired[str | None]
    """The fourth image to take from. Experimental."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `png`."""
    prompt: str
    """Change to make, or content of a new image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""


class TunedProRequest(SeededRequest):
    finetune_id: str
    """The tuned model, by the id that its upload answered."""
    finetune_strength: NotRequired[float | None]
    """Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`."""
    guidance: NotRequired[float | None]
    """Higher keeps closer to the prompt, at the cost of realism. Default: `2.5`."""
    height: NotRequired[int | None]
    """Height in pixels, a multiple of 32. Default: `768`."""
    image_prompt: NotRequired[str | None]
    """An image to work from as from a prompt (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB
    and 20 megapixels; turned upright)."""
    interval: NotRequired[float | None]
    """Guidance is applied at every n-th step. Default: `2`."""
    output_format: NotRequired[Literal["jpeg", "png", "webp"] | None]
    """File format of the result. Default: `jpeg`."""
    prompt: NotRequired[str | None]
    """Content of the image."""
    prompt_upsampling: NotRequired[bool | None]
    """Rewrites the prompt for a more creative result. Default: `false`."""
    steps: NotRequired[int | None]
    """Denoising steps. Fewer are faster and coarser. Default: `40`."""
    width: NotRequired[int | None]
    """Width in pixels, a multiple of 32. Default: `1024`."""


class Upload(TypedDict):
    expires: float
    """Time at which the file is deleted, epoch seconds"""
    headers: dict[str, str]
    """Headers of the PUT"""
    max_bytes: int
    upload: str
    """Reference to send in place of an image or video, with a key of the same project"""
    url: str
    """Takes the file by one PUT, within 15 minutes, and needs no key"""


class UsageReport(TypedDict):
    usage: list[DailyUsage]


class ValidationErrorEntry(TypedDict):
    ctx: NotRequired[dict[str, Any] | None]
    """Violated bounds"""
    loc: list[str]
    """Location: `body`, `query`, `path` or `header`, then names of fields"""
    msg: str
    """Message for people"""
    type: str
    """Code for programs"""


class ValidationErrorResponse(TypedDict):
    code: str
    """`invalid_request`"""
    detail: list[ValidationErrorEntry]
    request_id: NotRequired[str | None]
    """Value of `x-request-id`, also in the logs"""


class Video(TypedDict):
    completed_at: NotRequired[int | None]
    created_at: int
    """Epoch seconds, like the other times"""
    error: NotRequired[VideoFailure | None]
    expires_at: NotRequired[int | None]
    """Time of deletion"""
    id: str
    model: str
    object: NotRequired[Literal["video"]]
    """Default: `video`."""
    progress: int
    """Percent"""
    prompt: NotRequired[str | None]
    """Null if it can no longer be read"""
    seconds: str
    size: str
    """`auto` while the prompt has yet to decide the ratio"""
    status: Literal["queued", "in_progress", "completed", "failed"]


class VideoFailure(TypedDict):
    code: str
    message: str


class VideoList(TypedDict):
    data: list[Video]
    first_id: str | None
    has_more: bool
    last_id: str | None
    object: NotRequired[Literal["list"]]
    """Default: `list`."""


class VideoToVideoRequest(Request):
    aspect_ratio: NotRequired[Literal["auto", "21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"] | None]
    """Ratio of width to height. `auto`: the nearest to that of the video. Default: `auto`."""
    draft: NotRequired[bool | None]
    """A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes
    the full video of. Default: `false`."""
    duration: NotRequired[int | Literal["auto"] | None]
    """Whole seconds of new video. `auto`: 5. Default: `auto`."""
    generate_audio: NotRequired[bool | None]
    """Generates sound. An extended video keeps its own sound either way. Default: `true`."""
    mode: Literal["v2v"]
    """A video goes on."""
    prompt: str
    """Content of the video and its sound: speech, sounds, music."""
    resolution: NotRequired[Literal["hd", "fhd"] | None]
    """`hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`."""
    safety_tolerance: NotRequired[int | None]
    """Moderation tolerance, 0 (strictest) to 6. 2 if omitted."""
    seed: NotRequired[int | None]
    """Seed of the video: the same request with the same seed gives the same video. Random if omitted."""
    start_video: str
    """The video to go on from: mp4 (H.264 or another common codec), as base64, `data:` URI or http(s) URL; at most
    50 MB, from 1/24 to 20 seconds long, with sides from 64 to 4096 pixels. The result begins with it, and has at
    most 20 seconds."""


Endpoint: TypeAlias = Literal[
    "gen-2-max",
    "gen-2-max-finetuned",
    "gen-2-pro",
    "gen-2-pro-finetuned",
    "gen-2-pro-preview",
    "gen-2-pro-preview-finetuned",
    "gen-3-image-klein",
    "gen-3-image-klein-finetuned",
    "gen-3-video",
    "gen-kontext-pro",
    "gen-kontext-pro-finetuned",
    "gen-pro",
    "gen-pro-1.0",
    "gen-pro-1.0-canny",
    "gen-pro-1.0-canny-finetuned",
    "gen-pro-1.0-fill",
    "gen-pro-1.0-fill-finetuned",
    "gen-pro-1.1",
    "gen-pro-finetuned",
    "gen-tools/deblur-v1",
    "gen-tools/erase-v1",
    "gen-tools/outpainting-v1",
    "gen-tools/vto-v1",
    "gen-tools/vto-v2",
]

Progress: TypeAlias = Callable[[TaskResult], None]
"""Callback that gets the task after every poll."""


# fmt: off
class Generate(Protocol[R_co]):
    """Fields that each endpoint takes. Use `submit` for endpoints that are not listed."""

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-max"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[Gen2MaxRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-max-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedGen2MaxRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-pro"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[Gen2ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-pro-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedGen2ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-pro-preview"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[Gen2ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-2-pro-preview-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedGen2ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-image-klein"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[ImageKleinRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-image-klein-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedImageKleinRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-video"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TextToVideoRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-video"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[ImageToVideoRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-video"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[VideoToVideoRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-3-video"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[DraftEnhanceRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-kontext-pro"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[KontextRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-kontext-pro-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedKontextRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.0"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.0-canny"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[CannyRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.0-canny-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedControlCannyRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.0-fill"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[FillRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.0-fill-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedFillRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-1.1"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[ProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-pro-finetuned"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TunedProRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-tools/deblur-v1"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[DeblurRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-tools/erase-v1"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[EraseRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-tools/outpainting-v1"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[OutpaintingRequest],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-tools/vto-v1"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TryOnV1Request],
    ) -> R_co: ...

    @overload
    def __call__(
        self, endpoint: Literal["gen-tools/vto-v2"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[TryOnV2Request],
    ) -> R_co: ...
