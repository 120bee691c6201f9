from __future__ import annotations

from pathlib import Path

import pytest

from training.lessons.batches import MIXES
from training.trainer.__main__ import STUDENTS, main


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["flux3", "--read-first", "9"], "has no T5"),
        (["outlined", "--further"], "no checkpoint"),
        (["decoder", "--publish"], "no checkpoint"),
        (["flux3", "--gradually"], "--gradually"),
        (["ltx2", "--further", "--gradually"], "--gradually"),
        (["kontext", "--guidance"], "--guidance"),
        (["flux", "--guidance", "--further"], "--guidance"),
    ],
)
def test_what_would_mean_nothing_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert reason in capsys.readouterr().err


def test_every_model_of_pictures_has_lessons() -> None:
    assert set(MIXES) == set(STUDENTS) - {"ltx2"}


def test_a_course_that_is_done_leaves_no_state_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("training.trainer.__main__.publish", written.append)
    main(["flux3", "--further", "--steps", "1"])
    assert len(written) == 1
    assert list(tmp_path.rglob("*.pt")) == []


def test_nor_does_that_of_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("training.trainer.decoder.write_weights", lambda decoder, bundle: written.append(decoder))
    monkeypatch.setattr("training.trainer.decoder.quality", lambda *of, **how: "good")
    main(["decoder", "--steps", "1"])
    assert len(written) == 1
    assert list(tmp_path.rglob("*.pt")) == []
