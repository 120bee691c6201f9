from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serve_app.inputs.links import PREFIXES, LinkSigner

NOW = 1_790_000_000.0
SIGNER = LinkSigner(b"a secret of some length")
KEY = "results/task/1/image.jpeg"


def _parts(link: str) -> tuple[str, str, str]:
    """Returns key, expiry and signature of a link."""
    url = urlsplit(link)
    query = parse_qs(url.query, strict_parsing=True)
    return unquote(url.path.removeprefix(PREFIXES["GET"])), query["se"][0], query["sig"][0]


@given(st.floats(0.5, 1e6), st.floats(1, 4e9))
def test_link_lives_as_long_as_asked_or_half_longer(life: float, now: float) -> None:
    key, se, sig = _parts(SIGNER.sign(KEY, life, now))
    assert now + life <= int(se) <= now + 1.5 * life + 3
    assert SIGNER.verify(key, se, sig, now + life * 0.999)
    assert not SIGNER.verify(key, se, sig, int(se))


def test_link_stays_the_same_for_half_its_life() -> None:
    start = NOW - NOW % 300 + 1
    assert len({SIGNER.sign(KEY, 600, start + second) for second in range(0, 299, 10)}) == 1
    assert SIGNER.sign(KEY, 600, start) != SIGNER.sign(KEY, 600, start + 300)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_link_keeps_any_key(key: str) -> None:
    assume("\r" not in key and "\n" not in key and "\t" not in key)
    link = SIGNER.sign(key, 600, NOW)
    assert link.isascii()
    assert _parts(link)[0] == key
    assert SIGNER.verify(*_parts(link), NOW)


@given(st.text(max_size=60), st.text(max_size=14), st.text(max_size=60))
def test_tampered_link_is_refused(key: str, se: str, sig: str) -> None:
    good = _parts(SIGNER.sign(KEY, 600, NOW))
    for forged in ((key, *good[1:]), (good[0], se, good[2]), (*good[:2], sig)):
        if forged != good:
            assert not SIGNER.verify(*forged, NOW)


def test_link_needs_its_secret_and_canonical_expiry() -> None:
    link = SIGNER.sign(KEY, 600, NOW)
    assert link.startswith(f"/v1/results/{KEY}?se=")
    key, se, sig = _parts(link)
    assert SIGNER.verify(key, se, sig, NOW)
    assert not LinkSigner(b"another secret of length").verify(key, se, sig, NOW)
    assert not SIGNER.verify(key, str(int(se) + 300), sig, NOW)
    for malformed in ("0" + se, "", "-1", "1e9", f" {se}", "0x10", "\u0661\u0662", "9" * 13):
        assert not SIGNER.verify(key, malformed, sig, NOW)
    with pytest.raises(ValueError, match="at least 16 bytes"):
        LinkSigner(b"x" * 15)
    assert LinkSigner(b"x" * 16)
