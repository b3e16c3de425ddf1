"""Puts the page together, within its size, and writes it."""

import base64
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Callable, Sequence
from typing import Any

import jinja2

from vade_jax import atomic
from vade_jax.report import charts, examples, headline, pictures, run
from vade_jax.report.run import Prompt, Run
from vade_jax.types import Item

PathLike = str | os.PathLike[str]
Section = dict[str, Any]  # what the template shows of one run

FILE, COMPARISON = "report.html", "comparison.html"
ASSETS = pathlib.Path(__file__).with_name("assets")
SCRIPTS = ("charts.js", "answers.js", "page.js")
PACKAGES = ("vade_jax", "jax", "jaxlib", "flax", "optax", "numpy", "vllm")

LIMIT = 5_000_000  # bytes of the page
CURVES, ANSWERS, PICTURES = 1_000_000, 1_000_000, 2_300_000  # of them, to begin with
LISTED = 9  # prompts of a list


def at_end(workdir: PathLike, items: Sequence[Item]) -> pathlib.Path:
    """Writes the page of a run that has just ended, with its versions and pictures beside it.

    Args:
        workdir: of the run.
        items: the source of its training data, by row.
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    text = json.dumps(versions, indent=2) + "\n"
    atomic.write_text(pathlib.Path(workdir) / run.VERSIONS, text)
    find = pictures.finder(items)
    return write(workdir, find=lambda _: find, keep_pictures=True)


def write(
    workdir: PathLike,
    compare: Sequence[PathLike] = (),
    *,
    find: Callable[[Run], pictures.Find | None] = pictures.of_run,
    keep_pictures: bool = False,
) -> pathlib.Path:
    """Writes report.html, or comparison.html of several runs, into `workdir`; returns the path.

    Args:
        workdir: of the run.
        compare: other runs that are drawn over it. A directory without a run, or given twice, is
            left out with a note.
        find: run -> (uid -> item, or None), for pictures that the run directory does not hold; by
            default the data that the run's config names.
        keep_pictures: write the pictures of the page into the run directory, so that it can be made
            again without the data.

    Raises:
        FileNotFoundError: `workdir` holds nothing of a run.
        ValueError: the page cannot be written there.
    """
    workdirs, notes = run.once([workdir, *compare])
    runs = [run.read(w, x) for w, x in zip(workdirs, run.labels(workdirs), strict=True)]
    if runs[0].is_empty:
        raise FileNotFoundError(
            f"{workdir} is no run directory: it has no metrics.jsonl, no rollouts/ and no "
            "config.json that can be read; give the --workdir of a run"
        )
    notes += [f"no run in {r.workdir}: left out" for r in runs if r.is_empty]
    runs = [r for r in runs if not r.is_empty]
    notes += run.other_validations(runs)
    finds = [find(r) for r in runs]
    whole = [_section(i, r) for i, r in enumerate(runs)]
    # Single prompts, answers and pictures are most of the page: fewer of them until it fits.
    for share in (1, 2, 4, 8, 16, 32):
        sections = [
            section | _examples(section["run"], share * len(runs), find_of_run)
            for section, find_of_run in zip(whole, finds, strict=True)
        ]
        text = _render(runs, sections, notes)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    if keep_pictures:
        pictures.keep(workdir, sections[0]["album"].shown)
    path = pathlib.Path(workdir) / (COMPARISON if compare else FILE)
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror}): copy the run to where you may write,"
            " and give that --workdir"
        ) from error
    return path


# ------------------------------------------------------------------------------ one run
def _section(place: int, one: Run) -> Section:
    """Returns what the page says of a whole run."""
    inside, beside = headline.phases(one)
    facts, table = headline.facts(one), examples.table(one.log)
    maps = {
        "posterior": charts.posterior(one.log),
        "observed": charts.observed(one.log),
        "subsets": charts.subsets(one.log),
    }
    return {
        "run": one,
        "place": place,
        "what": headline.what(one),
        "facts": facts,
        "by_name": {fact.name: fact.value for fact in facts},
        "maps": {k: m and {**m, "id": f"{k}-{place}"} for k, m in maps.items()},
        "table": table,
        "more": len({p.subset for p in one.log.prompts.values()}) - len(table),
        "inside": inside,
        "beside": beside,
    }


def _examples(one: Run, share: int, find: pictures.Find | None) -> Section:
    """Returns single prompts and answers, in 1 / `share` of what one run alone may take."""
    sample, num_answers = examples.sample(one.log, ANSWERS // share)
    lists = examples.lists(one.log, max(3, LISTED // share))
    wanted = {p.uid: p for chosen in lists for p in chosen.prompts}
    wanted |= {group["uid"]: one.log.prompts[group["uid"]] for group in sample}
    questions = run.questions(one.log, wanted.values())
    kept, notes = pictures.read(one.workdir)
    album = pictures.Album(kept, find, PICTURES // share)
    for uid, prompt in wanted.items():
        album.take(prompt, questions[uid])
    if note := album.note():
        notes.append(note)
    return {
        "lists": [
            {"chosen": x, "cards": [_card(p, questions[p.uid]) for p in x.prompts]} for x in lists
        ],
        "asked": {uid: _asked(p, questions[uid], album) for uid, p in wanted.items()},
        "sample": sample,
        "num_shown": sum(len(group["answers"]) for group in sample),
        "num_answers": num_answers,
        "album": album,
        "notes": notes,
    }


def _card(prompt: Prompt, question: str) -> dict[str, Any]:
    """Returns a prompt of a list, for the template."""
    return {
        "uid": prompt.uid,
        "question": question,
        "gold": prompt.gold,
        "subset": prompt.subset,
        "variant": prompt.variant,
        "stratum": str(prompt.fields.get("stratum", "")),
        "right_answer": prompt.fields.get("right_answer"),
        "visits": len(prompt.visits),
        "rollouts": prompt.rollouts,
        "right": sum(group.right for group in prompt.visits),
        "wrong": examples.visible(examples.wrong(prompt)),
        "strip": examples.strip(prompt),
    }


def _asked(prompt: Prompt, question: str, album: pictures.Album) -> dict[str, Any]:
    """Returns a prompt of the sample of answers, for the script."""
    picture = album.shown.get(prompt.uid)
    return {
        "question": question[: examples.LONGEST],
        "gold": examples.shortened(prompt.gold),
        "subset": examples.shortened(prompt.subset),
        "variant": prompt.variant,
        "picture": picture.uri if picture else None,
        "images": picture.num_images if picture else 0,
    }


# ------------------------------------------------------------------------------ all runs
def _render(runs: Sequence[Run], sections: Sequence[Section], notes: list[str]) -> str:
    """Returns the page."""
    lines = len(runs) * (5 + len(charts.DETAILS))
    points = max(60, min(500, CURVES // (40 * lines)))
    shown = {
        "dynamics": charts.dynamics(runs, points),
        "details": charts.details(runs, points),
        "calibration": charts.calibration(runs, points),
    }
    drawn = [*shown["dynamics"], *shown["details"], shown["calibration"]]
    drawn += _maps_on_one_scale(sections)
    data = {
        "runs": [r.label for r in runs],
        "charts": {chart["id"]: chart for chart in drawn if chart},
        "prompts": [s["asked"] for s in sections],
        "answers": [{"run": i, **g} for i, s in enumerate(sections) for g in s["sample"]],
    }
    script = "\n".join((ASSETS / name).read_text("utf-8") for name in SCRIPTS)
    script = f"\n{script}\n"
    # The page's policy allows this one script by its digest, so that nothing in it that a model
    # wrote can run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    notes = [*notes, *(f"{r.label}: {n}" for r in runs for n in r.notes)]
    notes += [f"{s['run'].label}: {n}" for s in sections for n in s["notes"]]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=" · ".join(r.label for r in runs),
        runs=runs,
        sections=sections,
        notes=notes,
        fact_names=list(dict.fromkeys(f.name for s in sections for f in s["facts"])),
        charts=shown,
        settings=headline.settings(runs),
        data=data,
        style=(ASSETS / "style.css").read_text("utf-8"),
        script=script,
        script_digest=digest,
        made=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )


def _maps_on_one_scale(sections: Sequence[Section]) -> list[charts.Chart]:
    """Returns all maps; the darkest cell of a kind means the same in every run."""
    found = []
    for section in sections:
        for kind, one in section["maps"].items():
            same_kind = [s["maps"][kind] for s in sections if s["maps"][kind]]
            cells = (x for m in same_kind for c in m["values"] for x in c[: m["named"]])
            if one:
                found.append({**one, "most": max(cells, default=0.0)})
    return found
