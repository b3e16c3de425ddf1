"""An arm looks the same whatever else is drawn; figures are files and nothing else."""

import pytest

from experiments.arenas import plotting


def test_the_papers_arms_are_bold_and_no_two_arms_look_alike():
    found = plotting.looks(["mopps", "vade", "uniform", *plotting.KNOWN])
    assert [arm for arm, look in found.items() if look.bold] == ["vade", "uniform"]
    assert len({(look.color, look.dashes) for look in found.values()}) == len(found)
    few = plotting.looks(["x", "vade", "mopps"])
    assert all(look.bold for look in few.values())
    assert (
        few["mopps"].color == found["mopps"].color and few["mopps"].dashes == found["mopps"].dashes
    )


def test_without_the_papers_arms_the_first_six_are_bold():
    found = plotting.looks("abcdefgh")
    assert "".join(arm for arm, look in found.items() if look.bold) == "abcdef"
    assert list(found) == list("abcdefgh")


def test_a_figure_is_written_and_closed(tmp_path):
    path = tmp_path / "new" / "a.png"
    with plotting.panels(path, 1, 2, size=(2, 1), note="small") as (figure, axes):
        assert axes.shape == (1, 2)
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(KeyError), plotting.panels(path, size=(1, 1)) as (figure, _):
        raise KeyError
    from matplotlib import pyplot

    assert figure.number not in pyplot.get_fignums()
