"""Runs of a sweep whose numbers are known."""

from experiments.arenas import records


def recorded(seed, scores, steps=None, *, hopeless=0.25, config=None, **metrics):
    """Returns a run with validations at `steps` (from 0) and 64 answers a step.

    Other metrics are numbers, or functions of the step; the step 0 has its validation alone.
    """
    lines = []
    for step, score in zip(steps or range(len(scores)), scores, strict=True):
        line = {"step": step, "val/own/acc/mean@4": score}
        if step:
            line["vade/rollouts_total"] = 64 * step
            line |= {name: x(step) if callable(x) else x for name, x in metrics.items()}
        lines.append(line)
    return records.Recorded(f"run {seed}", {"seed": seed, **(config or {})}, lines, hopeless)
