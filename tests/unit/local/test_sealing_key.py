"""The key that a service without one in its settings keeps for itself."""

from __future__ import annotations

import stat
from pathlib import Path

from serve_app.config.settings import Settings
from serve_app.encryption import new_key
from serve_app.launcher.first_start import with_key, with_key_if_made


def test_it_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert not with_key_if_made(settings).has_sealing_keys
    first = with_key(settings).sealing_keys
    assert with_key(settings).sealing_keys == with_key_if_made(settings).sealing_keys == first
    assert stat.S_IMODE((tmp_path / "sealing-key").stat().st_mode) == 0o600


def test_keys_of_the_settings_come_first(tmp_path: Path) -> None:
    key = new_key()
    chosen = {"data_dir": tmp_path, "sealing": {"keys": [key]}}
    assert with_key(Settings.model_validate(chosen)).sealing_keys == [key]
    assert list(tmp_path.iterdir()) == []
