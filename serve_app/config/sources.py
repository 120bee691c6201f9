"""Where settings come from: the environment, files of `secrets_dir`, settings files; the first first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    YamlConfigSettingsSource,
)
from pydantic_settings.sources.utils import parse_env_vars


def variable(name: str) -> str:
    """Of a setting, what the environment calls it: `GEN_REDIS__URL`."""
    return f"GEN_{name.upper().replace('.', '__')}"


def embedded_url_file(data_dir: Path) -> Path:
    """Where the embedded server says how to reach it, for as long as it runs."""
    return data_dir / "redis" / "url"


def sealing_key_file(data_dir: Path) -> Path:
    return data_dir / "sealing-key"


class SecretFiles(EnvSettingsSource):
    """Files of a folder, each named and written as its environment variable."""

    def __init__(self, settings_cls: type[BaseSettings], folder: Path) -> None:
        self._folder = folder
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        if not self._folder.is_dir():
            raise ValueError(f"secrets_dir: there is no such folder: {self._folder}")
        files = {path.name: path.read_text().strip() for path in self._folder.glob("GEN_*") if path.is_file()}
        return parse_env_vars(files, self.case_sensitive)


def settings_files(config: Path | None) -> list[Path]:
    """A settings file after the one that it `extends`; those that are there. Raises YAMLError."""
    if config is None or not config.is_file():
        return []
    base = (yaml.safe_load(config.read_text()) or {}).get("extends")
    return [*(settings_files(config.parent / base) if base else ()), config]


def sources(
    settings_cls: type[BaseSettings],
    environment: PydanticBaseSettingsSource,
    config: Sequence[Path],
    secrets_dir: Path | None,
) -> tuple[PydanticBaseSettingsSource, ...]:
    """The sources of settings; of the settings files a later one goes before."""
    files = () if secrets_dir is None else (SecretFiles(settings_cls, secrets_dir),)
    written = [YamlConfigSettingsSource(settings_cls, yaml_file=list(config), deep_merge=True)] if config else ()
    return (environment, *files, *written)
