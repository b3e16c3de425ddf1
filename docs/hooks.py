"""Pages that are made when the site is built: every setting, and the report of a run."""

import pathlib
import subprocess
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
RUN = ROOT / "runs" / "docs" / "tiny_gspo"


def on_files(files, config):
    """Adds settings.md and report.html, which are not stored."""
    sys.path.insert(0, str(ROOT))  # here: mkdocs restores it after importing a hook
    from experiments import config as settings

    files.append(File.generated(config, "settings.md", content=settings.page()))
    files.append(File.generated(config, "report.html", content=report()))
    return files


def report():
    """Returns the page of a run of the tiny job, which trains once, in some minutes."""
    train = ["experiments.train", "--config=configs/tiny_gspo.py"]
    module = ["experiments.report"] if (RUN / "report.html").is_file() else train
    subprocess.run([sys.executable, "-m", *module, f"--workdir={RUN}"], cwd=ROOT, check=True)
    return (RUN / "report.html").read_text()
