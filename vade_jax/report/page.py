"""Assembles the page within its size limit, and writes it."""

import base64
import collections
import datetime
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Sequence
from typing import Any

import jinja2

from vade_jax import atomic
from vade_jax.data import sources
from vade_jax.report import charts, contact_sheet, curves, examples, headline, pictures, run
from vade_jax.report.run import Prompt, Run
from vade_jax.types import PathLike

Section = dict[str, Any]  # what the template shows of one run

ASSETS = pathlib.Path(__file__).with_name("assets")
SCRIPTS = ("charts.js", "answers.js", "page.js")
PACKAGES = ("vade_jax", "jax", "jaxlib", "flax", "optax", "numpy", "vllm")

LIMIT = 5_000_000  # bytes of the page, at most
# Bytes for each part at first; `write` gives answers and pictures less if the page is too large.
CURVES, ANSWERS, PICTURES = 1_000_000, 1_000_000, 2_300_000
LISTED = 9  # prompts of a list, at most


def at_start(workdir: PathLike, items: sources.Source) -> None:
    """Draws a sheet of samples of a run's training data: figures/samples.png."""
    contact_sheet.draw(items, pathlib.Path(workdir) / "figures" / "samples.png")


def at_end(workdir: PathLike, items: sources.Source) -> pathlib.Path:
    """Writes the page of a run that has just ended, its versions and pictures.

    `items` is the source of the run's training data, by row.
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    text = json.dumps(versions, indent=2) + "\n"
    atomic.write_text(pathlib.Path(workdir) / run.VERSIONS, text)
    return write(workdir, items=items)


def write(
    workdir: PathLike, compare: Sequence[PathLike] = (), *, items: sources.Source | None = None
) -> pathlib.Path:
    """Writes report.html, or comparison.html of several runs, into `workdir`; returns the path.

    Args:
        workdir: the run directory.
        compare: directories of other runs, drawn in the same charts. A directory without a run, or
            given twice, is left out with a note.
        items: the run's data, for pictures that its directory lacks. They are then stored there, so that the
            page can be made again without the data. Without `items`, pictures come from the data in the
            config and are not stored.

    Raises:
        FileNotFoundError: `workdir` has no files of a run.
        ValueError: the page cannot be written into `workdir`.
    """
    runs, notes = run.read_all([workdir, *compare])
    sections = [_section(place, one) for place, one in enumerate(runs)]
    finds = [pictures.finder(items) if items is not None else pictures.of_run(runs[0])]
    finds += [pictures.of_run(one) for one in runs[1:]]
    # Single prompts, answers and pictures take most of the page, so fewer are shown until it fits. Their
    # size is known only when the page is rendered, because HTML escapes what a model wrote.
    for share in (1, 2, 4, 8, 16, 32):
        for section, find in zip(sections, finds, strict=True):
            _add_examples(section, share * len(runs), find)
        text = _render(runs, sections, notes)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    if items is not None:
        pictures.keep(workdir, sections[0]["pictures"])
    path = pathlib.Path(workdir) / ("comparison.html" if compare else "report.html")
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror}): copy the run to a writable place,"
            " and give that --workdir"
        ) from error
    return path


# ------------------------------------------------------------------------------ one run
def _section(place: int, one: Run) -> Section:
    """Returns the page's section of a run, without single prompts and answers."""
    inside, parallel = headline.phases(one)
    facts = headline.facts(one)
    kept, notes = pictures.read(one.workdir)
    return {
        "run": one,
        "place": place,
        "what": headline.what(one),
        "facts": facts,
        "unlearning": headline.unlearning(one.records),
        "by_name": {fact.name: fact.value for fact in facts},
        "maps": {k: {**chart, "id": f"{k}-{place}"} for k, chart in charts.maps(one).items()},
        "table": examples.table(one),
        "inside": inside,
        "parallel": parallel,
        "lists": examples.lists(one),
        "kept": kept,
        "notes": notes,
    }


def _add_examples(section: Section, share: int, find: pictures.Find) -> None:
    """Adds single prompts, answers and pictures, in 1 / `share` of the space for a page of one run."""
    one = section["run"]
    shown = {k: prompts[: max(3, LISTED // share)] for k, prompts in section["lists"].items()}
    sample = examples.sample(one, ANSWERS // share)
    prompts_by_uid = {prompt.uid: prompt for prompts in shown.values() for prompt in prompts}
    prompts_by_uid |= {group["uid"]: one.prompts[group["uid"]] for group in sample}
    questions = run.questions(one, prompts_by_uid.values())
    asked = {uid: (prompt, questions[uid]) for uid, prompt in prompts_by_uid.items()}
    chosen, missing = pictures.choose(asked, section["kept"], find, PICTURES // share)
    section |= {
        "shown": shown,
        "sample": sample,
        "num_shown": sum(len(group["answers"]) for group in sample),
        "questions": questions,
        "asked": {uid: _asked(*of, chosen.get(uid)) for uid, of in asked.items()},
        "pictures": chosen,
        "missing": pictures.notes(missing),
    }


def _asked(prompt: Prompt, question: str, picture: pictures.Picture | None) -> dict[str, Any]:
    """Returns a prompt as the script shows it with its sampled answers."""
    return {
        "question": examples.visible(question[: examples.LONGEST]),
        "gold": examples.shortened(prompt.gold),
        "subset": examples.shortened(prompt.subset),
        "variant": prompt.variant,
        "picture": picture.uri if picture else None,
        "images": picture.num_images if picture else 0,
    }


# ------------------------------------------------------------------------------ all runs
def _render(runs: Sequence[Run], sections: Sequence[Section], notes: list[str]) -> str:
    """Returns the page."""
    lines = len(runs) * (5 + len(curves.DETAILS))
    # Assumes 60 bytes of JSON for a point.
    points = max(60, min(500, CURVES // (60 * lines)))
    shown: dict[str, Any] = {
        "dynamics": charts.dynamics(runs, points),
        "details": charts.details(runs, points),
        "calibration": charts.calibration(runs, points),
    }
    drawn = [*shown["dynamics"], *shown["details"], shown["calibration"]]
    drawn += _maps_on_one_scale(sections)
    data = {
        "runs": [one.label for one in runs],
        "axes": charts.axes(runs),
        "charts": {chart["id"]: chart for chart in drawn if chart},
        "prompts": [s["asked"] for s in sections],
        "answers": [{"run": i, **g} for i, s in enumerate(sections) for g in s["sample"]],
    }
    script = "\n".join((ASSETS / name).read_text("utf-8") for name in SCRIPTS)
    script = f"\n{script}\n"
    # The page's Content-Security-Policy allows only this script, by its digest: nothing that a model
    # wrote can run as a script.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    notes = [*notes, *(f"{one.label}: {note}" for one in runs for note in one.notes)]
    notes += [f"{s['run'].label}: {n}" for s in sections for n in (*s["notes"], *s["missing"])]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        finalize=lambda x: examples.visible(x) if type(x) is str else x,  # not Markup
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = headline.duration
    return environment.get_template("page.html").render(
        title=" · ".join(one.label for one in runs),
        runs=runs,
        sections=sections,
        notes=notes,
        unlearning=[f"{s['run'].label}: {x}" for s in sections for x in s["unlearning"]],
        fact_names=list(dict.fromkeys(f.name for s in sections for f in s["facts"])),
        charts=shown,
        examples=examples,
        settings=headline.settings(runs),
        data=data,
        style=(ASSETS / "style.css").read_text("utf-8"),
        script=script,
        script_digest=digest,
        made=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )


def _maps_on_one_scale(sections: Sequence[Section]) -> list[charts.Chart]:
    """Returns all maps; maps of one kind share a color scale, so that runs can be compared."""
    by_kind = collections.defaultdict(list)
    for section in sections:
        for kind, chart in section["maps"].items():
            by_kind[kind].append(chart)
    scaled = []
    for maps in by_kind.values():
        cells = (
            x for chart in maps for column in chart["values"] for x in column[: chart["named"]]
        )
        most = max(cells, default=0.0)
        scaled += [chart | {"most": most} for chart in maps]
    return scaled
