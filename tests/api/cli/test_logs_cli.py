"""The commands that say how much a running service logs."""

from __future__ import annotations

from support.command_line import GenServe


def test_a_level_is_set_listed_and_taken_back(gen_serve: GenServe) -> None:
    assert gen_serve("logs", "level", "serve_app.dispatcher", "debug").out == "serve_app.dispatcher: debug\n"
    assert gen_serve("logs", "level", "deployments", "warning").code == 0
    assert gen_serve("logs", "levels").table == [["deployments", "warning"], ["serve_app.dispatcher", "debug"]]
    assert gen_serve("logs", "level", "serve_app.dispatcher", "default").out == "serve_app.dispatcher: default\n"
    assert gen_serve("logs", "levels").table == [["deployments", "warning"]]


def test_what_is_no_module_or_level_is_told_with_those_that_are(gen_serve: GenServe) -> None:
    wrong = gen_serve("logs", "level", "redis", "debug")
    assert (wrong.code, "serve_app, deployments, ray.serve" in wrong.err) == (2, True)
    wrong = gen_serve("logs", "level", "serve_app.dispatcher", "loud")
    assert (wrong.code, "debug, info, warning, error, critical" in wrong.err) == (2, True)
    assert gen_serve("logs", "levels").table == []
