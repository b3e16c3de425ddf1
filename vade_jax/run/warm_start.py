"""The supervised warm start: likelihood of a teacher's answers, on the RL trainer's own update.

Reads the procedural "warmup" split, which training and validation never share. Leaves a Hugging Face
checkpoint in <workdir>/warm_start.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np
import tqdm

from vade_jax import settings
from vade_jax.data import hub, procedural
from vade_jax.models.qwen import files, tiny_checkpoint
from vade_jax.rollout.engine import Answer, to_rollouts
from vade_jax.run import build, checks, cluster, datasets, directory
from vade_jax.run.policy import Policy, load_policy
from vade_jax.store import checkpoints
from vade_jax.trainer import mesh, minibatches, objectives, processes, scoring, update
from vade_jax.trainer.choosing import Lookahead
from vade_jax.types import Batch, Rollouts


def untrained(run: settings.Run, workdir: str) -> str:
    """Returns the checkpoint that everything starts from; makes the tiny one where asked to."""
    if not run.model.preset:
        checkpoint = hub.model(run.model.checkpoint)
        files.load_config(checkpoint)  # is there, and is a Qwen2.5-VL
        return checkpoint
    made = os.path.join(workdir, "tiny_model")
    if processes.on_leader(lambda: _is_complete(made)):
        processes.on_leader(lambda: files.check(made))
    else:
        processes.on_leader(lambda: tiny_checkpoint.write(made, run.seed, run.model.preset))
    cluster.check_shared(os.path.join(made, "config.json"))
    return made


def warm_started(
    run: settings.Run, base: str, workdir: str, stop: Callable[[], bool]
) -> str | None:
    """Returns the checkpoint that RL starts from, or None if `stop()` was true before it was done.

    It is `base` itself, where no warm start is asked for, or made from it, where it is not there yet.

    Raises:
        UserError: there is one that was made with other settings, or does not say with which.
    """
    if not run.warm_start.num_steps:
        return base
    target = run.warm_start.directory or os.path.join(workdir, "warm_start")
    target = str(pathlib.Path(target))  # no slash at its end: other names begin with it
    if processes.on_leader(lambda: _is_complete(target)):
        with checks.user_errors():
            processes.on_leader(lambda: _check_has_recipe(target))
    else:
        with checks.user_errors():
            processes.on_leader(lambda: _check_is_free(target))
        with checks.user_errors():  # the directory may be shared with a run that makes it now
            owned = directory.own(_partial(target), "warm_start.directory")
        with owned:
            if not _made(run, base, target, stop):
                return None
    with checks.user_errors():
        processes.on_leader(lambda: directory.claim(target + ".json", _recipe(run)))
        processes.on_leader(lambda: files.check(target))
    processes.on_leader(lambda: shutil.rmtree(_partial(target), ignore_errors=True))
    cluster.check_shared(os.path.join(target, "config.json"))
    return target


def _made(run: settings.Run, base: str, target: str, stop: Callable[[], bool]) -> bool:
    """Returns whether the warm start is there: made by `train`, or meanwhile by another run."""
    with checks.user_errors():
        processes.on_leader(lambda: directory.claim(target + ".json", _recipe(run)))
    complete = processes.on_leader(lambda: _is_complete(target))
    return complete or train(run, base, target, stop)


def _recipe(run: settings.Run) -> dict:
    """What a warm start depends on: one made with other values must not be taken for it."""
    wanted = {
        "seed": run.seed,
        "model": run.model.to_dict(),
        "warm_start": run.warm_start.to_dict(),
    }
    del wanted["warm_start"]["directory"], wanted["model"]["param_dtype"]
    prompt = ("instruction", "min_pixels", "max_pixels", "max_prompt_length")
    wanted["warm_start"]["mixture"] = dict(_mixture(run))
    wanted["data"] = {name: getattr(run.data, name) for name in prompt}
    if run.data.template:  # an earlier version did not name it
        wanted["data"]["template"] = dict(run.data.template)
    return wanted


def _check_has_recipe(target: str) -> None:
    """Raises ValueError if nothing says what a whole checkpoint was made with."""
    if not os.path.exists(target + ".json"):
        raise ValueError(
            f"{target} lacks {target}.json, which says what it was made with: copy that, too, or give another "
            "warm_start.directory, or start from it by model.checkpoint with warm_start.num_steps=0"
        )


def _check_is_free(target: str) -> None:
    """Raises ValueError if a warm start would replace files of somebody else."""
    if os.path.isdir(target) and os.listdir(target) and not os.path.exists(target + ".json"):
        raise ValueError(
            f"{target} has files and is no warm start, which would replace them: give another "
            "warm_start.directory"
        )


def _mixture(run: settings.Run) -> Mapping[str, float]:
    return run.warm_start.mixture or run.data.mixture


def _is_complete(checkpoint: str) -> bool:
    """Returns whether config.json is there: the last thing that a checkpoint gets."""
    return os.path.exists(os.path.join(checkpoint, "config.json"))


# ------------------------------------------------------------------------------ training
def train(run: settings.Run, base: str, target: str, stop: Callable[[], bool]) -> bool:
    """Trains the checkpoint in `base` and writes it to `target`; resumes what was stopped.

    Returns:
        False if `stop()` was true; then the state is saved beside `target`.
    """
    # All weights learn here, in float32, also where an adapter does in RL or bfloat16 weights.
    in_float32 = dataclasses.replace(run.model, param_dtype="float32")
    run = dataclasses.replace(run, lora=settings.Lora(), model=in_float32)
    with checks.user_errors():
        policy = load_policy(run, base)
        _check_answers_fit(run, policy.tokenizer)
    state, step = _compile(run, policy)
    saved = checkpoints.Checkpointer(_partial(target), keep=1, every=200, is_sole=True)
    if done := saved.latest_step() or 0:
        state, _, _ = saved.restore(done, state, {})
    size, last = run.warm_start.batch_size, run.warm_start.num_steps
    bar = tqdm.tqdm(
        total=last * size,
        initial=done * size,
        unit=" samples",
        desc="warm start",
        disable=not processes.is_leader(),
    )
    with bar, contextlib.closing(saved):
        unread = []  # metrics on the devices: fetching them waits for the step
        for number, batch in enumerate(_batches(run, policy, done), done + 1):
            state, metrics = step(state, batch)
            unread.append((number, metrics))
            bar.update(size)
            stopped = stop()
            if number % 20 == 0 or number == last or stopped:
                bar.set_postfix(loss=f"{_read(unread):.3f}")
            saved.save(number, state, {}, {}, {}, force=stopped)
            if stopped:
                print(f"warm start stopped after step {number}; run again to resume")
                return False
    processes.on_leader(lambda: files.copy_tokenizer(base, target))
    files.save(target, policy.shape, state.params, write=processes.is_leader())
    processes.on_leader(lambda: shutil.rmtree(_partial(target), ignore_errors=True))
    return True


def _partial(target: str) -> str:
    """Returns the directory of an unfinished warm start's state; a killed process may leave it behind."""
    return f"{target}.partial"


def _compile(run: settings.Run, policy: Policy):
    """Returns the first state and the compiled step."""
    steps = run.warm_start.num_steps
    transform = update.make_optimizer(
        settings.Optimizer(
            learning_rate=run.warm_start.learning_rate,
            warmup_steps=min(50, steps // 10),
            decay_steps=steps,
            b2=run.warm_start.b2,
        )
    )
    state, shardings = build.make_state(policy, transform)
    logp = build.make_logp(run, policy, temperature=1.0)
    step = build.compile_update(
        lambda base: update.make(logp(base), objectives.likelihood, transform), policy, shardings
    )
    return state, functools.partial(step, policy.base)


def _read(unread: list) -> float:
    """Fetches the metrics of the last steps, empties the list and returns the newest loss."""
    for number, metrics in jax.device_get(unread):
        scoring.check_losses(f"warm start, step {number}", metrics)
    unread.clear()
    return float(metrics["actor/loss"])


def _batches(run: settings.Run, policy: Policy, done: int) -> Iterator[Batch]:
    """Yields the batches after `done`; the next one is cut while a step runs."""
    size, steps = run.warm_start.batch_size, run.warm_start.num_steps
    source = procedural.Procedural(run.seed, size * steps, "warmup", _mixture(run))
    build_prompt = datasets.prompt_builder(run.data, policy.tokenizer)
    teacher = procedural.Teacher(source, run.warm_start.noise, run.seed)
    shape = minibatches.Shape(
        prompts_per_minibatch=size,
        prompts_per_microbatch=size,
        answers_per_row=1,
        length_multiple=run.data.length_multiple,
        ways=mesh.batch_size(policy.mesh),
    )

    def make_batch(number):
        index = range(number * size, (number + 1) * size)
        items = [source[i] for i in index]
        answers = [teacher(item, i) for item, i in zip(items, index, strict=True)]
        (batch,) = minibatches.split(
            [build_prompt(item) for item in items],
            _targets(answers, policy.tokenizer, run.sampling.max_tokens),
            np.zeros(size, np.float32),
            shape,
        )
        return processes.put(batch, mesh.batch_sharding(policy.mesh, axis=1))

    with Lookahead(make_batch) as ahead:
        ahead.start(done)
        for number in range(done + 1, steps + 1):
            batch = ahead.result()
            if number < steps:
                ahead.start(number)
            yield batch


def _targets(texts: list[str], tokenizer, max_tokens: int) -> Rollouts:
    """Returns the teacher's answers as rollouts, one a prompt."""
    answers = []
    for text in texts:
        token_T = [*tokenizer.encode(text), tokenizer.im_end]
        answers.append(Answer(token_T, np.zeros(len(token_T)), finished=True))
    return to_rollouts(
        answers,
        np.ones(len(answers), np.int32),
        max_tokens=max_tokens,
        pad=tokenizer.im_end,
        params_version=0,
    )


def _check_answers_fit(run: settings.Run, tokenizer) -> None:
    """Raises ValueError when the built-in answers are longer than what may be sampled."""
    kinds = procedural.expand_mixture(_mixture(run))
    texts = {
        procedural.target_text(item)
        for kind, share in kinds.items()
        if share  # however small: what is rare comes in the middle
        for item in procedural.Procedural(run.seed, 200, "warmup", {kind: 1.0})
    }
    longest = 1 + max(len(tokenizer.encode(text)) for text in texts)
    if longest > run.sampling.max_tokens:
        raise ValueError(
            f"sampling.max_tokens={run.sampling.max_tokens}: the warm start's answers have "
            f"up to {longest} tokens; set it to at least that"
        )
