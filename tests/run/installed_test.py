"""The package as a stranger has it: installed, in a folder without the repository beside it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
# The program of docs/runs.md, cut to a few seconds.
SMALLER = {
    r'"num_steps": 20\b': '"num_steps": 1',
    r'"num_prompts": 32\b': '"num_prompts": 2',
    r'"num_train": 512\b': '"num_train": 8',
    r'"num_validation": 64\b': '"num_validation": 2',
    r'"length_multiple": 36\b': '"length_multiple": 64',  # one shape
    r'minibatch": 8\b': 'minibatch": 2',
    r'microbatch": 8\b': 'microbatch": 2',
}


def test_twenty_lines_train_the_tiny_job(tmp_path):
    source, site, folder = (tmp_path / name for name in ("source", "site", "empty"))
    folder.mkdir()
    for name in ("vade_jax", "third_party"):  # copied: a build leaves files
        shutil.copytree(ROOT / name, source / name)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--target", str(site), str(source)),
        ],
        cwd=tmp_path,
        check=True,
    )
    (program,) = re.findall(
        r"```python\n(from vade_jax import report, run.*?)```",
        (ROOT / "docs" / "runs.md").read_text(),
        re.DOTALL,
    )
    assert program.strip().count("\n") <= 20
    for large, small in SMALLER.items():
        program, found = re.subn(large, small, program)
        assert found == 1, large
    program += f"\nimport vade_jax; assert vade_jax.__file__.startswith({str(site)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site)},  # its XLA_FLAGS too: compiled in a hurry
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (folder / "runs" / "mine").iterdir()}
    assert {"metrics.jsonl", "policy", "report.html", "rollouts"} <= made
