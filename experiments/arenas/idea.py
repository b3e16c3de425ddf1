"""Draws the idea of VADE, docs/idea.png, from the selector's own functions."""

from typing import Any

import jax
import numpy as np
from scipy import stats

from experiments.arenas import plotting
from vade_jax.samplers import beta
from vade_jax.types import PathLike

# Three prompts with their counts of right and wrong answers so far.
PROMPTS = {"mostly right": (14.0, 1.0), "sometimes right": (3.0, 7.0), "hardly seen": (0.0, 1.0)}
NUM_DRAWS = 12
STEPS = (
    "1  a posterior of every prompt's pass rate",
    "2  draw p, score p(1-p)², take the best",
    "3  roll out, count, forget slowly",
)


def draw(path: PathLike) -> None:
    """Draws the picture."""
    colors = dict(zip(PROMPTS, plotting.COLORS, strict=False))
    with plotting.panels(path, 3, size=(13, 3.4)) as (_, row):
        posteriors, scores, after = row
        for axes, title in zip(row, STEPS, strict=True):
            axes.set_title(title)
        _draw_posteriors(posteriors, PROMPTS, colors)
        posteriors.legend()
        _draw_scores(scores, colors)
        _draw_visit(after, colors)


def _draw_posteriors(axes: Any, counts: dict, colors: dict) -> None:
    """Draws Beta(alpha + 1, beta + 1) for each prompt."""
    p = np.linspace(0, 1, 200)
    for name, (right, wrong) in counts.items():
        axes.plot(p, stats.beta.pdf(p, right + 1, wrong + 1), color=colors[name], label=name)
    axes.set_xlabel("pass rate p")
    axes.set_yticks([])


def _draw_scores(axes: Any, colors: dict) -> None:
    """Draws the information gain, and the points on it that draws for each prompt give."""
    p = np.linspace(0, 1, 200)
    axes.plot(p, beta.info_gain(p), color=plotting.FAINT)
    for number, (name, (right, wrong)) in enumerate(PROMPTS.items()):
        key = jax.random.key(number)
        drawn = np.asarray(beta.draw(key, np.full(NUM_DRAWS, right), np.full(NUM_DRAWS, wrong)))
        axes.plot(drawn, beta.info_gain(drawn), "o", color=colors[name], markersize=6, alpha=0.8)
    axes.set_xlabel("drawn p")
    axes.set_ylabel("information gain")


def _draw_visit(axes: Any, colors: dict) -> None:
    """Draws one prompt's posterior before and after a visit with 5 of 8 answers right; old counts decay."""
    name = "hardly seen"
    right, wrong = PROMPTS[name]
    new = (0.2 * right + 5, 0.2 * wrong + 3)  # Eq. 5
    _draw_posteriors(axes, {name: (right, wrong)}, colors)
    axes.lines[-1].set_linestyle("--")
    _draw_posteriors(axes, {name: new}, colors)
    axes.text(0.76, axes.get_ylim()[1] * 0.8, "after 5 right\nof 8", color=colors[name])
    axes.text(0.02, axes.get_ylim()[1] * 0.75, "before", color=colors[name])
