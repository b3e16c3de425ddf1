"""A run in numbers: its summary table, the top of its page, its time by phase, and its settings."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vade_jax.report import curves, examples, outcome
from vade_jax.report.curves import Curve, Records
from vade_jax.report.outcome import Outcome
from vade_jax.report.run import Run
from vade_jax.types import PathLike

# The files of a run directory, in the order of interest: (name, description).
PLACES = (
    ("report.html", "everything on one page: open it in a browser"),
    ("rollouts", "every answer, as parquet"),
    ("metrics.jsonl", "one line a step"),
    ("checkpoints", "start again with the same --workdir to resume"),
    ("policy", "the policy as a Hugging Face directory"),
)
# The phases of a step, in order. All other timings (timing_s/*) run at the same time or inside a phase.
PHASES = {
    "save_checkpoint": "saving the step before",
    "select": "choosing prompts",
    "gen": "generating answers",
    "reward": "waiting for rewards",
    "adv": "advantages, and what the selector learns",
    "update_actor": "log-probs, and updating the policy",
    "wait_rollouts": "waiting for the batch made in parallel",
    "update_weights": "new weights to the engine",
    "testing": "validation",
    "measure": "measuring all prompts",
}
# Phases that run at the same time as the others where batches are made ahead.
AHEAD = ("select", "gen", "reward", "adv")
PARALLEL = {
    "gen_tail": "of generating: from the median group to the last",
    "prepare": "preparing the next prompts",
    "judge": "judging answers",
    "compile": "compiling programs (in the phases above)",
}


# ------------------------------------------------------------------------------ at the end of a run
def summary(records: Records, *, workdir: PathLike | None = None) -> str:
    """Returns a short table: what a run learned, what it cost and, given `workdir`, its files."""
    if not records:
        return "no step was taken: nothing to report"
    run, rows = outcome.of_run(records), []
    for name in curves.validation_names(records):
        _, *words, _, samples = name.split("/")  # val/<set>/acc/mean@k
        curve = curves.named(records, name)
        if curve.values.size:
            text = f"{_first_and_best(curve, 'first', 'best')}, {curve.values[-1]:.3f} last"
            rows.append((f"{'/'.join(words)} accuracy ({samples})", text))
    accuracy = curves.named(records, curves.ACCURACY)
    for label, curve in (("effective ratio", run.effective), ("training accuracy", accuracy)):
        if curve.values.size:
            rows.append((label, _quarters(curve, "{:.3f}")))
    if math.isfinite(run.gap):
        text = f"off by {run.gap:.3f} a step; observed - predicted {run.bias:+.3f}"
        rows.append(("predicted ratio", text))
    rows += _summary_of_cost(records, run)
    if workdir is not None:
        paths = [(os.path.join(workdir, name), text) for name, text in PLACES]
        rows += [(path, text) for path, text in paths if os.path.exists(path)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


def _first_and_best(curve: Curve, first: str, best: str) -> str:
    top = int(np.argmax(curve.values))
    return (
        f"{curve.values[0]:.3f} {first}, {curve.values[top]:.3f} {best} (step {curve.steps[top]})"
    )


def _quarters(curve: Curve, form: str) -> str:
    first, last = (form.format(x) for x in curves.quarters(curve.values))
    return f"{first} in the first quarter, {last} in the last"


def _summary_of_cost(records: Records, run: Outcome) -> list[tuple[str, str]]:
    spent = [f"{max(record['step'] for record in records):,} steps"]
    skipped = curves.named(records, "vade/skipped_updates").values
    spent[0] += f" ({skipped[-1]:,.0f} taught nothing)" if skipped.size and skipped[-1] else ""
    totals = {"rollouts": run.rollouts, "tokens": run.tokens}
    spent += [f"{total:,.0f} {name}" for name, total in totals.items() if math.isfinite(total)]
    rows = [("spent", ", ".join(spent))]
    # `experiments.train` says how long everything took, including the warm start and the page.
    for label, metric, form in (
        ("time", curves.SECONDS, "{:.2f} s a step"),
        ("throughput", "perf/throughput", "{:,.0f} tokens/s a device"),
        ("MFU of learning", "perf/mfu", "{:.1%}"),
    ):
        values = curves.named(records, metric).values
        if values.size:
            rows.append((label, f"{form.format(np.median(values))} (median)"))
    return rows


# ------------------------------------------------------------------------------ on top of the page
class Fact(NamedTuple):
    """One number, and what it means."""

    name: str
    value: str
    detail: str = ""


def what(run: Run) -> list[str]:
    """Returns the run in a few words: selector, loss, answers a step, seed and steps."""
    config = run.config
    selector, loss = _section(config, "selector"), _section(config, "loss")
    parts = [f"selector {selector['name']}"] if "name" in selector else []
    parts += [f"{loss['ratio']} ratio"] if "ratio" in loss else []
    if {"num_prompts", "num_rollouts"} <= config.keys():
        parts.append(f"{config['num_prompts']} × {config['num_rollouts']} answers a step")
    parts += [f"seed {config['seed']}"] if "seed" in config else []
    if not run.records:
        return [*parts, "no step recorded"]
    step, of = run.records[-1]["step"], ""
    if config.get("num_epochs"):
        of = f", epoch {run.records[-1].get('vade/epochs', 0):.1f} of {config['num_epochs']:g}"
    elif "num_steps" in config:
        of = f" of {config['num_steps']}"
    return [*parts, f"step {step}{of}"]


def facts(run: Run) -> list[Fact]:
    """Returns what a run learned and what it cost, as far as it was measured."""
    numbers = outcome.of_run(run.records)
    return [*_learned(run.records, numbers), *_spent(run.records, numbers), *_asked(run)]


def _learned(records: Records, run: Outcome) -> list[Fact]:
    facts = []
    if run.validations.values.size:
        detail = _first_and_best(run.validations, "at first", "at best")
        names = curves.validation_names(records)
        detail += f", mean of {len(names)} sets" if len(names) > 1 else ""
        facts.append(Fact("Validation accuracy", f"{run.last:.3f}", detail))
    if run.forgotten.values.size:
        families = curves.forgotten_families(records)
        last = {name: curves.forgotten(records, name).values[-1] for name in families}
        most = sorted(last, key=last.__getitem__, reverse=True)[:3]
        detail = ", ".join(f"{name} {100 * last[name]:.0f} %" for name in most if last[name])
        value = f"{100 * run.forgotten.values[-1]:.1f} %"
        facts.append(Fact("Known questions forgotten", value, detail))
    if run.effective.values.size:
        detail = _quarters(run.effective, "{:.2f}")
        facts.append(Fact("Effective ratio", f"{run.effective_ratio:.2f}", detail))
    if math.isfinite(run.gap):
        detail = f"a step; observed − predicted {run.bias:+.3f}".replace("-", "−")
        facts.append(Fact("Forecast off by", f"{run.gap:.3f}", detail))
    return facts


def unlearning(records: Records) -> list[str]:
    """Returns a line for each kind of question that the run is losing, with settings that may help."""
    lines = []
    for kind, curve in outcome.of_run(records).forgotten_kinds.items():
        kept = np.flatnonzero(curve.values <= curves.UNLEARNED)
        lost = curve.steps[kept[-1] + 1 if kept.size else 0 :]
        if not lost.size:
            continue
        kl = curves.named(records, curves.KL)
        now = kl.values[kl.steps <= lost[-1]][-1:]
        since = f" since step {lost[0]}" if lost.size > 1 else ""
        drift = f"; KL to the reference {now[0]:.2g}" if now.size else ""
        lines.append(
            f"{kind or 'what it knew'} is being unlearned{since}: at step {lost[-1]}, "
            f"{100 * curve.values[-1]:.0f} % of the known questions are forgotten{drift}. What may help: a higher "
            "loss.kl_coef, a lower optimizer.learning_rate, and prompts that are solved in every batch "
            "(selector.options.uniform_share of vade and informed, or the selector remind around another)"
        )
    return lines


def _spent(records: Records, run: Outcome) -> list[Fact]:
    facts = []
    if math.isfinite(run.rollouts):
        detail = [f"{compact(run.tokens)} tokens"] if math.isfinite(run.tokens) else []
        measured = curves.named(records, "vade/measured_rollouts").values
        if measured.size and measured[-1]:
            passes = f"{compact(measured[-1])} in passes over all prompts, in no log"
            detail.append(passes)
        facts.append(Fact("Rollouts", compact(run.rollouts), "; ".join(detail)))
    seconds = curves.named(records, "timing_s/step").values
    if seconds.size:
        detail = f"{len(seconds):,} steps, {duration(np.median(seconds))} each (median)"
        devices = curves.named(records, "perf/device_seconds").values
        detail += f"; {duration(devices.sum())} of all devices" if devices.size else ""
        facts.append(Fact("Time", duration(seconds.sum()), detail))
    lengths = [curves.named(records, f"response_length/p{q}").values for q in (50, 95, 99)]
    if all(of.size for of in lengths):
        half, most, nearly_all = (f"{np.mean(of):,.0f}" for of in lengths)
        detail = f"95 % of a step's answers have at most {most}, 99 % at most {nearly_all}"
        facts.append(Fact("Answer length", f"{half} tokens", detail))
    return facts


def _asked(run: Run) -> list[Fact]:
    if not run.groups:
        return []
    detail = []
    if run.num_items:
        detail.append(f"of {run.num_items:,} in the data")
    variants = sum(bool(prompt.variant) for prompt in run.prompts.values())
    detail += [f"and {variants:,} variants of them"] if variants else []
    num_asked = len({prompt.source for prompt in run.prompts.values()})
    hopeless = examples.lists(run)["hopeless"]
    often = f"on {len(hopeless):,} asked {examples.REVISITED} times or more"
    return [
        Fact("Prompts asked", f"{num_asked:,}", ", ".join(detail)),
        Fact(
            "Spent on prompts never right",
            f"{100 * examples.share(run, hopeless):.0f} %",
            f"of the logged rollouts, {often}",
        ),
    ]


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


# ------------------------------------------------------------------------------ time
class Phase(NamedTuple):
    """The time that a phase took, in seconds."""

    name: str
    text: str
    total: float
    median: float  # of the steps that have this phase
    share: float  # of all steps


def phases(run: Run) -> tuple[list[Phase], list[Phase]]:
    """Returns the phases that make up a step, and the timings of what ran at the same time."""
    step = curves.named(run.records, "timing_s/step").values
    overall = float(step.sum())
    if not overall:
        return [], []

    def timed(names: Mapping[str, str]) -> list[Phase]:
        shown = []
        for name, text in names.items():
            seconds = curves.named(run.records, f"timing_s/{name}").values
            if seconds.size:
                total = float(seconds.sum())
                shown.append(Phase(name, text, total, float(np.median(seconds)), total / overall))
        return shown

    made_ahead = curves.named(run.records, "timing_s/wait_rollouts").values.size
    ahead = {name: PHASES[name] for name in (AHEAD if made_ahead else ())}
    inside = timed({name: text for name, text in PHASES.items() if name not in ahead})
    rest = max(0.0, overall - sum(phase.total for phase in inside))
    inside.append(Phase("rest", "everything else", rest, rest / len(step), rest / overall))
    # Timings with unknown names are shown with what ran at the same time.
    names = {name[9:] for record in run.records for name in record if name.startswith("timing_s/")}
    more = sorted(names - {"step", *PHASES, *PARALLEL})
    return inside, timed(ahead | PARALLEL | dict.fromkeys(more, ""))


# ------------------------------------------------------------------------------ settings
def settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns a row for each field of the configs: name, value in each run, and whether values differ."""
    fields_of = [_flat(run.config) for run in runs]
    rows = []
    for name in sorted({name for fields in fields_of for name in fields}):
        values = [fields.get(name, "–") for fields in fields_of]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            is_text = isinstance(value, str) and value
            flat[f"{prefix}{name}"] = value if is_text else repr(value)
    return flat


# ------------------------------------------------------------------------------ text
def compact(x: float) -> str:
    """Returns a count with all its digits (51,200), or rounded from a million on (12.3 M)."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if x >= size:
            return f"{x / size:.1f} {unit}"
    return f"{x:,.0f}"


def duration(seconds: float) -> str:
    """Returns seconds as text in a fitting unit: ms, s, min or h."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    return _clock(seconds)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
