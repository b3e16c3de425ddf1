"""AdamW behind a global-norm clip, with a linear warm-up."""

import jax
import optax

from vade_jax.trainer import mesh


def make(
    *,
    learning_rate: float,
    warmup_steps: int = 0,
    decay_steps: int = 0,
    b1: float = 0.9,
    b2: float = 0.999,
    weight_decay: float = 0.01,
    clip_norm: float = 1.0,
    frozen: tuple[str, ...] = (),
) -> optax.GradientTransformation:
    """Returns the optimizer of verl's Qwen2.5-VL recipe.

    Args:
        learning_rate: the peak.
        warmup_steps: optimizer updates from 0 to the peak; 0 starts at the peak.
        decay_steps: updates of a cosine decay to a tenth of the peak; 0 keeps it constant.
        b1: decay of the first moment.
        b2: decay of the second moment.
        weight_decay: decoupled, on every parameter, as torch's AdamW does.
        clip_norm: the largest global gradient norm.
        frozen: path prefixes that are not trained, such as ("vision",).
    """
    trained = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(
            schedule(learning_rate, warmup_steps, decay_steps),
            b1,
            b2,
            weight_decay=weight_decay,
        ),
    )
    if not frozen:
        return trained
    return optax.partition(
        {"train": trained, "freeze": optax.set_to_zero()}, _labels(frozen)
    )


def schedule(peak: float, warmup_steps: int, decay_steps: int) -> optax.Schedule:
    """Returns the learning rate as a function of the update."""
    flat = optax.constant_schedule(peak)
    tail = optax.cosine_decay_schedule(peak, decay_steps, 0.1) if decay_steps else flat
    ramp = optax.linear_schedule(0.0, peak, max(warmup_steps, 1))
    return optax.join_schedules([ramp, tail], [warmup_steps]) if warmup_steps else tail


def _labels(frozen):
    def label(path, _):
        return "freeze" if mesh.path_name(path).startswith(frozen) else "train"

    def labels(params):
        names = [mesh.path_name(path) for path, _ in jax.tree.leaves_with_path(params)]
        for prefix in frozen:
            if not any(name.startswith(prefix) for name in names):
                known = sorted({name.split("/")[0] for name in names})
                raise ValueError(
                    f"optimizer.frozen: no parameter path starts with {prefix!r}; "
                    f"they start with {', '.join(known)}"
                )
        return jax.tree_util.tree_map_with_path(label, params)

    return labels
