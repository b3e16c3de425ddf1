"""The verdict on generated pairs: an answer in other words is right, one with a part changed is not."""

import pytest

from tests.rewards import pairs
from vade_jax.rewards import matching, pool, quantities, reading, verify
from vade_jax.rewards.values import Number


def check(count, seed):
    wrong, missed = [], []
    for pair in pairs.pairs(count, seed):
        verdict = verify.verify(f"\\boxed{{{pair.given}}}", pair.key, pair.kind)
        if verdict.correct and not pair.right:
            wrong.append(pair)
        elif pair.right and not verdict.correct:
            missed.append((pair, verdict.reason))
    assert not wrong and not missed


def test_changed_answers_are_wrong_and_reworded_ones_right():
    check(500, seed=0)


@pytest.mark.slow
def test_many_changed_answers_are_wrong_and_reworded_ones_right():
    check(20_000, seed=1)


def test_what_is_decided_here_is_what_sympy_says():
    """Of two numbers as they are written; units and percent signs SymPy does not know."""
    seen = 0
    for pair in pairs.pairs(400, seed=2):
        key, given = reading.read(pair.key), reading.read(pair.given)
        if all(isinstance(x, Number) and not (x.unit or x.percent) for x in (key, given)):
            said = pool.SHARED.check(key.tree, given.tree) == "ok"
            assert matching.same(given, key, quantities.Rules()) == said
            seen += 1
    assert seen > 50


def test_an_answer_with_many_formulas_has_seconds_for_all_of_them(monkeypatch):
    class Slow:
        asked = 0

        def check(self, *_, clock):
            self.asked += 1
            clock.left -= 1.0
            return "different"

    monkeypatch.setattr(pool, "SHARED", Slow())
    quantities.forget()
    numbers = ", ".join(f"\\sqrt{{{n}}}" for n in range(2, 10))
    names = ", ".join(f"a_{n}" for n in range(2, 10))
    verdict = verify.verify(f"\\boxed{{{names}}}", f"\\{{{numbers}\\}}", "expr")
    assert verdict.reason == "timeout" and pool.SHARED.asked == 3


@pytest.mark.parametrize("kind", ["expr", "list"])
def test_a_ratio_is_no_list_of_equations(kind):
    """Its left side is a pair and its right side is not: it cannot be spread over two names."""
    for given, key in (("A:B = 1", "x = 1, y = 2"), ("x = 1, y = 2", "A:B = 1")):
        assert verify.verify(f"\\boxed{{{given}}}", key, kind).reason == "different"
