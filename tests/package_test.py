"""What importing the package does."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.10.9", "--mine --xla_cpu_experimental_ynn_fusion_type="),
        ("0.12.0", "--mine"),
        (None, "--mine"),  # rewards need none
    ],
)
def test_the_fusions_with_a_race_are_off_where_jaxlib_has_them(tmp_path, version, flags):
    if version:
        (tmp_path / f"jaxlib-{version}.dist-info").mkdir()
        metadata = tmp_path / f"jaxlib-{version}.dist-info" / "METADATA"
        metadata.write_text(f"Metadata-Version: 2.1\nName: jaxlib\nVersion: {version}\n")
    code = "import os, sys, vade_jax; print(os.environ['XLA_FLAGS'], 'jaxlib' in sys.modules)"
    said = subprocess.check_output(
        [sys.executable, "-S", "-c", code],  # without what is installed
        env=os.environ | {"XLA_FLAGS": "--mine", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        text=True,
    )
    assert said == f"{flags} False\n"
