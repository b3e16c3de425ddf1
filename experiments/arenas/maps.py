"""Maps of a sweep: the arms over the other settings that it varies.

These settings are VADE's decays, learning rates, batches, and the sizes of a step and of the pool.
"""

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.arenas import cost, plotting
from experiments.arenas.comparison import Arm, Comparison, Groups
from experiments.arenas.plotting import FAINT, Look
from vade_jax.report import curves
from vade_jax.types import PathLike

DECAYS_NOTE = f"mean over seeds;  accuracy: mean of the last {cost.LATE} validations;  the paper's: 0.2 and 0.999"
_DECAYS = re.compile(r"decay_(\d+)_(\d+)")  # lambda_1 and lambda_2 in thousandths
RATES_NOTE = (
    f"mean over seeds of the mean of the last {cost.LATE} validations;  small: single seeds"
)
SETTINGS_NOTE = (
    f"mean of the last {cost.LATE} validations, less the baseline's with the same seed;  bar: 95 % interval (Student's t), "
    "from three seeds on;  small: single seeds"
)
# The name of a setting in the figure, and how to read it from a run's config.
SETTINGS = {
    "prompts a step": lambda c: c["num_prompts"],
    "answers to a prompt": lambda c: c["num_rollouts"],
    "prompts in the pool": lambda c: c["data"]["num_train"],
}
Setting = tuple[int, ...]  # one value for each of `SETTINGS`


def draw_decays(compared: Comparison, path: PathLike) -> None:
    """Draws accuracy and effective ratio over lambda_1 and lambda_2; nothing without arms of such a grid."""
    grids = {}
    for name, arms in compared.groups.items():
        found = {_DECAYS.fullmatch(label): arm for label, arm in arms.items()}
        found = {(int(m[1]) / 1000, int(m[2]) / 1000): arm.means for m, arm in found.items() if m}
        if found:
            grids[name] = found
    if not grids:
        return
    titles = {"late": "Accuracy", "effective_ratio": "Effective ratio"}
    size = (11, 4.2 * len(grids) + 0.4)
    with plotting.panels(path, len(grids), 2, size=size, note=DECAYS_NOTE) as (figure, axes):
        for row, (name, found) in zip(axes, grids.items(), strict=True):
            selected, rest = (sorted({pair[i] for pair in found}) for i in (0, 1))
            for panel, (column, title) in zip(row, titles.items(), strict=True):
                mean = np.full((len(selected), len(rest)), np.nan)
                for (one, two), means in found.items():
                    place = selected.index(one), rest.index(two)
                    mean[place] = means[column].mean
                    panel.text(*reversed(place), f"{mean[place]:.3f}", ha="center", va="center")
                shown = panel.imshow(mean, cmap="Blues", origin="lower", aspect="auto", alpha=0.6)
                figure.colorbar(shown, ax=panel)
                panel.grid(visible=False)
                panel.set_title(f"{name}\n{title}", linespacing=1.35)
                panel.set_xticks(range(len(rest)), [f"{x:g}" for x in rest])
                panel.set_yticks(range(len(selected)), [f"{x:g}" for x in selected])
                panel.set_xlabel("kept of the others' counts, $\\lambda_2$")
                panel.set_ylabel("kept of the selected, $\\lambda_1$")


def draw_rates(groups: Groups, compared: Comparison, path: PathLike) -> None:
    """Draws the accuracy of each arm over learning rates; "vade@2e-4" is a point of "vade".

    Draws nothing if no arm has two rates.
    """
    lines: dict[str, dict[str, dict[float, Arm]]] = {}
    for name, label, config, arm in _configured(groups, compared):
        by_rate = lines.setdefault(name, {}).setdefault(label.partition("@")[0], {})
        by_rate[config["optimizer"]["learning_rate"]] = arm
    lines = {
        name: {arm: by_rate for arm, by_rate in arms.items() if len(by_rate) > 1}
        for name, arms in lines.items()
    }
    lines = {name: arms for name, arms in lines.items() if arms}
    if not lines:
        return
    looks = plotting.looks(arm for arms in lines.values() for arm in arms)
    num_columns = len(lines) if len(lines) < 4 else 2
    num_rows = -(-len(lines) // num_columns)
    layout: dict[str, Any] = {
        "size": (5.4 * num_columns + 2.2, 4.2 * num_rows),
        "sharex": True,
        "sharey": "row",
    }
    all_lines = [by_rate for arms in lines.values() for by_rate in arms.values()]
    with plotting.panels(path, num_rows, num_columns, note=RATES_NOTE, **layout) as (figure, grid):
        for panel in grid.flat[len(lines) :]:
            panel.set_visible(False)
        for panel, (name, arms) in zip(grid.flat, lines.items(), strict=False):
            for arm, by_rate in arms.items():
                rates, look = sorted(by_rate), looks[arm]
                late = [by_rate[rate].means["late"].mean for rate in rates]
                panel.plot(rates, late, marker="o", **look.style())
                for rate in rates:
                    values = by_rate[rate].values["late"]
                    panel.scatter([rate] * len(values), values, s=9, color=look.color, alpha=0.5)
            _rates_axis(panel, all_lines)
            panel.tick_params(labelbottom=True)
            panel.set_title(f"{name}\nAccuracy", linespacing=1.35)
        handles = [plotting.line(**look.style()) for look in looks.values()]
        figure.legend(handles, list(looks), loc="outside right upper", fontsize=10)


def draw_batches(groups: Groups, compared: Comparison, path: PathLike) -> None:
    """Draws the baseline's accuracy over learning rates, a line for each batch, and the best of each batch.

    At equal rollouts this shows the critical batch: up to this size a larger batch ends as high, beyond
    it a larger batch ends lower at any rate. A batch is left out if its total of rollouts is not the
    commonest one. If several groups have the same batch ("clean/gspo" and "wrong10/gspo"), the first is
    drawn. Draws nothing unless two batches have two rates each.
    """
    found: dict[tuple[str, int, int], dict[float, Arm]] = {}
    for name, label, config, arm in _configured(groups, compared):
        if label.partition("@")[0] == compared.baseline.partition("@")[0]:
            size = config["num_prompts"] * config["num_rollouts"]
            by_rate = found.setdefault((name, size, arm.costs[curves.ROLLOUTS].mean), {})
            by_rate[config["optimizer"]["learning_rate"]] = arm
    found = {key: by_rate for key, by_rate in found.items() if len(by_rate) > 1}
    budgets = collections.Counter(budget for _, _, budget in found).most_common(1)
    # Batches compare only at equal rollouts: those with the commonest total are kept.
    batches: dict[int, dict[float, Arm]] = {}
    for (_, size, budget), by_rate in sorted(found.items(), key=lambda item: item[0][1]):
        if budget == budgets[0][0]:
            batches.setdefault(size, by_rate)
    if len(batches) < 2:
        return
    with plotting.panels(path, 1, 2, size=(11.4, 4.2), note=RATES_NOTE, sharey=True) as (_, row):
        left, right = row[0]
        for i, (size, by_rate) in enumerate(batches.items()):
            shade = 0.3 + 0.7 * i / (len(batches) - 1)
            style = {"color": plotting.COLORS[0], "alpha": shade, "marker": "o"}
            rates = sorted(by_rate)
            late = [by_rate[rate].means["late"].mean for rate in rates]
            left.plot(rates, late, **style)
            left.annotate(f" {size}", (rates[-1], late[-1]), color=plotting.COLORS[0], va="center")
            best = int(np.argmax(late))
            values = by_rate[rates[best]].values["late"]
            right.scatter([size] * len(values), values, s=9, color=plotting.COLORS[0], alpha=0.5)
            right.plot(size, late[best], **style | {"alpha": 1})
            beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            right.annotate(_power_of_ten(rates[best]), (size, late[best]), **beside)
        _rates_axis(left, batches.values())
        left.set_title("Accuracy, by the answers of a step")
        right.set_title("At each batch's best rate")
        right.set_xscale("log")
        right.set_xticks(list(batches), [f"{size:,}" for size in batches])
        right.minorticks_off()
        right.set_xlabel("answers of a step")
        right.margins(x=0.15)


def _configured(groups: Groups, compared: Comparison) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields (data/loss, label, config of the first run, arm) of every arm whose config is known."""
    for name, arms in compared.groups.items():
        for label, arm in arms.items():
            if "optimizer" in (config := groups[name][label][0].config):
                yield name, label, config, arm


def _rates_axis(panel: Any, lines: Iterable[Iterable[float]]) -> None:
    """Makes x a logarithmic axis of learning rates, with a tick for each rate of any line."""
    rates = sorted({rate for by_rate in lines for rate in by_rate})
    panel.set_xscale("log")
    panel.set_xticks(rates, [_power_of_ten(rate) for rate in rates])
    panel.minorticks_off()
    panel.set_xlabel("learning rate")


def _power_of_ten(rate: float) -> str:
    """Returns a rate in scientific notation, exactly: 0.00015 is "1.5e-4"."""
    digits, _, power = np.format_float_scientific(rate, trim="-").partition("e")
    return f"{digits}e{int(power)}"


def draw_settings(
    groups: Groups, compared: Comparison, looks: Mapping[str, Look], path: PathLike
) -> None:
    """Draws each arm's difference to the baseline against one of `SETTINGS` at a time.

    The other settings keep the values that most groups have. The settings of a group are read from its
    runs' configs. If several groups have the same settings ("clean/gspo" and "wrong10/gspo"), the first
    is drawn. Draws nothing if all groups have the same settings.
    """
    found: dict[Setting, str] = {}
    for name, arms in groups.items():
        if compared.baseline in arms:
            config = arms[compared.baseline][0].config
            found.setdefault(tuple(read(config) for read in SETTINGS.values()), name)
    lines = {axis: _along(axis, list(found)) for axis in range(len(SETTINGS))}
    panels = {axis: settings for axis, settings in lines.items() if len(settings) > 1}
    if not panels:
        return
    size = (4.6 * len(panels) + 2.2, 4.2)
    with plotting.panels(path, 1, len(panels), size=size, note=SETTINGS_NOTE, sharey=True) as drawn:
        figure, row = drawn
        shown_arms = {}
        for panel, (axis, settings) in zip(row[0], panels.items(), strict=True):
            arms_of = [compared.groups[found[setting]] for setting in settings]
            shown_arms |= _draw_setting(panel, arms_of, compared.baseline, looks)
            panel.set_xticks(range(len(settings)), [f"{setting[axis]:,}" for setting in settings])
            panel.set_xlabel(list(SETTINGS)[axis])
            panel.set_xlim(-0.5, len(settings) - 0.5)
            panel.axhline(0, color=FAINT, linewidth=1)
        row[0][0].set_title(f"Accuracy less {compared.baseline}'s")
        handles = [plotting.line(**looks[arm].style()) for arm in shown_arms]
        figure.legend(handles, list(shown_arms), loc="outside right upper", fontsize=10)


def _along(axis: int, settings: Sequence[Setting]) -> list[Setting]:
    """Returns the settings with the commonest values on all axes except `axis`, in ascending order."""
    columns = zip(*settings, strict=True)
    center = tuple(collections.Counter(values).most_common(1)[0][0] for values in columns)
    rest = lambda setting: setting[:axis] + setting[axis + 1 :]
    return sorted(setting for setting in settings if rest(setting) == rest(center))


def _draw_setting(
    panel: Any,
    arms_of: Sequence[Mapping[str, Arm]],
    baseline: str,
    looks: Mapping[str, Look],
) -> dict[str, None]:
    """Draws a line for each arm that more than one setting has; returns those arms."""
    counted = collections.Counter(arm for arms in arms_of for arm in arms if arm != baseline)
    shown = [arm for arm, count in counted.items() if count > 1]
    for i, arm in enumerate(shown):
        # Arms are shifted sideways, so that their intervals do not cover each other.
        look, shift = looks[arm], 0.08 * (i - (len(shown) - 1) / 2)
        places = [place for place, arms in enumerate(arms_of) if arm in arms]
        means = [arms_of[place][arm].difference for place in places]
        x = np.array(places) + shift
        panel.plot(x, [mean.mean for mean in means], **look.style())
        half = [mean.half if mean.count > 2 else 0 for mean in means]
        panel.errorbar(x, [mean.mean for mean in means], half, fmt="o", color=look.color)
        for place, at in zip(places, x, strict=True):
            values = arms_of[place][arm].differences
            panel.scatter(np.full(len(values), at + 0.03), values, s=7, color=look.color, alpha=0.5)
    return dict.fromkeys(shown)
