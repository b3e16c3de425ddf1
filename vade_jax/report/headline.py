"""The numbers on top of the page, the time of each phase, and what the runs were told."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vade_jax.report import curves, prompts
from vade_jax.report.run import Run
from vade_jax.store import metrics

# In the order of a step; the others of timing_s/* run beside these or inside them.
PHASES = {
    "select": "choosing prompts",
    "gen": "generating answers",
    "reward": "waiting for rewards",
    "adv": "advantages, old and reference log-probs",
    "update_actor": "updating the policy",
    "update_weights": "new weights to the engine",
    "testing": "validation",
    "measure": "measuring all prompts",
}
BESIDE = {
    "prepare": "preparing the next prompts",
    "judge": "judging answers",
    "compile": "compiling programs (in the phases above)",
}


class Fact(NamedTuple):
    """One number with what it means."""

    name: str
    value: str
    detail: str = ""


def facts(run: Run) -> list[Fact]:
    """Returns what a run learned and what it cost, as far as it was measured."""
    found = [_score(run), _ratio(run), _forecast(run), *_spent(run), *_logged(run)]
    return [fact for fact in found if fact is not None]


def what(run: Run) -> list[str]:
    """Returns in a few words what was run."""
    config = run.config
    sampler, loss = (_within(config, name) for name in ("sampler", "loss"))
    found = [f"selector {sampler['name']}"] if "name" in sampler else []
    found += [f"{loss['ratio']} ratio"] if "ratio" in loss else []
    if {"num_prompts", "num_rollouts"} <= config.keys():
        found.append(
            f"{config['num_prompts']} × {config['num_rollouts']} answers a step"
        )
    found += [f"seed {config['seed']}"] if "seed" in config else []
    if not run.records:
        return [*found, "no step recorded"]
    of = f" of {config['num_steps']}" if "num_steps" in config else ""
    return [*found, f"step {run.records[-1]['step']}{of}"]


def _within(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def _score(run: Run) -> Fact | None:
    curve = curves.validation(run.records)
    if not curve.values.size:
        return None
    best = int(np.argmax(curve.values))
    detail = f"{curve.values[0]:.3f} at first, {curve.values[best]:.3f} at best (step "
    names = metrics.validation_names(run.records)
    sets = f", mean of {len(names)} sets" if len(names) > 1 else ""
    return Fact(
        "Validation accuracy",
        f"{curve.values[-1]:.3f}",
        f"{detail}{curve.steps[best]}){sets}",
    )


def _ratio(run: Run) -> Fact | None:
    values = curves.named(run.records, curves.EFFECTIVE).values
    if not values.size:
        return None
    quarter = max(1, len(values) // 4)
    first, last = values[:quarter].mean(), values[-quarter:].mean()
    return Fact(
        "Effective ratio",
        f"{values.mean():.2f}",
        f"{first:.2f} in the first quarter, {last:.2f} in the last",
    )


def _forecast(run: Run) -> Fact | None:
    predicted, observed = curves.predicted_and_observed(run.records)
    if not predicted.size:
        return None
    bias = np.mean(observed - predicted)
    return Fact(
        "Forecast off by",
        f"{np.mean(np.abs(observed - predicted)):.3f}",
        f"a step; observed − predicted {bias:+.3f}".replace("-", "−"),
    )


def _spent(run: Run) -> list[Fact]:
    found = []
    rollouts = curves.rollouts(run.records).values
    if rollouts.size:
        tokens = curves.named(run.records, "vade/tokens_total").values
        detail = [f"{compact(tokens[-1])} tokens"] if tokens.size else []
        measured = curves.named(run.records, "vade/measured_rollouts").values
        if measured.size and measured[-1]:
            passes = f"{compact(measured[-1])} in passes over all prompts, in no log"
            detail.append(passes)
        found.append(Fact("Rollouts", compact(rollouts[-1]), "; ".join(detail)))
    seconds = curves.named(run.records, "timing_s/step").values
    if seconds.size:
        detail = f"{len(seconds):,} steps, {duration(np.median(seconds))} each (median)"
        found.append(Fact("Time", duration(seconds.sum()), detail))
    return found


def _logged(run: Run) -> list[Fact]:
    if not run.log.groups:
        return []
    size = _within(run.config, "data").get("num_train")
    detail = [f"of {size:,} in the data"] if isinstance(size, int) and size else []
    asked = list(run.log.prompts.values())
    variants = sum(bool(prompt.variant) for prompt in asked)
    detail += [f"and {variants:,} variants of them"] if variants else []
    lists = {chosen.name: chosen for chosen in prompts.lists(run.log, 0)}
    hopeless = lists["hopeless"]
    return [
        Fact("Prompts asked", f"{len({p.source for p in asked}):,}", ", ".join(detail)),
        Fact(
            "Spent on prompts never right",
            f"{100 * hopeless.share:.0f} %",
            f"of the logged rollouts, on {hopeless.num_all:,} asked {prompts.REVISITED} times or more",
        ),
    ]


# ------------------------------------------------------------------------------ time
def phases(run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns (phases that make up a step, what ran beside them), each with its seconds."""
    step = curves.named(run.records, "timing_s/step").values
    whole = float(step.sum())
    if not whole:
        return [], []
    inside = [_phase(run, name, text, whole) for name, text in PHASES.items()]
    inside = [phase for phase in inside if phase]
    rest = max(0.0, whole - sum(phase["seconds"] for phase in inside))
    inside.append(_row("rest", "everything else", rest, rest / len(step), whole))
    known = {"step", *PHASES, *BESIDE}
    names = {name for record in run.records for name in record}
    more = sorted(n[9:] for n in names if n.startswith("timing_s/"))
    others = BESIDE | {n: "" for n in more if n not in known}
    beside = [_phase(run, name, text, whole) for name, text in others.items()]
    return inside, [phase for phase in beside if phase]


def _phase(run: Run, name: str, text: str, whole: float) -> dict[str, Any] | None:
    values = curves.named(run.records, f"timing_s/{name}").values
    if not values.size:
        return None
    return _row(name, text, float(values.sum()), float(np.median(values)), whole)


def _row(name: str, text: str, total: float, middle: float, whole: float):
    return {
        "name": name,
        "text": text,
        "seconds": total,
        "total": duration(total),
        "median": duration(middle),
        "share": total / whole,
    }


# ------------------------------------------------------------------------------ settings
def settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns a row a field of the configs: name, a value a run, and whether they differ."""
    flat = [_flat(run.config) for run in runs]
    names = sorted({name for fields in flat for name in fields})
    rows = []
    for name in names:
        values = [fields.get(name, "–") for fields in flat]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = (
                value if isinstance(value, str) and value else repr(value)
            )
    return found


# ------------------------------------------------------------------------------ text
def compact(x: float) -> str:
    """Returns 51,200 as it is, and 12.3 M where digits would not be read."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if x >= size:
            return f"{x / size:.1f} {unit}"
    return f"{x:,.0f}"


def duration(seconds: float) -> str:
    """Returns seconds in the unit that a person would use."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
