"""An arm looks the same whatever else is drawn."""

from vade_jax.report import plotting


def test_the_papers_arms_are_bold_and_no_two_arms_look_alike():
    found = plotting.looks(["mopps", "vade", "vanilla", *plotting.KNOWN])
    assert [arm for arm, look in found.items() if look.bold] == ["vade", "vanilla"]
    assert len({(look.color, look.dashes) for look in found.values()}) == len(found)
    assert plotting.looks(["x", "vade", "mopps"])["mopps"] == found["mopps"]


def test_without_the_papers_arms_the_first_six_are_bold():
    found = plotting.looks("abcdefgh")
    assert "".join(arm for arm, look in found.items() if look.bold) == "abcdef"
    assert list(found) == list("abcdefgh")
