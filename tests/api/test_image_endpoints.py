"""Image endpoints before generation 3: prompts, sizes, images, masks, aliases, regions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from image_endpoints import ENDPOINTS, GEN_2, IMAGE_FIELDS, MASK, MINIMAL, PHOTO
from PIL import Image
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.images import image_base64, image_file, to_base64
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import MINIMAL as TOOLS

from serve_app.api.app import create_app
from serve_app.config import catalog
from serve_app.config.model_settings import ModelSettings, RewriterSettings
from serve_app.config.settings import ServiceSettings, Settings

FILL, CANNY = "gen-pro-1.0-fill", "gen-pro-1.0-canny"
MAX_SEED = 2**64 - 1


# Prompts


@promise("Decided: submission", "`prompt_upsampling` and `disable_pup` accepted as opposites on non-strict routes.")
@pytest.mark.parametrize(
    ("endpoint", "body", "rewrite"),
    [
        *((name, {"disable_pup": True}, False) for name in GEN_2),
        ("gen-2-pro", {"prompt_upsampling": False}, False),
        *((name, {"disable_pup": False}, True) for name in ENDPOINTS[3:]),
        # The endpoint's own field counts.
        ("gen-2-max", {"disable_pup": True, "prompt_upsampling": True}, False),
        ("gen-2-max", {"disable_pup": False, "prompt_upsampling": False}, True),
        ("gen-pro", {"disable_pup": False, "prompt_upsampling": False}, False),
        # An unknown field of the wrong kind is still only an unknown field.
        ("gen-2-pro", {"disable_pup": "x"}, True),
        ("gen-pro", {"disable_pup": "x"}, False),
    ],
)
def test_opposite_fields_decide_about_rewriting(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], rewrite: bool
) -> None:
    assert worker.job(client.order_task(endpoint, **MINIMAL[endpoint], **body))["rewrite"] is rewrite


@pytest.mark.parametrize(
    ("rewriter", "has_no_effect"),
    [
        (RewriterSettings(), {"prompts": False, "edits": False}),
        (RewriterSettings(asked_for=("prompts", "ratios")), {"prompts": False, "edits": True}),
        (RewriterSettings(asked_for=("edits",)), {"prompts": True, "edits": False}),
        (RewriterSettings(enabled=False), {"prompts": True, "edits": True}),
    ],
)
def test_rewriting_without_effect_is_warned_of(
    start_service: StartService, rewriter: RewriterSettings, has_no_effect: dict[str, bool]
) -> None:
    service = start_service(rewriter=rewriter)
    with service.client() as client:
        for endpoint, kind in (("gen-2-pro", "prompts"), ("gen-pro", "prompts"), (FILL, "edits")):
            for requested in ({"prompt_upsampling": True}, {"disable_pup": False}, {}):
                body = MINIMAL[endpoint] | {"prompt": "a star"} | requested
                answer = client.order(endpoint, **body).json()
                warned = any("prompt_upsampling" in each for each in answer.get("warnings", []))
                assert warned == (bool(requested) and has_no_effect[kind]), (endpoint, requested, answer)
                assert service.worker.job(answer["id"])["rewrite"] or not requested


@pytest.mark.parametrize(
    ("endpoint", "field", "value", "advice"),
    [
        ("gen-kontext-pro", "image_url", "https://example.com/cat.png", "did you mean input_image?"),
        ("gen-2-pro", "images", ["https://example.com/cat.png"], "did you mean input_image?"),
        ("gen-kontext-pro", "aspect_ration", "16:9", "did you mean aspect_ratio?"),
        ("gen-2-pro", "num_images", 4, "a task makes one image; send several, or n to /v1/images/generations"),
    ],
)
def test_unknown_field_like_a_known_one_is_warned_of(
    client: Client, endpoint: str, field: str, value: object, advice: str
) -> None:
    answer = client.order(endpoint, prompt="a cat", **{field: value}).json()
    assert answer["warnings"] == [f"{field} is not a field of this endpoint and was ignored: {advice}"]


def test_number_in_quotes_is_named_a_string(client: Client) -> None:
    for value, expected in (("42", '"42" is a string; send 42'), ("x", "Input should be a valid integer")):
        [entry] = client.order("gen-2-pro", prompt="a cat", seed=value).json()["detail"]
        assert entry["msg"] == expected


# Sizes, prices and versions


@pytest.mark.parametrize(
    ("endpoint", "body", "size"),
    [
        ("gen-2-max", {"width": 1001, "height": 67}, (1001, 67)),
        ("gen-2-max", {"input_image_3": to_base64(image_file(70, 90)), "input_image_7": PHOTO}, (70, 90)),
        ("gen-2-max", {"input_image": to_base64(image_file(32, 48))}, (64, 96)),
        ("gen-kontext-pro", {"input_image": to_base64(image_file(300, 200))}, (1254, 836)),
        (FILL, {name: to_base64(image_file(333, 77, white=True)) for name in ("image", "mask")}, (333, 77)),
        (CANNY, {"control_image": to_base64(image_file(333, 77))}, (333, 77)),
        (CANNY, {"preprocessed_image": to_base64(image_file(80, 70))}, (80, 70)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_result_has_the_size_of_the_request(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], size: tuple[int, int]
) -> None:
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint] | body))
    assert (job["width"], job["height"]) == size


@promise(
    "What the service does",
    "Submission responses of some endpoints carry a cost estimate and megapixel counts; the final polling "
    "response carries the settled cost.",
)
@pytest.mark.parametrize(("endpoint", "cost"), [("gen-2-max", 7), ("gen-pro", 5)])
def test_poll_shows_settled_cost_and_wide_seed(client: Client, worker: Worker, endpoint: str, cost: float) -> None:
    task_id = client.order_task(endpoint, **MINIMAL[endpoint], seed=MAX_SEED)
    worker.deliver(task_id, image_file(form="JPEG"))
    polled = client.poll(task_id).json()
    assert (polled["cost"], polled["result"]["seed"]) == (cost, MAX_SEED)


@promise("Versioning", "`gen-2-pro` is a fixed snapshot for reproducible workflows")
def test_snapshot_has_a_pinned_revision(service: Service) -> None:
    catalog = service.app.state.services.catalog
    assert catalog.models[catalog.endpoints["gen-2-pro"].model].revision
    assert catalog.models[catalog.endpoints["gen-2-pro-preview"].model].revision is None


@promise(
    "Decided: tuned models",
    "Deprecated endpoints answer as before and add the headers `Deprecation` and, where a date is set, "
    "`Sunset` (RFC 9745, RFC 8594).",
)
def test_every_answer_of_a_deprecated_endpoint_says_so(client: Client) -> None:
    for response in (client.order(CANNY, **MINIMAL[CANNY]), client.order(CANNY), client.get(f"/v1/{CANNY}")):
        assert response.headers["deprecation"] == "@1761868800"
        assert "sunset" not in response.headers


# Images


@pytest.mark.parametrize(("endpoint", "field"), IMAGE_FIELDS)
def test_image_reaches_its_role_in_the_job(
    client: Client, worker: Worker, web: Website, endpoint: str, field: str
) -> None:
    url = web.set_page(f"/{endpoint}/{field}", image_file(96, 64, form="WEBP", white=field == "mask"))
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint] | {field: url}))
    role = {"mask": "mask", "image_prompt": "image_prompt"}.get(field, "control" if endpoint == CANNY else "references")
    assert job[role]
    keys = {*job["references"], job["mask"], job["control"], job["image_prompt"]} - {None}
    assert len(keys) == (2 if endpoint == FILL else 1)


def test_image_prompt_needs_a_model_that_reads_one(start_service: StartService) -> None:
    models = {"flux1-dev": ModelSettings(checkpoint="bundled/kontext")}
    with start_service(models=models).client() as client:
        response = client.order("gen-pro", prompt="a cat", image_prompt=PHOTO)
        assert problems(response) == [(["body", "image_prompt"], "image_prompt_not_available")]
        client.order_task("gen-pro", prompt="a cat")


# Masks


def get_mask(client: Client, worker: Worker, **body: Any) -> Image.Image:
    key = worker.job(client.order_task(FILL, **{"image": PHOTO} | body))["mask"]
    return Image.open(io.BytesIO(worker.run(worker.objects.get(key))))


def make_cut_out(box: tuple[int, int, int, int]) -> str:
    """Returns a white image that is transparent except in a box."""
    image = Image.new("RGBA", (96, 64), (255, 255, 255, 0))
    image.paste((255, 255, 255, 255), box)
    return image_base64(image)


def test_transparent_part_of_a_mask_is_black(client: Client, worker: Worker) -> None:
    mask = get_mask(client, worker, mask=make_cut_out((0, 0, 10, 64)))
    assert (mask.mode, mask.format, mask.size) == ("L", "PNG", (96, 64))
    assert (np.asarray(mask)[:, :10] == 255).all()
    assert (np.asarray(mask)[:, 10:] == 0).all()


@pytest.mark.parametrize("mask", [Image.new("L", (96, 64), 127), Image.new("RGB", (96, 64), (255, 0, 0))])
def test_mask_that_selects_nothing_is_rejected(client: Client, service: Service, mask: Image.Image) -> None:
    with service.assert_unchanged():
        response = client.order(FILL, image=PHOTO, mask=image_base64(mask))
    assert problems(response) == [(["body", "mask"], "mask_empty")]


@promise("6. gen-pro-1.0-fill", "optional when the image has an alpha mask")
def test_mask_overrides_transparency_of_the_image(client: Client, worker: Worker) -> None:
    image = make_cut_out((10, 20, 30, 40))
    alpha = np.asarray(get_mask(client, worker, image=image))
    assert (alpha[20:40, 10:30] == 0).all()
    assert alpha.sum() == 255 * (96 * 64 - 20 * 20)
    assert get_mask(client, worker, image=image, mask=MASK).getbbox() == (24, 16, 72, 48)


@promise("Decided: submission", "Fill: `input_image` accepted as a synonym of `image`.")
def test_image_precedes_its_synonym(client: Client, worker: Worker) -> None:
    other = to_base64(image_file(80, 70))
    assert get_mask(client, worker, image=None, input_image=PHOTO, mask=MASK).size == (96, 64)
    assert get_mask(client, worker, input_image=other, mask=MASK).size == (96, 64)


# Aliases and regions


@promise(
    "Decided: submission",
    "configurable list of family tokens that route to the same handlers (default none: `gen` only)",
)
def test_alias_leads_to_the_same_endpoint(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(path_aliases=["flux", "other"]))
    bodies = MINIMAL | TOOLS | {"gen-3-image-klein": {"prompt": "x"}}
    with service.client() as client:
        for endpoint, body in bodies.items():
            alias = endpoint.replace("gen", "flux", 1)
            reply = client.order(alias, **body)
            assert reply.status_code == 200, alias
            priced = client.post("/v1/pricing", json={"path": f"/v1/{alias}", "body": body}).json()["cost"]
            assert reply.json()["cost"] in (priced, None)
        client.order_task("other-2-pro", prompt="x")
        client.order_task("gen-2-pro", prompt="x")
        assert client.order("flux-pro-1.0-canny").headers["deprecation"]
        assert client.get("/v1/flux-tools/erase-v1").status_code == 405
        assert client.get("/v1/models/flux-kontext-pro").json()["id"] == "gen-kontext-pro"
        for path in ("fluxx-pro", "flux", "flux-", "flux-none", "xflux-pro", "flux-tools/nonsense"):
            assert refusal(client.order(path, prompt="x"), 404) == "Not Found", path
        assert "flux" not in client.get("/openapi.json").text
        listed = client.get("/v1/tasks", params={"limit": 100}).json()["tasks"]
        assert sorted(task["endpoint"] for task in listed) == sorted([*bodies, "gen-2-pro", "gen-2-pro"])


REGIONS = {"eu": "https://eu.test", "us": "https://us.test/"}


@pytest.fixture
def regional(repository: Path, tmp_path: Path) -> Path:
    """The catalog with one endpoint in one region and another in two."""
    path = repository / "configs/catalog.yaml"
    content = yaml.safe_load(path.read_text())
    content["endpoints"]["gen-pro"]["regions"] = ["us"]
    content["endpoints"]["gen-2-pro"]["regions"] = ["us", "eu"]
    copy = tmp_path / "catalog.yaml"
    copy.write_text(yaml.safe_dump(content))
    return copy


@promise(
    "Decided: regions",
    "`regions:` in the config lists base URLs by name; a `-finetuned` endpoint may be served only there.",
)
def test_endpoint_of_another_region_names_its_address(start_service: StartService, regional: Path) -> None:
    service = start_service(catalog=regional, service=ServiceSettings(region="eu", regions=REGIONS))
    with service.client() as client:
        detail = "Not served in region eu; this endpoint is at https://us.test/v1/gen-pro"
        assert refusal(client.order("gen-pro"), 404) == detail
        client.order_task("gen-2-pro", prompt="x")
        client.order_task("gen-2-max", prompt="x")
        assert "/v1/gen-pro" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("region", ["us", None])
def test_own_region_or_none_serves_all_endpoints(regional: Path, region: str | None) -> None:
    settings = Settings(catalog=regional, service=ServiceSettings(region=region, regions=REGIONS))
    assert "/v1/gen-pro" in create_app(settings, catalog.load(settings)).openapi()["paths"]


def test_region_without_an_address_is_rejected(regional: Path) -> None:
    with pytest.raises(ValueError, match="region 'asia'"):
        ServiceSettings(region="asia", regions=REGIONS)
    settings = Settings(catalog=regional, service=ServiceSettings(region="eu", regions={"eu": "https://eu.test"}))
    with pytest.raises(ValueError, match=r"gen-.*regions"):
        catalog.load(settings)
