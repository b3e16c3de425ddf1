r"""One table a kind: what is right, what is wrong, and why; for formulas what only looks right."""

import pytest

from tests.cpu_limit import cpu_limit
from vade_jax.rewards import kinds, pool, quantities, verify


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[(given, "B", "ok") for given in ("B", "b", "(B)", "b.", "B. 30", "B: red")],
        *[(given, "B", "ok") for given in ("B)", "(B) 30", "B 30", "\\text{B}", "$B$")],
        *[(given, "B", "ok") for given in ("Option B", "The answer is B.", "Ｂ")],
        *[(given, "B", "different") for given in ("A", "(C)", "A. B", "D 30")],
        *[("A, B", "A", "unreadable"), ("A dog", "A", "unreadable")],
        *[("I think B", "I", "unreadable"), ("A or B", "A", "unreadable")],
        *[("", "B", "unreadable"), ("30", "B", "unreadable"), ("K", "B", "unreadable")],
        *[("B", "(B)", "ok"), ("B", "B. 30", "ok"), ("B", "thirty", "bad_key")],
        *[("A. or B.", "A", "unreadable"), ("A) 1 B) 2", "A", "unreadable")],
    ],
)
def test_choice(given, answer, reason):
    assert kinds.choice(given, answer) == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[("Red", "A", "ok"), ("A", "A", "ok"), ("red.", "B", "different")],
        *[("C", "B", "ok"), ("blue", "C", "ok"), ("D", "A", "unreadable")],
        *[("green", "A", "unreadable"), ("A", "E", "bad_key")],
        *[("B. red", "A", "unreadable"), ("A. blue", "B", "unreadable")],
        *[("A. red", "A", "ok"), ("A: crimson", "A", "ok"), ("(C) blue", "B", "ok")],
    ],
)
def test_choice_by_the_text_of_an_option(given, answer, reason):
    choices = ("red", "blue", "blue")  # equal options are equally right
    assert kinds.choice(given, answer, choices=choices) == reason


@pytest.mark.parametrize(
    ("given", "choices", "reason"),
    [
        ("\\dfrac{\\sqrt{3}}{2}", ("$\\frac{\\sqrt3}{2}$", "$\\frac12$"), "ok"),
        ("0.5", ("$\\frac{\\sqrt3}{2}$", "$\\frac12$"), "different"),
        ("5", ("5 cm", "6 cm"), "ok"),
        ("5", ("5 cm", "5 m"), "unreadable"),  # of two
        ("A. 6", ("5 cm", "6 cm"), "unreadable"),  # the other's
        ("no", ("on", "off"), "unreadable"),
        ("2 girls", ("2 boys", "3 girls"), "unreadable"),
        ("10-20", ("-10", "20-30"), "unreadable"),
    ],
)
def test_choice_by_the_value_of_an_option(given, choices, reason):
    assert kinds.choice(given, "A", choices=choices) == reason


@pytest.mark.parametrize(("given", "reason"), [("A", "ok"), ("B", "different"), ("A. B", "ok")])
def test_a_lone_letter_is_an_options_own_where_others_are_letters(given, reason):
    assert kinds.choice(given, "A", choices=("B", "A", "D", "C")) == reason


@pytest.mark.parametrize(
    "choices",
    [
        ("x < 3", "x > 3"), ("y = 2x + 1", "y = 2x - 1"), ("A ∪ B", "A ∩ B"), ("50%", "50"),
        ("$\\frac{1}{2}$", "$-\\frac{1}{2}$"), ("$-\\sqrt{2}$", "$\\sqrt{2}$"), ("-x", "x"),
        ("-b", "b"), ("+", "-"), ("AA", "Aa"), ("[0, 1)", "(0, 1]"), ("(x+1)^2", "x+1^2"),
    ],
)  # fmt: skip
def test_options_that_differ_in_signs_are_not_equal(choices):
    for text, key, other in zip(choices, "AB", "BA", strict=True):
        reasons = [kinds.choice(given, key, choices=choices) for given in (key, other, text)]
        assert reasons[:2] == ["ok", "different"]
        assert reasons[2] == "ok" or text == "b"  # the lone letter
        assert kinds.choice(text, other, choices=choices) != "ok" or text == "b"


@pytest.mark.parametrize(
    ("given", "reason"), [("20", "ok"), ("30", "different"), ("50", "unreadable")]
)
def test_a_percent_sign_may_be_left_out_where_that_is_clear(given, reason):
    assert kinds.choice(given, "A", choices=("20%", "30%", "40%")) == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        *[("$y=2x-1$", "ok"), ("y = 2x − 1", "ok"), ("y = 2x + 1", "unreadable")],
        *[("B. y=2x-1", "ok"), ("A. y = 2x-1", "unreadable"), ("Dark blue", "different")],
    ],
)
def test_the_signs_of_a_text_count_its_spaces_do_not(given, reason):
    choices = ("The dark-blue", "y = 2x - 1")
    assert kinds.choice(given, "B", choices=choices) == reason


def test_a_text_that_may_be_of_two_options_is_unreadable():
    assert kinds.choice("aA", "A", choices=("AA", "Aa")) == "unreadable"


def test_an_empty_option_is_no_answer():
    assert kinds.choice("A", "A", choices=("", "")) == "bad_key"


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[(given, "Yes", "ok") for given in ("yes", "YES.", "Yes, there are", "\\text{yes}")],
        ("no", "No.", "ok"), ("no", "yes", "different"),
        *[(given, "yes", "unreadable") for given in ("yes and no", "maybe", "", "yesno")],
        ("no, it is not", "no", "ok"), ("yes, but not", "yes", "unreadable"),
        ("yes or maybe", "yes", "unreadable"), ("yes", "perhaps", "bad_key"),
    ],
)  # fmt: skip
def test_yesno(given, answer, reason):
    assert kinds.yesno(given, answer) == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[(given, "7", "ok") for given in ("7", "7.0", "07", "７", "7 cm", "x=7", "14/2")],
        ("1,000", "1000", "ok"), ("1000", "1,000", "ok"), ("-0", "0", "ok"),
        ("30°", "30", "ok"), ("30", "30^\\circ", "ok"), ("50%", "50", "ok"),
        ("7.5", "7", "different"), ("-7", "7", "different"), ("70", "7", "different"),
        ("seven", "7", "unreadable"), ("7 or 8", "7", "unreadable"), ("7", "7.5", "bad_key"),
        ("7", "seven", "bad_key"), ("3=7", "7", "unreadable"), ("7=7", "7", "ok"),
        ("10,\\!000", "10000", "ok"), ("10\\,000", "10000", "ok"), ("1\\,2", "12", "unreadable"),
        ("14/2=7", "7", "ok"), ("x!=7", "7", "unreadable"),
        ("3\\frac{1}{2}", "31", "different"), ("9" * 41, "9" * 40 + "8", "different"),
        ("9" * 200, "7", "different"),
    ],
)  # fmt: skip
def test_int(given, answer, reason):
    assert kinds.integer(given, answer) == reason


@pytest.mark.parametrize(
    ("given", "answer", "tolerance", "reason"),
    [
        *[("3.14", "3.14", None, "ok"), ("3.1416", "3.14", None, "ok")],
        *[("3.14", "3.1416", None, "different"), ("3.15", "3.14", None, "different")],
        *[("0.5", "\\frac{1}{2}", None, "ok"), ("0.333", "1/3", None, "ok")],
        *[("0.3", "1/3", None, "different"), ("50%", "0.5", None, "ok")],
        *[("0.5", "50%", None, "ok"), ("50", "50%", None, "ok")],
        *[("9.5", "10", 0.05, "ok"), ("10.5", "10", 0.05, "ok")],
        *[("9.4", "10", 0.05, "different"), ("-9.5", "-10", 0.05, "ok")],
        *[("0", "0", 0.05, "ok"), ("0.01", "0", 0.05, "different")],
        *[("about 3", "3", 0.05, "unreadable"), ("3", "pi", None, "bad_key")],
        *[("0.04", "3.2e-4", None, "different"), ("0.00032", "3.2e-4", None, "ok")],
        *[("0", "1.6e-19", 0.05, "different"), ("1.61e-19", "1.6e-19", 0.05, "ok")],
        *[("0.4", "1e-3", None, "different"), ("6.02214e23", "6.02e23", None, "ok")],
    ],
)
def test_float(given, answer, tolerance, reason):
    assert kinds.real(given, answer, tolerance=tolerance) == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[("The Dark-blue.", "dark blue", "ok"), ("\\text{red}", "Red", "ok")],
        *[("blue dark", "dark blue", "different"), ("-5", "5", "different")],
        *[("!", "red", "unreadable"), ("red", "?", "bad_key"), ("Red!", "red", "ok")],
        *[("x>5", "x > 5", "ok"), ("x<5", "x>5", "different")],
        *[("x>=5", "x>5", "different"), ("5", "> 5", "different"), ("x!=5", "x=5", "different")],
        *[("-x", "x", "different"), ("H+", "H-", "different"), ("C#", "C", "different")],
        *[("A'", "A", "different"), ("A’", "A'", "ok"), ("'A'", "A", "ok"), ("it’s", "it's", "ok")],
        *[("Cafe\u0301", "Café", "ok"), ("Cafe", "Café", "different"), ("हिन्दी", "हिन्दी.", "ok")],
        *[("หมู", "หมี", "different"), ("दिन", "दान", "different"), ("ok ❤️", "ok", "ok")],
    ],
)
def test_text(given, answer, reason):
    assert kinds.text(given, answer) == reason


@pytest.mark.parametrize("kind", sorted(verify.KINDS.keys() - {"expr"}))
@pytest.mark.parametrize(
    "part", ["A. ", "1,", "((((", "\\text{", "yes ", "-", " ", "9e99", "\\frac{1}{"]
)
def test_nasty_answers_are_wrong_and_read_at_once(kind, part):
    given = (part * 200)[:190]
    with cpu_limit(10):
        assert not verify.verify(f"\\boxed{{{given}}} " * 3, "41", kind).correct


# ------------------------------------------------------------------------------ lists
@pytest.mark.parametrize(
    ("given", "key", "options", "reason"),
    [
        *[(g, "[1, 2]", {}, "ok") for g in ("[1,2]", "1 and 2", "(1.0, 2)", "[1; 2]")],
        *[(g, "[1, 2]", {}, "different") for g in ("[2, 1]", "[1]", "[1, 2, 2]", "[1, 3]")],
        ("2, 1", "\\{1, 2\\}", {}, "ok"), ("2, 2", "\\{1, 2\\}", {}, "different"),
        ("2, 1", "[1, 2]", {"ordered": False}, "ok"),
        ("2, 1", "\\{1, 2\\}", {"ordered": True}, "different"),
        ("[1,000, 2]", "[1000, 2]", {}, "ok"), ("[1,000,2]", "[1000, 2]", {}, "ok"),
        ("[1, 0, 2]", "[1,000, 2]", {}, "different"),
        ("[104, 190]", "[100, 200]", {"tolerance": 0.05}, "ok"),
        ("[106, 190]", "[100, 200]", {"tolerance": 0.05}, "different"),
        ("[1.4]", "[1]", {}, "different"), ("[1.04]", "[1.0]", {}, "ok"),
        ("Red, the blue", "[red, blue]", {}, "ok"), ("A, C", "[A, C]", {}, "ok"),
        ("(1,2), (3,4)", "[(1, 2), (3, 4)]", {}, "ok"),
        ("(2,1), (3,4)", "[(1, 2), (3, 4)]", {}, "different"),
        ("√12, 1", "[2\\sqrt{3}, 1]", {}, "ok"), ("√13, 1", "[2\\sqrt{3}, 1]", {}, "different"),
        ("(-a, a)", "(a, a)", {}, "different"), ("[b+a, 2]", "[a+b, 2]", {}, "ok"),
        ("[a-b, 2]", "[a+b, 2]", {}, "different"), ("[x/y, 3]", "[xy, 3]", {}, "different"),
        ("[x!, 3]", "[x, 3]", {}, "different"), ("{a+b, a-b}", "{a-b, a-b}", {}, "different"),
        ("[H2O, co2]", "[H2O, CO2]", {}, "ok"), ("x-axis, Y axis", "[x-axis, y-axis]", {}, "ok"),
        ("", "[1]", {}, "unreadable"), ("1", "[]", {}, "bad_key"), ("1", "[1,]", {}, "bad_key"),
    ],
)  # fmt: skip
def test_listing(given, key, options, reason):
    assert kinds.listing(given, key, **options) == reason


# ------------------------------------------------------------------------------ formulas
@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        *[(g, "2\\sqrt{3}", "ok") for g in ("2√3", "2sqrt(3)", "\\frac{6}{\\sqrt3}")],
        *[(g, "2\\sqrt{3}", "ok") for g in ("AB = 2√3", "2\\sqrt{3} cm", "$2\\sqrt3$.")],
        ("2\\sqrt{3}\\text{ cm}^2", "2\\sqrt{3}", "ok"), ("π/4", "\\frac{\\pi}{4}", "ok"),
        ("3.46", "2\\sqrt{3}", "ok"), ("3.5", "2\\sqrt{3}", "different"),
        ("-2√3", "2\\sqrt{3}", "different"), ("", "x", "unreadable"),
        ("1 = 2√3", "2\\sqrt{3}", "different"), ("√12 = 2√3", "2\\sqrt{3}", "ok"),
        ("x = y = 2", "2x", "different"), ("2\\sqrt{3}\\text{ or not}", "2\\sqrt{3}", "different"),
        ("x≠2√3", "2\\sqrt{3}", "different"), ("x\\not=2√3", "2\\sqrt{3}", "different"),
        ("2x+1", "y=2x+1", "ok"), ("x=2x+1", "y=2x+1", "different"), ("[0, 1)", "[0,1)", "ok"),
        ("[0,1]", "[0,1)", "different"), ("x\\in(0,1)", "(0,1)", "ok"),
        ("\\{0,1\\}", "(0,1)", "different"), ("2 or 1", "\\{1,2\\}", "ok"),
        ("1 and 3", "\\{1,2\\}", "different"), ("0.5", "50\\%", "ok"),
        ("3.5", "3\\frac{1}{2}", "ok"), ("foo(", "foo(", "bad_key"),
        ("y'=2x", "y=2x", "different"), ("x'+y", "x+y'", "different"), ("A'B'", "AB", "different"),
        ("f^{\\prime}(x)", "f'(x)", "ok"), ("A^T", "A", "different"), ("A^{\\top}", "A^T", "ok"),
        ("a+b", "A+B", "different"), ("A+b", "b+A", "ok"), ("x", "x" * 201, "bad_key"),
        ("\\frac{1}{0}", "\\frac{1}{0}", "bad_key"),
    ],
)  # fmt: skip
def test_expression(given, key, reason):
    assert kinds.expression(given, key) == reason


@pytest.mark.parametrize(
    "given",
    [
        "9^{9^{9^9}}", "9^9^9", "(9^{99999})^{99999}", "99999999!", "2^{9999999}", "5!!",
        "(" * 50 + "1" + ")" * 50, "2^(1000000)", "x^{" * 20 + "}" * 20,
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_reaches_no_worker(given, monkeypatch):
    monkeypatch.setattr(pool, "SHARED", None)
    assert kinds.expression(given, "x+1") == "unreadable"
    assert kinds.expression("x+1", given) == "bad_key"


def test_numbers_reach_no_worker(monkeypatch):
    monkeypatch.setattr(pool, "SHARED", None)
    assert kinds.expression("0.5", "\\frac{1}{2}") == "ok"
    assert kinds.expression("0.51", "\\frac{1}{2}") == "different"


def test_reasons_are_remembered_but_failures_are_not(monkeypatch):
    class Flaky:
        replies = iter(("timeout", "crash", "ok"))

        def check(self, *_, clock):
            return next(self.replies)

    monkeypatch.setattr(pool, "SHARED", Flaky())
    quantities.forget()
    reasons = [verify.verify(r"\boxed{q+r}", "r+q", "expr").reason for _ in range(5)]
    assert reasons == ["timeout", "crash", "ok", "ok", "ok"]
