r"""Formulas: what is the same, and what only looks so."""

import pytest

from vade_jax.rewards import expressions, pool


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        *[(g, "2\\sqrt{3}", "ok") for g in ("2√3", "2sqrt(3)", "\\frac{6}{\\sqrt3}")],
        *[
            (g, "2\\sqrt{3}", "ok")
            for g in ("AB = 2√3", "2\\sqrt{3} cm", "$2\\sqrt3$.")
        ],
        *[
            ("2\\sqrt{3}\\text{ cm}^2", "2\\sqrt{3}", "ok"),
            ("π/4", "\\frac{\\pi}{4}", "ok"),
        ],
        *[("3.46", "2\\sqrt{3}", "different"), ("-2√3", "2\\sqrt{3}", "different")],
        *[("1 = 2√3", "2\\sqrt{3}", "unreadable"), ("", "x", "unreadable")],
        *[("2√3 = 2√3", "2\\sqrt{3}", "unreadable"), ("x = y = 2", "2x", "unreadable")],
        *[("2\\sqrt{3}\\text{ or not}", "2\\sqrt{3}", "unreadable")],
        *[
            ("x≠2√3", "2\\sqrt{3}", "different"),
            ("x\\not=2√3", "2\\sqrt{3}", "unreadable"),
        ],
        *[("2x+1", "y=2x+1", "ok"), ("x=2x+1", "y=2x+1", "different")],
        *[("[0, 1)", "[0,1)", "ok"), ("[0,1]", "[0,1)", "different")],
        *[("x\\in(0,1)", "(0,1)", "ok"), ("\\{0,1\\}", "(0,1)", "different")],
        *[("2 or 1", "\\{1,2\\}", "ok"), ("1 and 3", "\\{1,2\\}", "different")],
        *[("0.5", "50\\%", "ok"), ("3.5", "3\\frac{1}{2}", "ok")],
        *[("foo(", "foo(", "bad_key"), ("x", "x" * 201, "bad_key")],
        *[("\\frac{1}{0}", "\\frac{1}{0}", "different")],
    ],
)
def test_expression(given, key, reason):
    assert expressions.expression(given, key) == reason


@pytest.mark.parametrize(
    "given",
    [
        *("9^{9^{9^9}}", "9^9^9", "(9^{99999})^{99999}", "99999999!", "2^{9999999}"),
        *(
            "5!!",
            "(" * 50 + "1" + ")" * 50,
            "1" * 60,
            "2^(1000000)",
            "x^{" * 20 + "}" * 20,
        ),
    ],
)
def test_what_cannot_be_evaluated_reaches_no_worker(given, monkeypatch):
    monkeypatch.setattr(pool, "SHARED", None)
    assert expressions.expression(given, "x+1") == "unreadable"
    assert expressions.expression("x+1", given) == "bad_key"


def test_numbers_reach_no_worker(monkeypatch):
    monkeypatch.setattr(pool, "SHARED", None)
    assert expressions.expression("0.5", "\\frac{1}{2}") == "ok"
    assert expressions.expression("0.51", "\\frac{1}{2}") == "different"


def test_reasons_are_remembered_but_failures_are_not(monkeypatch):
    class Flaky:
        replies = iter(("timeout", "crash", "ok"))

        def check(self, key, given):
            return next(self.replies)

    monkeypatch.setattr(pool, "SHARED", Flaky())
    reasons = [expressions.expression("q+r", "r+q") for _ in range(5)]
    assert reasons == ["timeout", "crash", "ok", "ok", "ok"]
    expressions._judged.cache_clear()
