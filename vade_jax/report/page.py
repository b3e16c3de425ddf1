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
from vade_jax.report import (
    answers,
    charts,
    headline,
    maps,
    pictures,
    prompts,
    run,
)
from vade_jax.report import groups as logs
from vade_jax.report.run import Run
from vade_jax.types import Item

PathLike = str | os.PathLike[str]

PACKAGES = ("vade_jax", "jax", "jaxlib", "flax", "optax", "numpy", "vllm")
FILE, COMPARISON = "report.html", "comparison.html"
ASSETS = pathlib.Path(__file__).with_name("assets")
SCRIPTS = ("charts.js", "answers.js", "page.js")

LIMIT = 5_000_000  # bytes of the page
CURVES, ANSWERS, PICTURES = 1_000_000, 1_000_000, 2_300_000  # of them, to begin with
LISTED = 9  # prompts of a list


def write(
    workdir: PathLike,
    compare: Sequence[PathLike] = (),
    *,
    find: Callable[[Run], pictures.Find | None] = lambda _: None,
    keep_pictures: bool = False,
) -> pathlib.Path:
    """Writes report.html, or comparison.html of several runs, into `workdir`; returns the path.

    Args:
        workdir: of the run.
        compare: other runs that are drawn over it; one that is none, or is there already, is left
            out with a note.
        find: run -> (uid -> item or None), or None: the data that pictures come from which the run
            directory does not hold.
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
    empty = [str(r.workdir) for r in runs if r.is_empty]
    runs = [r for r in runs if not r.is_empty]
    finds = [find(r) for r in runs]
    notes += [f"no run in {w}: left out" for w in empty]
    notes += run.other_sets(runs)
    whole = [_section(i, r) for i, r in enumerate(runs)]
    for share in (1, 2, 4, 8, 16, 32):
        each = share * len(runs)
        parts = [_sample(r, each, f) for r, f in zip(runs, finds, strict=True)]
        sections = [{**s, **p} for s, p in zip(whole, parts, strict=True)]
        text = _render(runs, sections, notes)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    if keep_pictures:
        pictures.keep(workdir, sections[0]["album"].shown)
    path = pathlib.Path(workdir) / (COMPARISON if compare else FILE)
    _replace(path, text)
    return path


def at_end(workdir: str, items: Sequence[Item]) -> pathlib.Path:
    """Writes the page of a run that has just ended, with its versions and pictures beside it.

    Args:
        workdir: of the run.
        items: the source of its training data, by row.
    """
    text = json.dumps(versions(), indent=2) + "\n"
    atomic.write_text(pathlib.Path(workdir) / "versions.json", text)
    find = pictures.finder(items)
    return write(workdir, find=lambda _: find, keep_pictures=True)


def versions() -> dict[str, str]:
    """Returns the versions that a run depends on, of what is installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _render(
    runs: Sequence[Run], sections: Sequence[dict[str, Any]], notes: Sequence[str]
) -> str:
    """Returns the page."""
    data, shown = _data(runs, sections)
    script = "\n".join((ASSETS / name).read_text("utf-8") for name in SCRIPTS)
    script = f"\n{script}\n"
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
        revisited=prompts.REVISITED,
    )


def _data(runs: Sequence[Run], sections: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
    """Returns what the script reads, and what the template has to make room for."""
    lines = len(runs) * (5 + len(charts.DETAILS))
    points = max(60, min(500, CURVES // (40 * lines)))
    shown = {
        "dynamics": charts.dynamics(runs, points),
        "details": charts.details(runs, points),
        "calibration": charts.calibration(runs, points),
    }
    drawn = [*shown["dynamics"], *shown["details"], shown["calibration"]]
    drawn += [m for s in sections for m in _on_one_scale(s["maps"], sections)]
    data = {
        "runs": [r.label for r in runs],
        "charts": {chart["id"]: chart for chart in drawn if chart},
        "prompts": [s["asked"] for s in sections],
        "answers": [
            {"run": i, **g} for i, s in enumerate(sections) for g in s["sample"]
        ],
    }
    return data, shown


def _on_one_scale(
    maps_of_run: dict[str, Any], sections: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns maps whose darkest cell means the same in every run."""
    found = []
    for kind, one in maps_of_run.items():
        others = [s["maps"][kind] for s in sections if s["maps"][kind]]
        cells = (x for m in others for c in m["values"] for x in c[: m["named"]])
        most = max(cells, default=0.0)
        found += [{**one, "most": most}] if one else []
    return found


def _section(place: int, one: Run) -> dict[str, Any]:
    """Returns what the page says of a whole run."""
    inside, beside = headline.phases(one)
    found = {
        "posterior": maps.posterior(one.log),
        "observed": maps.observed(one.log),
        "subsets": maps.subsets(one.log),
    }
    return {
        "run": one,
        "place": place,
        "what": headline.what(one),
        "facts": (facts := headline.facts(one)),
        "by_name": {fact.name: fact.value for fact in facts},
        "maps": {k: m and {**m, "id": f"{k}-{place}"} for k, m in found.items()},
        "table": (table := prompts.table(one.log)),
        "more": len({p.subset for p in one.log.prompts.values()}) - len(table),
        "inside": inside,
        "beside": beside,
    }


def _sample(one: Run, share: int, find: pictures.Find | None) -> dict[str, Any]:
    """Returns single prompts and answers, in 1 / `share` of what one run alone may take."""
    sample, num_answers = answers.sample(one.log, ANSWERS // share)
    lists = prompts.lists(one.log, max(3, LISTED // share))
    wanted = {p.uid: p for chosen in lists for p in chosen.prompts}
    wanted |= {group["uid"]: one.log.prompts[group["uid"]] for group in sample}
    texts = logs.questions(one.log, wanted.values())
    kept, notes = pictures.read(one.workdir)
    album = pictures.Album(kept, find, PICTURES // share)
    for uid, prompt in wanted.items():
        album.take(prompt, texts[uid])
    if note := album.note():
        notes.append(note)
    return {
        "lists": [_listed(chosen, texts) for chosen in lists],
        "asked": {uid: _asked(p, texts[uid], album) for uid, p in wanted.items()},
        "sample": sample,
        "num_shown": sum(len(group["answers"]) for group in sample),
        "num_answers": num_answers,
        "album": album,
        "notes": notes,
    }


def _listed(chosen: prompts.Chosen, texts: dict[str, str]) -> dict[str, Any]:
    cards = [
        {
            "uid": prompt.uid,
            "question": texts[prompt.uid],
            "gold": prompt.gold,
            "subset": prompt.subset,
            "variant": prompt.variant,
            "stratum": str(prompt.fields.get("stratum", "")),
            "right_answer": prompt.fields.get("right_answer"),
            "visits": len(prompt.visits),
            "rollouts": prompt.rollouts,
            "right": sum(group.right for group in prompt.visits),
            "wrong": answers.visible(prompts.wrong(prompt)),
            "strip": prompts.strip(prompt),
        }
        for prompt in chosen.prompts
    ]
    return {"chosen": chosen, "cards": cards}


def _asked(prompt: logs.Prompt, text: str, album: pictures.Album) -> dict[str, Any]:
    picture = album.shown.get(prompt.uid)
    return {
        "question": text[: answers.LONGEST],
        "gold": answers.shortened(prompt.gold),
        "subset": answers.shortened(prompt.subset),
        "variant": prompt.variant,
        "picture": picture.uri if picture else None,
        "images": picture.num_images if picture else 0,
    }


def _replace(path: pathlib.Path, text: str) -> None:
    """Writes a file at once: a crash leaves the old one."""
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror}): copy the run to where you may write,"
            " and give that --workdir"
        ) from error
