"""A small run directory whose every number is known."""

import numpy as np
from PIL import Image

from vade_jax.store import metrics, rollout_log, run_file
from vade_jax.types import Item

# uid: (family, gold, right answers of 4 at each visit)
PROMPTS = {
    "train-0-0": ("hidden", "7", [0, 0, 0, 0, 0, 0]),
    "train-0-1": ("count", "3", [4, 4, 4, 4, 4, 4]),
    "train-0-2": ("color", "red", [0, 1, 2, 3, 3, 4]),
}
NUM_STEPS, NUM_ANSWERS = 6, 4
VALIDATION = "val/tiny/acc/mean@4"


def make(workdir, *, answer="it is {}", rollouts=True, belief=True):
    """Writes a run of six steps with three groups each."""
    write_metrics(workdir)
    run_file.write(workdir, {"settings": {"seed": 0, "num_steps": 6, "selector": {"name": "vade"}}})
    for step in range(1, NUM_STEPS + 1) if rollouts else ():
        rows = table(step, answer)
        if not belief:
            rows = {k: v for k, v in rows.items() if k not in ("alpha", "beta")}
        rollout_log.write(rollout_log.path(workdir, step), rows)
    return workdir


def write_metrics(workdir):
    writer = metrics.Writer(workdir)
    writer.write(0, {VALIDATION: 0.25})
    for step in range(1, NUM_STEPS + 1):
        line = {
            "vade/effective_ratio": step / 8,
            "vade/predicted_effective_ratio": 0.5,
            "actor/grad_norm": 1.0 + step,
            "critic/score/mean": 0.5,
            "critic/rewards/mean": 0.45,
            "vade/rollouts_total": 12 * step,
            "timing_s/gen": 1.0,
            "timing_s/update_actor": 2.5,
            "timing_s/judge": 0.5,
            "timing_s/step": 4.0,
        }
        if step % 3 == 0:
            line[VALIDATION] = 0.25 + step / 12
        writer.write(step, line)


def table(step, answer="it is {}"):
    rows = []
    for group, (uid, (family, gold, right)) in enumerate(PROMPTS.items()):
        for i in range(NUM_ANSWERS):
            is_right = i < right[step - 1]
            said = gold if is_right else f"wrong{i}"
            rows.append(
                {
                    "uid": uid,
                    "prompt": f"<|im_start|>user\n<|image_pad|>Which {family}?<|im_end|>",
                    "answer": answer.format(said),
                    "extracted": said,
                    "reason": "ok" if is_right else ("different", "timeout")[i == 3],
                    "gold": gold,
                    "kind": "text",
                    "correct": float(is_right),
                    "reward": float(is_right),
                    "length": 5,
                    "finished": True,
                    "group": group,
                    "alpha": 1.0,
                    "beta": 2.0,
                    "p_drawn": 0.25,
                    "metadata": {"family": family, "level": 1},
                }
            )
    return {name: [row[name] for row in rows] for name in rows[0]}


def item(uid):
    """Returns the item of a prompt, a picture of noise with the uid's own seed."""
    family, gold, _ = PROMPTS[uid]
    rng = np.random.default_rng(int(uid[-1]))
    pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
    return Item(uid, f"Which {family}?", (Image.fromarray(pixels),), gold, "text")


ITEMS = [item(uid) for uid in PROMPTS]  # the data; a prompt's uid ends in its place
