"""The supervised warm start: trains on right answers with the update of the RL trainer.

The answers are a teacher's to the procedural "warmup" split, which is disjoint from training and validation,
or those of the rows of data.train. It writes a Hugging Face checkpoint to <workdir>/warm_start.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
import tqdm

from vade_jax import settings
from vade_jax.data import hub, procedural, prompts, tokens
from vade_jax.models.qwen import files, tiny_checkpoint
from vade_jax.rollout.engine import Answer, to_rollouts
from vade_jax.run import build, checks, cluster, datasets, directory
from vade_jax.run.checks import place
from vade_jax.store import checkpoints
from vade_jax.trainer import (
    learner,
    mesh,
    minibatches,
    objectives,
    processes,
    scoring,
    timing,
    update,
)
from vade_jax.trainer.policy import Policy
from vade_jax.types import Batch, Item, Rollouts

Lesson = Callable[[int], tuple[Item, list[int]]]  # number -> question and tokens of its answer
Rows = datasets.Subset | None  # the user's rows that are taught; None: built-in questions
Stop = Callable[[], bool]


def untrained(run: settings.Run, workdir: str) -> str:
    """Returns the checkpoint before any warm start; writes the tiny model if the settings ask for it.

    Before a warm start on built-in questions "tiny_reader", which has learned them, stands for its shape with
    random weights.
    """
    preset, is_taught = run.model.preset, run.warm_start.num_steps and not run.teaches_rows
    if not preset:
        checkpoint = hub.model(run.model.checkpoint)
        files.load_config(checkpoint)  # raises if it is missing or not a supported model
        return checkpoint
    preset = "tiny" if is_taught and preset == tiny_checkpoint.READER else preset
    made, of = os.path.join(workdir, "tiny_model"), {"seed": run.seed, "preset": preset}

    def make() -> None:
        _drop_another(made, of)
        directory.claim(f"{made}.json", of)
        if _is_complete(made):
            files.check(made)
        else:
            tiny_checkpoint.write(made, run.seed, preset)

    processes.on_leader(make)
    cluster.wait_until_shared(os.path.join(made, "config.json"))
    return made


def recipe(run: settings.Run, rows: Rows = None) -> dict[str, Any]:
    """Returns the settings, and the rows, that a finished warm start must have had to be reused."""
    wanted: dict[str, Any] = {
        "seed": run.seed,
        "model": run.model.to_dict(),
        "warm_start": run.warm_start.to_dict(),
    }
    del wanted["warm_start"]["directory"], wanted["model"]["param_dtype"]
    prompt = ("instruction", "min_pixels", "max_pixels", "max_prompt_length", "template")
    wanted["warm_start"]["mixture"] = dict(mixture(run))
    wanted["data"] = {name: run.data.to_dict()[name] for name in prompt}
    if rows is None:
        del wanted["warm_start"]["data"]  # which is newer than some warm starts
        return wanted
    learns = {"lora": run.lora.to_dict(), "frozen": list(run.optimizer.frozen)}
    return wanted | learns | {"rows": rows.checksum, "form": run.reward.format}


def mixture(run: settings.Run) -> Mapping[str, float]:
    """Returns the mixture of built-in questions; by default that of the run's training data."""
    return run.warm_start.mixture or run.data.mixture


def warm_started(
    run: settings.Run, base: str, workdir: str, stop: Stop, rows: Rows = None
) -> str | None:
    """Returns the checkpoint that RL starts from, or None if `stop()` was true before it was ready.

    Without a warm start it is `base`; else it is trained from `base`, unless it exists already. `rows`
    are those of data.train, needed if `run.teaches_rows`.

    Raises:
        UserError: a warm start exists that was made with other settings, or its settings are unknown.
    """
    if not run.warm_start.num_steps:
        return base
    if run.teaches_rows:
        assert rows is not None
        rows = rows.teachable(run.sampling.max_tokens)
    else:
        rows = None
    target = run.warm_start.directory or os.path.join(workdir, "warm_start")
    # Without a slash at its end, because other names start with it.
    target = str(pathlib.Path(target))
    if not run.warm_start.directory:
        processes.on_leader(lambda: _drop_another(target, recipe(run, rows)))
    is_complete = lambda: processes.on_leader(lambda: _is_complete(target))
    claim = lambda: processes.on_leader(
        lambda: directory.claim(target + ".json", recipe(run, rows))
    )
    if is_complete():
        with checks.user_errors():
            processes.on_leader(lambda: place.check_has_recipe(target))
    else:
        with checks.user_errors():
            processes.on_leader(lambda: place.check_is_warm_start(target))
            # Another run that shares the directory may be making it now.
            owned = directory.own(_partial(target), "warm_start.directory")
        with owned:
            with checks.user_errors():
                claim()
            if not (is_complete() or train(run, base, target, stop, rows)):
                return None
    with checks.user_errors():
        claim()
        processes.on_leader(lambda: files.check(target))
    processes.on_leader(lambda: shutil.rmtree(_partial(target), ignore_errors=True))
    cluster.wait_until_shared(os.path.join(target, "config.json"))
    return target


def _drop_another(target: str, recipe: Mapping[str, Any]) -> None:
    """Removes a checkpoint that a run without a step made here with other settings."""
    made_with = pathlib.Path(f"{target}.json")
    if not made_with.exists() or place.has_a_step(made_with.parent):
        return
    with contextlib.suppress(ValueError):  # not JSON: `directory.claim` reports it
        if other := place.differing(json.loads(made_with.read_text()), recipe):
            print(f"{target}: made with other settings ({'; '.join(other)}), so it is made again")
            made_with.unlink()
            for directory_ in (target, _partial(target)):
                shutil.rmtree(directory_, ignore_errors=True)


def _is_complete(checkpoint: str) -> bool:
    """Returns whether config.json exists, the last file of a checkpoint to be written."""
    return os.path.exists(os.path.join(checkpoint, "config.json"))


# ------------------------------------------------------------------------------ training
def train(run: settings.Run, base: str, target: str, stop: Stop, rows: Rows = None) -> bool:
    """Trains the checkpoint in `base` and writes it to `target`; resumes a stopped warm start.

    Returns:
        False if `stop()` was true; the state is then saved next to `target`.
    """
    wanted, run = run.warm_start, _that_teaches(run, rows)
    with checks.user_errors():
        policy = build.load_policy(run, base)
        if rows is None:
            checks.data.check_answers_fit(
                mixture(run), run.seed, run.sampling.max_tokens, policy.tokenizer
            )
    state, step = _compile(run, policy)
    saved = checkpoints.Checkpointer(_partial(target), keep=1, every=200, is_sole=True)
    if done := saved.latest_step() or 0:
        state, _, _ = saved.restore(done, state, {})
    size, last = wanted.batch_size, wanted.num_steps
    bar = tqdm.tqdm(
        total=last * size,
        initial=done * size,
        unit=" samples",
        desc="warm start",
        disable=not processes.is_leader(),
    )
    with bar, contextlib.closing(saved):
        unread = []  # stays on the devices: fetching it would wait for the step
        for number, batch in enumerate(_batches(run, policy, done, rows), done + 1):
            state, metrics = step(state, batch)
            unread.append((number, metrics))
            if number == done + 1:
                timing.count_compiled(bar, size)
            else:
                bar.update(size)
            stopped = stop()
            if number % 20 == 0 or number == last or stopped:
                bar.set_postfix(loss=f"{_read(unread):.3f}")
            saved.save(number, state, {}, {}, {}, force=stopped)
            if stopped:
                print(f"warm start stopped after step {number}; run again to resume")
                return False
    pixels = run.data.min_pixels, run.data.max_pixels
    processes.on_leader(lambda: files.copy_tokenizer(base, target))
    processes.on_leader(lambda: tokens.write_pixels(target, *pixels))
    files.save(
        target, policy.shape, policy.whole(state.params, state.frozen), write=processes.is_leader()
    )
    processes.on_leader(lambda: shutil.rmtree(_partial(target), ignore_errors=True))
    return True


def _partial(target: str) -> str:
    """Returns the directory for the state of a warm start that was stopped."""
    return f"{target}.partial"


def _that_teaches(run: settings.Run, rows: Rows) -> settings.Run:
    """Returns a run with the optimizer of the warm start, and the weights that it trains, in float32.

    On a user's rows these are the weights that RL trains. Built-in questions teach all: those of the tiny
    models are random.
    """
    wanted = run.warm_start
    optimizer = settings.Optimizer(
        learning_rate=wanted.learning_rate,
        warmup_steps=min(50, wanted.num_steps // 10),
        decay_steps=wanted.num_steps,
        b2=wanted.b2,
        frozen=() if rows is None else run.optimizer.frozen,
    )
    return dataclasses.replace(
        run,
        optimizer=optimizer,
        model=dataclasses.replace(run.model, param_dtype="float32"),
        lora=settings.Lora() if rows is None else run.lora,
    )


def _compile(run: settings.Run, policy: Policy):
    """Returns the first state and the compiled step."""
    transform, shardings = build.make_optimizer(run, policy)
    state, _ = learner.first_state(policy, transform, shardings)
    logp = update.make_logp(
        policy.merge,
        banned=policy.tokenizer.banned_ids,
        chunk=run.batch.vocab_chunk,
        remat=run.batch.remat,
    )
    step = update.make(
        logp,
        objectives.likelihood,
        transform,
        frozen=run.optimizer.frozen,
        whole=policy.whole,
    )
    return state, learner.compile_update(step, policy, shardings)


def _read(unread: list) -> float:
    """Fetches the metrics of the last steps, empties the list and returns the newest loss."""
    for number, metrics in jax.device_get(unread):
        scoring.check_losses(f"warm start, step {number}", metrics)
    unread.clear()
    return float(metrics["actor/loss"])


def _batches(run: settings.Run, policy: Policy, done: int, rows: Rows = None) -> Iterator[Batch]:
    """Yields the batches after `done`; the next batch is prepared while a step runs."""
    size, steps = run.warm_start.batch_size, run.warm_start.num_steps
    build_prompt = datasets.prompt_builder(run.data, policy.tokenizer)
    if rows is None:
        lesson, longest, at_once = _built_in(run, policy.tokenizer), run.sampling.max_tokens, size
    else:  # larger than built-in questions: as many are in memory as in RL
        lesson, longest = _of_rows(run, rows, build_prompt), int(rows.lengths.max())
        at_once = math.gcd(size, run.batch.prompts_per_microbatch)
    shape = minibatches.Shape(
        prompts_per_minibatch=size,
        prompts_per_microbatch=at_once,
        answers_per_row=1,
        length_multiple=run.data.length_multiple,
        ways=mesh.batch_size(policy.mesh),
    )

    def make_batch(number):
        items, answers = zip(*map(lesson, range(number * size, (number + 1) * size)), strict=True)
        (batch,) = minibatches.split(
            [build_prompt(item) for item in items],
            _targets(answers, policy.tokenizer, longest),
            np.zeros(size, np.float32),
            shape,
        )
        return processes.put(batch, mesh.batch_sharding(policy.mesh, axis=1))

    with futures.ThreadPoolExecutor(1, "lessons") as thread:
        ahead = thread.submit(make_batch, done)
        for number in range(done + 1, steps + 1):
            batch = ahead.result()
            if number < steps:
                ahead = thread.submit(make_batch, number)
            yield batch


def _built_in(run: settings.Run, tokenizer: tokens.Tokenizer) -> Lesson:
    """Returns built-in questions, each with the answer of a teacher who errs at times."""
    number = run.warm_start.batch_size * run.warm_start.num_steps
    source = procedural.Procedural(run.seed, number, "warmup", mixture(run))
    teacher = procedural.Teacher(source, run.warm_start.noise, run.seed)

    def lesson(i):
        item = source[i]
        return item, [*tokenizer.encode(teacher(item, i)), tokenizer.im_end]

    return lesson


def _of_rows(
    run: settings.Run, rows: datasets.Subset, build_prompt: prompts.PromptBuilder
) -> Lesson:
    """Returns the rows with their own answers, in another order in each pass over them."""

    @functools.lru_cache(maxsize=2)
    def order(epoch):
        return np.random.default_rng([run.seed, epoch]).permutation(len(rows))

    def lesson(i):
        epoch, place = divmod(i, len(rows))
        item = rows[int(order(epoch)[place])]
        return item, build_prompt.target(item.answer, run.reward.format)

    return lesson


def _targets(answers: Sequence[Sequence[int]], tokenizer, max_tokens: int) -> Rollouts:
    """Returns the tokens of right answers as rollouts, one for each prompt."""
    rollouts = [
        Answer(np.array(token_T), np.zeros(len(token_T)), finished=True) for token_T in answers
    ]
    return to_rollouts(
        rollouts,
        np.ones(len(rollouts), np.int32),
        max_tokens=max_tokens,
        pad=tokenizer.im_end,
        params_version=0,
    )
