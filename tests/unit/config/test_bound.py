"""Settings of deployments: bound without secrets, completed where replicas run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from serve_app.config import settings
from serve_app.config.replicas import SECRETS, BoundSettings, MissingSecret, WithheldOptions, complete
from serve_app.config.settings import Settings
from serve_app.encryption import new_key

REDIS = "rediss://:a-password@redis.example.com:6379/0"
KEY = new_key()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), "service": {"port": 8123}}))
    return path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("GEN_REDIS__URL", REDIS)
    monkeypatch.setenv("GEN_SEALING__KEYS", f'["{KEY}"]')
    monkeypatch.setenv("GEN_OBJECTS__URL", "s3://bucket/gen")
    monkeypatch.setenv(
        "GEN_OBJECTS__OPTIONS", '{"region": "eu-central-1", "access_key_id": "AKIA", "secret_access_key": "s3cret"}'
    )
    return monkeypatch


def test_bound_settings_keep_unset_fields_and_drop_the_metrics_token(
    config: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("GEN_METRICS", '{"host": "0.0.0.0", "token": "shown", "projects": 3}')
    model = {"max_running": 6, "autoscaling_config": {"target_ongoing_requests": 3}}
    environment.setenv("GEN_MODELS", json.dumps({"model": model}))
    bound = BoundSettings.from_settings(settings.load(config)).settings()
    assert bound.models["model"].model_fields_set == {"max_running", "autoscaling_config"}
    assert (bound.metrics.projects, bound.metrics.token) == (3, None)


def test_bound_settings_hold_no_secret_and_find_them_again(config: Path, environment: pytest.MonkeyPatch) -> None:
    loaded_settings = settings.load(config)
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(loaded_settings)
    bound = pickle.dumps(BoundSettings.from_settings(loaded_settings))
    assert not [secret for secret in ("a-password", KEY, "s3cret", "AKIA") if secret.encode() in bound]
    assert b"eu-central-1" in bound
    whole = pickle.loads(bound).settings()
    assert whole.redis_url == REDIS
    assert whole.sealing_keys == [KEY]
    assert whole.objects == loaded_settings.objects
    for section in ("service", "accounts", "data_dir"):
        assert getattr(whole, section) == getattr(loaded_settings, section)


def test_environment_of_a_replica_changes_only_secrets(config: Path, environment: pytest.MonkeyPatch) -> None:
    bound = BoundSettings.from_settings(settings.load(config))
    environment.setenv("GEN_SERVICE__PORT", "9999")
    environment.setenv("GEN_REDIS__URL", "rediss://:rotated@redis.example.com:6379/0")
    assert (bound.settings().service.port, bound.settings().redis_url[:17]) == (8123, "rediss://:rotated")


@pytest.mark.parametrize("name", ["GEN_REDIS__URL", "GEN_SEALING__KEYS", "GEN_OBJECTS__OPTIONS"])
def test_node_without_a_secret_names_it(config: Path, environment: pytest.MonkeyPatch, name: str) -> None:
    bound = BoundSettings.from_settings(settings.load(config))
    environment.delenv(name)
    with pytest.raises(MissingSecret, match=f"this node has no .*{name}"):
        bound.settings()


@pytest.fixture
def generated(tmp_path: Path) -> None:
    """The secrets that an earlier service made on this machine."""
    (tmp_path / "data/redis").mkdir(parents=True)
    (tmp_path / "data/redis/url").write_text("redis://:made@127.0.0.1:1/0")
    (tmp_path / "data/sealing-key").write_text(f"{KEY}\n")


@pytest.mark.usefixtures("generated")
def test_generated_secret_of_another_service_is_ignored(config: Path, environment: pytest.MonkeyPatch) -> None:
    bound = BoundSettings.from_settings(settings.load(config))
    environment.delenv("GEN_REDIS__URL")
    with pytest.raises(MissingSecret, match=r"redis\.url"):
        bound.settings()


@pytest.mark.usefixtures("generated")
def test_generated_secrets_are_found_in_the_data_folder(config: Path) -> None:
    bound = BoundSettings.from_settings(complete(settings.load(config)))
    assert (b"made@" in pickle.dumps(bound), KEY.encode() in pickle.dumps(bound)) == (False, False)
    assert bound.settings().redis_url == "redis://:made@127.0.0.1:1/0"
    assert bound.settings().sealing_keys == [KEY]


def test_missing_required_secret_is_an_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"redis\.url is not set.*GEN_REDIS__URL"):
        complete(settings.load(config))
    monkeypatch.setenv("GEN_REDIS__URL", REDIS)
    with pytest.raises(ValueError, match=r"sealing\.keys is empty.*gen-serve init"):
        complete(settings.load(config))


def test_secrets_dir_comes_between_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, config = tmp_path / "secrets", tmp_path / "config.yaml"
    folder.mkdir()
    (folder / "GEN_REDIS__URL").write_text(f"{REDIS}\n")
    (folder / "GEN_SEALING__KEYS").write_text(f'["{KEY}"]')
    values = {"secrets_dir": str(folder), "redis": {"url": "redis://written", "prefix": "mine:"}}
    config.write_text(yaml.safe_dump(values))
    loaded_settings = settings.load(config)
    assert (loaded_settings.redis.url, loaded_settings.redis.prefix) == (REDIS, "mine:")
    assert loaded_settings.sealing_keys == [KEY]
    assert BoundSettings.from_settings(loaded_settings).settings().redis == loaded_settings.redis
    monkeypatch.setenv("GEN_REDIS__URL", "redis://environment")
    assert settings.load(config).redis.url == "redis://environment"
    monkeypatch.setenv("GEN_SECRETS_DIR", "/nowhere/secrets")
    with pytest.raises(ValueError, match="no such folder: /nowhere/secrets"):
        settings.load(config)


def test_models_read_store_secrets_where_they_run(config: Path, environment: pytest.MonkeyPatch) -> None:
    withheld = WithheldOptions.from_settings(settings.load(config))
    assert withheld is not None
    assert b"s3cret" not in pickle.dumps(withheld)
    assert withheld() == {"access_key_id": "AKIA", "secret_access_key": "s3cret"}
    environment.delenv("GEN_OBJECTS__OPTIONS")
    with pytest.raises(MissingSecret, match=r"objects\.options"):
        withheld()
    assert WithheldOptions.from_settings(settings.load(config)) is None


def test_every_secret_field_is_known() -> None:
    """An unknown one would be bound as stars."""
    assert set(_secret_fields(Settings, "")) <= {*SECRETS, "metrics.token"}


def _secret_fields(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        for part in _parts(field.annotation):
            if part is SecretStr:
                yield f"{path}{name}"
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _secret_fields(part, f"{path}{name}.")


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _parts(part)
