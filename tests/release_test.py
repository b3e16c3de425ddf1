"""What is published: the wheel alone in an environment of its own, the Dockerfiles, the notebook."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

import vade_jax

ROOT = pathlib.Path(__file__).parents[1]
DOCKER = ROOT / "docs" / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
# Beside the three packages themselves: what they need, and what a new environment has.
WITH_JAX = {"jaxlib", "ml-dtypes", "opt-einsum", "scipy", "absl-py", "toolz", "typing-extensions"}
ALONE = {"vade-jax", "jax", "numpy", "chex", "pip", "setuptools"} | WITH_JAX
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


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ------------------------------------------------------------------------------ the wheel
@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Builds as a release does: the source archive, and the wheel from that archive."""
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
    assert len(list(dist.glob("*.tar.gz"))) == 1
    (path,) = dist.glob("*.whl")
    return path


@pytest.mark.release
def test_what_is_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    version = vade_jax.__version__
    assert wheel.name == f"vade_jax-{version}-py3-none-any.whl"
    tops = {name.split("/")[0] for name in names}
    data = f"vade_jax-{version}.data"
    assert tops == {"vade_jax", f"vade_jax-{version}.dist-info", data}
    assert f"{data}/data/share/vade_jax/torchvision_cpu/sitecustomize.py" in names
    files = {name for name in names if name.startswith("vade_jax/")}
    tracked = run("git", "-C", str(ROOT), "ls-files", "vade_jax").split()
    assert files == set(tracked)


@pytest.mark.release
def test_the_selector_away_from_the_repository(wheel, tmp_path):
    run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    python = str(tmp_path / "env" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(wheel))
    found = json.loads(run(python, "-m", "pip", "list", "--format=json"))
    names = {package["name"].lower().replace("_", "-") for package in found}
    assert {"vade-jax", "jax", "numpy", "chex"} <= names <= ALONE

    page = (ROOT / "docs" / "plugins.md").read_text()
    (loop,) = re.findall(r"```python\n(from vade_jax.selector.*?)```", page, re.DOTALL)
    program = f"""
import vade_jax
assert vade_jax.__file__.startswith({str(tmp_path)!r})
uids, num_steps, num_right = range(64), 3, [4] * 32
{loop}
from vade_jax.plugins import choosing
"""
    empty = tmp_path / "empty"
    empty.mkdir()
    run(python, "-c", program, cwd=empty)
    assert (empty / "selector.npz").exists()
    assert (tmp_path / "env" / "share" / "vade_jax" / "torchvision_cpu").is_dir()
    for part, extra in (("run", "train"), ("report", "report")):
        code = f"try: import vade_jax.{part}\nexcept ImportError as error: print(error)"
        said = run(python, "-c", code, cwd=empty)
        assert said.endswith(f"in the repository, pip install '.[{extra}]'\n")


@pytest.mark.release
def test_twenty_lines_train_the_tiny_job_away_from_the_repository(wheel, tmp_path):
    site, folder = tmp_path / "site", tmp_path / "empty"
    folder.mkdir()
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site), str(wheel))
    page = (ROOT / "docs" / "runs.md").read_text()
    (program,) = re.findall(r"```python\n(from vade_jax import report, run.*?)```", page, re.DOTALL)
    assert program.strip().count("\n") <= 20
    for large, small in SMALLER.items():
        program, found = re.subn(large, small, program)
        assert found == 1, large
    program += f"\nimport vade_jax; assert vade_jax.__file__.startswith({str(site)!r})\n"
    # XLA_FLAGS of the tests too: compiled in a hurry
    run(sys.executable, "-c", program, cwd=folder, env=os.environ | {"PYTHONPATH": str(site)})
    written = {path.name for path in (folder / "runs" / "mine").iterdir()}
    assert {"metrics.jsonl", "policy", "report.html", "rollouts"} <= written


# ------------------------------------------------------------------------------ GitHub's files
@pytest.mark.release
def test_workflows_and_forms_are_what_github_reads():
    of = lambda folder: [str(path) for path in (ROOT / ".github" / folder).glob("*.yml")]
    for schema, files in (
        ("vendor.github-workflows", of("workflows")),
        ("vendor.github-issue-forms", of("ISSUE_TEMPLATE")),
    ):
        check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
        assert files and "ok" in run(*check, *files)


def test_the_workflow_has_the_stages_of_the_ci():
    stages = set(re.findall(r"^make ([\w-]+)", (ROOT / ".ci/run").read_text(), re.M))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert not [stage for stage in stages if not re.search(rf"\b{stage}\b", workflow)]


# ------------------------------------------------------------------------------ Dockerfiles
@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_a_dockerfile_copies_what_is_there_and_is_pinned(path):
    text = path.read_text()
    copied = [name for line in re.findall(r"^COPY (.*)", text, re.M) for name in line.split()[:-1]]
    assert {"setup.py", "vade_jax", "configs", "experiments"} <= set(copied)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert re.findall(r"^FROM \S+:\d+\.\d+\.\d+-\S+$", text, re.M)
    assert "PIP_NO_CACHE_DIR=1" in text and "--constraint python3.11.txt" in text
    assert re.findall(r"^USER (.*)", text, re.M)[-1] != "root"


@pytest.mark.release
@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(path):
    run(str(pathlib.Path(sys.executable).with_name("hadolint")), str(path))


# ------------------------------------------------------------------------------ the notebook
@pytest.mark.release
def test_the_notebook_has_its_outputs_and_runs(tmp_path, monkeypatch):
    import nbclient
    import nbformat

    book = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    saved = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in saved)
    assert not [output for output in saved if output.get("name") == "stderr"]
    for folder in ("configs", "experiments"):  # what it writes stays here
        os.symlink(ROOT / folder, tmp_path / folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = {"timeout": 1800, "kernel_name": "python3"}
    nbclient.NotebookClient(book, resources={"metadata": {"path": tmp_path}}, **options).execute()
    assert (tmp_path / "runs").is_dir()
