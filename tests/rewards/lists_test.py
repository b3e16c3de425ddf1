"""Lists: their elements, their order, their notation."""

import pytest

from vade_jax.rewards import lists


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("[1, 2]", ["1", "2"]), ("(1,2)", ["1", "2"]), ("1, 2", ["1", "2"])],
        *[("\\{1, 2\\}", ["1", "2"]), ("\\left[1; 2\\right]", ["1", "2"])],
        *[("1,000, 2,000", ["1,000", "2,000"]), ("1,000", ["1", "000"])],
        *[("[(1,2),(3,4)]", ["(1,2)", "(3,4)"]), ("(1,2),(3,4)", ["(1,2)", "(3,4)"])],
        *[("red, blue and green", ["red", "blue", "green"]), ("[5]", ["5"])],
        *[("red, blue, and green", ["red", "blue", "green"]), ("", []), ("[]", [])],
        *[("[1,,2]", ["1", "", "2"]), ("[1, 2", ["[1, 2"]), ("]1, 2[", ["]1, 2["])],
    ],
)
def test_elements(text, expected):
    assert lists.elements(text) == expected


@pytest.mark.parametrize(
    ("given", "key", "options", "reason"),
    [
        *[(g, "[1, 2]", {}, "ok") for g in ("[1,2]", "1 and 2", "(1.0, 2)", "[1; 2]")],
        *[
            (g, "[1, 2]", {}, "different")
            for g in ("[2, 1]", "[1]", "[1, 2, 2]", "[1, 3]")
        ],
        *[("2, 1", "\\{1, 2\\}", {}, "ok"), ("2, 2", "\\{1, 2\\}", {}, "different")],
        *[("2, 1", "[1, 2]", {"ordered": False}, "ok")],
        *[("2, 1", "\\{1, 2\\}", {"ordered": True}, "different")],
        *[("[1,000, 2]", "[1000, 2]", {}, "ok"), ("[1,000,2]", "[1000, 2]", {}, "ok")],
        *[("[1, 0, 2]", "[1,000, 2]", {}, "different")],
        *[("[104, 190]", "[100, 200]", {"tolerance": 0.05}, "ok")],
        *[("[106, 190]", "[100, 200]", {"tolerance": 0.05}, "different")],
        *[("[1.4]", "[1]", {}, "different"), ("[1.04]", "[1.0]", {}, "ok")],
        *[("Red, the blue", "[red, blue]", {}, "ok"), ("A, C", "[A, C]", {}, "ok")],
        *[("(1,2), (3,4)", "[(1, 2), (3, 4)]", {}, "ok")],
        *[("(2,1), (3,4)", "[(1, 2), (3, 4)]", {}, "different")],
        *[
            ("√12, 1", "[2\\sqrt{3}, 1]", {}, "ok"),
            ("√13, 1", "[2\\sqrt{3}, 1]", {}, "different"),
        ],
        *[
            ("", "[1]", {}, "unreadable"),
            ("1", "[]", {}, "bad_key"),
            ("1", "[1,]", {}, "bad_key"),
        ],
    ],
)
def test_listing(given, key, options, reason):
    assert lists.listing(given, key, **options) == reason
