"""What users write is found by its place, and what is wrong with it is one line that names theirs."""

import pytest

from vade_jax import samplers


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import math\nfrom vade_jax.samplers import baselines\nSPEC, NUMBER = baselines.UNIFORM, 3\n"
    )
    return path


def test_a_selector_is_found_in_a_file_and_in_a_module(file):
    assert samplers.find(f"{file}:SPEC") is samplers.SAMPLERS["uniform"]
    assert samplers.find("vade_jax.samplers.vade:SPEC") is samplers.find("vade")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:SPC", r"mine.py has no 'SPC': did you mean 'SPEC'\?"),
        ("{}:NUMBER", "int is not a samplers.Spec"),
        (
            "none.py:SPEC",
            "selector.name='none.py:SPEC': importing none.py failed: FileNotFoundError",
        ),
        ("vaed", r"selector.name='vaed': did you mean 'vade'\? known are "),
    ],
)
def test_a_wrong_selector_is_one_clear_line(file, name, message):
    with pytest.raises(ValueError, match=message):
        samplers.find(name.format(file))
