"""Settings and the catalog: sources, validation, error messages, and the reference that is generated from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from serve_app.config import catalog, reference, settings
from serve_app.config.model_settings import ModelSettings
from serve_app.config.prices import EndpointPrice
from serve_app.config.settings import ServiceSettings, Settings
from serve_app.config.specs import model_spec
from serve_app.inputs.settings import IMAGES, VIDEOS
from serve_app.schemas.defaults import ModelDefaults
from serve_app.schemas.image_klein import MAX_REFERENCES
from serve_app.schemas.video import MAX_KEYFRAMES


def _config(folder: Path, content: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(content)
    return path


PROFILES = ("local", "single-gpu", "gpu-24gb", "gpu-48gb", "gpu-141gb", "cluster")


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_is_valid(repository: Path, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    profile_settings = settings.load(Path(f"configs/{profile}.yaml"))
    endpoints = catalog.load(profile_settings).endpoints
    assert endpoints
    assert all(profile_settings.model(model).enabled for each in endpoints.values() for model in each.models)
    assert set(profile_settings.models) == set(
        catalog.load(Settings(catalog=repository / "configs/catalog.yaml")).models
    )


def test_largest_request_fits_the_default_body_limit() -> None:
    image, video = (limits.max_bytes * 4 // 3 + 4 for limits in (IMAGES, VIDEOS))
    images = max(MAX_REFERENCES, MAX_KEYFRAMES) * image
    assert max(images, video) + 64 * 1024 < ServiceSettings().max_body_mb * 2**20


def test_models_of_the_local_profile_make_previews(repository: Path) -> None:
    local = settings.load(repository / "configs/local.yaml")
    local_catalog = catalog.load(local.model_copy(update={"catalog": repository / "configs/catalog.yaml"}))
    denoised = [name for name in local_catalog.models if local.model(name).backend in (None, "diffusion")]
    assert [name for name in denoised if local.model(name).preview_every is None] == []


def test_environment_overrides_the_file(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_SERVICE__PORT", "9000")
    loaded = settings.load(repository / "configs/local.yaml")
    assert loaded.service.port == 9000
    assert loaded.service.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("service: {port: 1}\n\nservice:\n  host: x", r"config\.yaml:3: service stands here and in line 1"),
        ("models:\n  m:\n    steps: 4\n    device: cpu\n    steps: 8", r":5: steps stands here and in line 3"),
        ("webhooks: &a {claim_s: 1}\nb: {<<: *a, x: 1, x: 2}", r":2: x stands here"),
        ("a: [{b: 1}, {c: 1, c: 2}]", r":1: c stands here"),
        ("service:\n  prot: 1", r"config\.yaml:2: service\.prot: there is no setting prot: did you mean port"),
        ("servce: {}", r"config\.yaml:1: servce: there is no setting servce: did you mean service"),
        ("ray:\n  nodes: 1", r":2: ray\.nodes: there is no setting nodes: there are address, num_cpus"),
        ("models:\n  m:\n    matting:\n      bakcend: x", r":4: models\.m\.matting\.bakcend: .*did you mean backend"),
        ("service:\n  port: many", r":2: service\.port: Input should be a valid integer"),
        ("- 1", "names and values"),
        ("a: [", "YAML"),
        ("extends: config.yaml", "extends: the file extends itself"),
        ("extends: nowhere.yaml", r"no such config file: .*nowhere\.yaml"),
        ("service: {host: 0.0.0.0}", r"public_url must be set where host is not loopback, but 0\.0\.0\.0: the address"),
        ("service: {public_url: media.example.com}", "public_url"),
        ("service: {public_url: https://example.com/media}", "the service answers at the root of its host"),
        ("service: {allowed_hosts: ['https://media.example.com']}", "without scheme, port and path"),
        ("service: {cors_origins: [example.com]}", "must be an origin in lower case"),
        ("service: {regions: {us: us.example.com}}", "must be a URL, like https://us"),
        ("service: {max_body_mb: 2000}", "max_inflight_mb"),
        *((f"service: {{path_aliases: ['{alias}']}}", "path_aliases") for alias in ("Flux", "a/b", "a-b", "")),
        ("metrics: {grafana_url: grafana}", "must be a URL, like https://grafana"),
        ("metrics: {host: '::'}", "token must be set where host is not loopback"),
        ("tracing: {endpoint: 'collector:4318'}", "must be a URL with a path"),
        ("logs: {format: yaml}", "'text' or 'json'"),
        ("logs: {levels: {serve_app.dispatcher: loud}}", "a level is one of debug, info"),
        ("logs: {levels: {redis: debug}}", "begins with serve_app"),
        (
            "models: {m: {max_running: 4, autoscaling_config: {max_replicas: 2, target_ongoing_requests: 3}}}",
            "target_ongoing_requests",
        ),
        ("models: {m: {autoscaling_config: {max_replicas: 2, downscale_delay_s: 5}}}", "downscale_delay_s"),
        (
            "models: {m: {autoscaling_config: {min_replicas: 3}}}",
            r"min_replicas \(3\) must be at most max_replicas \(1\)",
        ),
        (
            "models: {m: {max_batch: 8, max_running: 4, autoscaling_config: {target_ongoing_requests: 2}}}",
            "at most max_running",
        ),
        ("models: {m: {ray_actor_options: {num_gpu: 1}}}", "unknown: num_gpu; expected some of accelerator_type"),
        ("models: {m: {ray_actor_options: {num_gpus: -1}}}", r"num_gpus must be a number of at least 0, not -1"),
        ("models: {m: {text_encoder: t5}}", r"models\.m\.text_encoder: no 't5' in text_encoders \(there is none\)"),
        ("models: {m: {cfg: {scale: 2, interval: [0.9, 0.5]}}}", "the first flow time must be at most the second"),
        ("models: {m: {backend: magic}}", "must be one of diffusion, diffusers, engine, telea"),
        ("models: {m: {matting: {backend: magic}}}", "must be one of grabcut"),
        (
            "moderation: {ray_actor_options: {resources: {small: lots}}}",
            "small must be a number of at least 0, not 'lots'",
        ),
    ],
)
def test_mistake_is_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        settings.load(_config(tmp_path, content))


def test_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        settings.load(tmp_path / "nowhere.yaml")


def test_file_overrides_the_one_it_extends_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "gpu_gb: 84\nmodels: {m: {device: cuda, ray_actor_options: {num_cpus: 2, num_gpus: 0.5}}}"
    )
    content = "extends: base.yaml\nmodels: {m: {ray_actor_options: {num_gpus: 1}}}"
    loaded = settings.load(_config(tmp_path, content))
    assert (loaded.gpu_gb, loaded.model("m").device) == (84, "cuda")
    assert loaded.model("m").ray_actor_options == {"num_cpus": 2, "num_gpus": 1}
    (tmp_path / "base.yaml").write_text("webhooks:\n  jiter: 1")
    with pytest.raises(ValueError, match=r"base\.yaml:2: webhooks\.jiter: .*did you mean jitter"):
        settings.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(("output_mp", "input_mp", "credits"), [(0.2, 0, 0.9), (4, 0, 1.44), (1.01, 2.5, 1.38)])
def test_prices_follow_the_formula(repository: Path, output_mp: float, input_mp: float, credits: float) -> None:
    served_catalog = catalog.load(Settings(catalog=repository / "configs/catalog.yaml"))
    price = served_catalog.endpoints["gen-3-image-klein"].price
    assert price.millicredits(int(output_mp * 2**20), int(input_mp * 2**20)) == round(credits * 1000)


def make_catalog(**endpoint: Any) -> catalog.Catalog:
    """Returns a catalog with one endpoint on a model of 4 steps, and two further models."""
    models = {
        "m": {"checkpoint": "x", "steps": 4, "guidance": 2},
        "small": {"backend": "telea"},
        "stepless": {"checkpoint": "x"},
    }
    own = {"model": "m", "request": "kontext", "price": {"first": 2}, "safety": {"approved": 2}}
    return catalog.Catalog.model_validate({"models": models, "endpoints": {"gen-x": own | endpoint}})


def test_profile_overrides_steps_and_guidance() -> None:
    served_catalog = make_catalog()
    endpoint = served_catalog.endpoints["gen-x"]
    assert served_catalog.defaults(endpoint, Settings()) == {"": ModelDefaults("m", steps=4, guidance=2)}
    profile = Settings(models={"m": ModelSettings(steps=3, guidance=1.5)})
    assert served_catalog.defaults(endpoint, profile) == {"": ModelDefaults("m", steps=3, guidance=1.5)}


def test_modes_have_models_steps_and_prices_of_their_own() -> None:
    modes = {"fast": {"model": "small", "price": {"first": 1}}, "high": {"steps": 40, "guidance": 3.5}}
    served_catalog = make_catalog(request="outpainting", instruction="Extend.", modes=modes)
    endpoint = served_catalog.endpoints["gen-x"]
    assert served_catalog.defaults(endpoint, Settings()) == {
        "fast": ModelDefaults("small", steps=1),  # reads no prompts
        "high": ModelDefaults("m", steps=40, guidance=3.5, instruction="Extend."),
    }
    assert [endpoint.get_price(mode).first for mode in ("fast", "high")] == [1, 2]


VIDEO_MODES: dict[str, Any] = {"full": {}, "draft": {}, "enhance": {}}


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ({"request": "video", "modes": VIDEO_MODES, "finetuned": {}}, "tuned"),
        ({"model": "nowhere"}, "nowhere"),
        ({"model": "stepless"}, r"models\.stepless\.steps"),
        ({"request": "outpainting", "modes": {"fast": {}, "high": {"model": "big"}}}, "there is no model big"),
        ({"request": "outpainting", "modes": {}}, "modes must be"),
        ({"request": "outpainting", "modes": {"fast": {}, "high": {}, "slow": {}}}, "modes must be"),
        ({"modes": {"fast": {}}}, "modes must be"),
        ({"safety": {"approved": 7}}, r"safety\.approved must be at most 6"),
        ({"deprecated": {"since": "2026-01-01", "sunset": "2025-01-01"}}, "sunset"),
    ],
)
def test_contradictory_endpoint_is_refused(endpoint: dict[str, Any], message: str) -> None:
    assert make_catalog(request="video", modes=VIDEO_MODES).endpoints["gen-x"].highest_tolerance == 6
    with pytest.raises(ValidationError, match=message):
        make_catalog(**endpoint)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"backend": "engine"}, "engine is needed for backend: engine"),
        ({"engine": {"kind": "sglang", "url": "http://a"}}, "engine is needed for backend: engine"),
        (
            {"backend": "engine", "engine": {"kind": "sglang", "url": "http://a"}, "dtype": "float16"},
            "dtype must be left out",
        ),
        ({"backend": "telea", "text_encoder": "flux"}, r"models\.m\.text_encoder must be null: telea reads no prompts"),
        ({"checkpoint": "simulated/5ms", "cfg": {"scale": 2}}, r"models\.m\.cfg must be null: simulated/5ms reads no"),
    ],
)
def test_setting_without_meaning_for_the_backend_is_refused(model: dict[str, Any], message: str) -> None:
    own = Settings.model_validate({"text_encoders": {"flux": {"checkpoint": "bundled/flux"}}, "models": {"m": model}})
    with pytest.raises(ValueError, match=message):
        model_spec("m", make_catalog(), own, None)


def test_only_output_is_priced_by_the_second() -> None:
    for per_second, output in ((True, 12), (False, 3)):
        price = EndpointPrice(first=2, out=1, input=0.5, per_second=per_second)
        assert price.millicredits(2 * 2**20, 3 * 2**20, 4) == 1000 * (output + 1.5)


def test_merged_keys_may_be_overridden(tmp_path: Path) -> None:
    content = "models: {a: &a {steps: 4, device: cpu}, b: {<<: *a, steps: 8}}"
    loaded = settings.load(_config(tmp_path, content))
    assert (loaded.model("b").steps, loaded.model("b").device) == (8, "cpu")


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("GEN_SERVCE__PORT", "GEN_SERVCE__PORT: there is no setting servce: did you mean GEN_SERVICE__PORT"),
        ("GEN_SERVICE__PROT", "GEN_SERVICE__PROT: service.prot: .*did you mean port"),
        ("GEN_SERVICE__PORT", "GEN_SERVICE__PORT: service.port: Input should be a valid integer"),
        ("GEN_SERVICE__ALLOWED_HOSTS", "the variable of allowed_hosts must be JSON"),
    ],
)
def test_mistake_in_a_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:80")
    with pytest.raises(ValueError, match=message):
        settings.load(_config(tmp_path, "service: {port: 1}"))


def test_service_variables_of_kubernetes_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEN_PORT", "GEN_SERVICE_PORT", "GEN_SERVE_PORT_8000_TCP", "GEN_CONFIG"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    assert settings.load(_config(tmp_path, "service: {port: 81}")).service.port == 81


def test_unknown_file_in_secrets_dir_is_named(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "GEN_REDS__URL").write_text("redis://localhost")
    with pytest.raises(ValueError, match=r"secrets/GEN_REDS__URL: .*did you mean GEN_REDIS__URL"):
        settings.load(_config(tmp_path, f"secrets_dir: {tmp_path}/secrets"))


def test_mistake_in_the_catalog_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "catalog.yaml").write_text("endpoints: {}\nmodels:\n  a:\n    chekpoint: x")
    with pytest.raises(ValueError, match=r"catalog\.yaml:4: models\.a\.chekpoint: .*did you mean checkpoint"):
        catalog.load(Settings(catalog=tmp_path / "catalog.yaml"))


def test_model_that_is_not_in_the_catalog_is_named(tmp_path: Path, repository: Path) -> None:
    path = _config(tmp_path, f"catalog: {repository}/configs/catalog.yaml\nmodels:\n  flux3-klien: {{}}")
    with pytest.raises(ValueError, match=r"config\.yaml:3: models\.flux3-klien: .*did you mean flux3-klein"):
        catalog.load(settings.load(path))


@pytest.mark.parametrize(
    ("path", "write"),
    [(reference.LOCAL, reference.local_yaml), (reference.PAGE, reference.page)],
    ids=["local", "page"],
)
def test_comments_and_table_are_current(path: Path, write: Callable[[str], str]) -> None:
    assert write(path.read_text()) == path.read_text(), "make settings"


def test_every_setting_has_a_description() -> None:
    assert [row for row in reference.table().splitlines() if row.endswith("|  |")] == []


def test_json_schema_is_current_and_accepts_the_profiles(repository: Path) -> None:
    schema = json.loads(reference.SCHEMA.read_text())
    assert reference.schema() == schema, "make settings"
    for profile in ("local", "single-gpu", "cluster"):
        jsonschema.validate(yaml.safe_load((repository / f"configs/{profile}.yaml").read_text()), schema)
