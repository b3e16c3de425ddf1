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
from typing import Any

import jax
import numpy as np
import tqdm

from vade_jax import rng, settings
from vade_jax.data import hub, procedural, prompts, tokens
from vade_jax.models.qwen import files, tiny_checkpoint
from vade_jax.rollout.engine import Answer, to_rollouts
from vade_jax.run import build, checks, cluster, datasets, directory
from vade_jax.run.checks import place
from vade_jax.run.policy import Policy, compute_dtype, place_policy
from vade_jax.store import checkpoints
from vade_jax.trainer import mesh, minibatches, objectives, processes, scoring, update
from vade_jax.trainer.choosing import Lookahead
from vade_jax.types import Batch, Item, Rollouts

Lesson = Callable[
    [int], tuple[Item, list[int]]
]  # number -> a question, and the tokens of its answer


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """The user's rows, in what form their answers are taught, and to which of the weights: those of RL."""

    rows: datasets.Subset
    form: str
    lora: settings.Lora = settings.Lora()  # noqa: RUF009 (frozen)
    frozen: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Teaching:
    """What a warm start depends on: some sections of a run, the seed, and maybe the user's rows."""

    seed: int
    model: settings.Model
    warm_start: settings.WarmStart
    data: settings.Data
    batch: settings.Batch
    mesh: settings.Mesh
    max_tokens: int  # tokens of an answer
    own: OwnRows | None = None  # None: the built-in questions

    @property
    def mixture(self) -> Mapping[str, float]:
        """The mixture of questions; by default that of the run's training data."""
        return self.warm_start.mixture or self.data.mixture

    def recipe(self) -> dict[str, Any]:
        """Returns the settings that a finished warm start must have had to be reused."""
        wanted: dict[str, Any] = {
            "seed": self.seed,
            "model": self.model.to_dict(),
            "warm_start": self.warm_start.to_dict(),
        }
        del wanted["warm_start"]["directory"], wanted["model"]["param_dtype"]
        if self.own is None:
            del wanted["warm_start"]["data"]  # as before there was a choice
        else:
            wanted |= {"rows": self.own.rows.checksum, "form": self.own.form}
            wanted |= {"lora": self.own.lora.to_dict(), "frozen": list(self.own.frozen)}
        prompt = ("instruction", "min_pixels", "max_pixels", "max_prompt_length", "template")
        wanted["warm_start"]["mixture"] = dict(self.mixture)
        wanted["data"] = {name: self.data.to_dict()[name] for name in prompt}
        return wanted


def is_from_scratch(warm_start: settings.WarmStart) -> bool:
    """Returns whether the preset "tiny_reader" stands for its shape: it would be taught what it knows."""
    return warm_start.num_steps > 0 and warm_start.data == "procedural"


def untrained(model: settings.Model, seed: int, workdir: str, *, is_taught: bool = False) -> str:
    """Returns the checkpoint before any warm start; writes the tiny model if the settings ask for it.

    `is_taught` says that "tiny_reader" stands for its shape with random weights: see `is_from_scratch`.
    """
    if not model.preset:
        checkpoint = hub.model(model.checkpoint)
        files.load_config(checkpoint)  # raises if it is missing or not a supported model
        return checkpoint
    preset = "tiny" if is_taught and model.preset == tiny_checkpoint.READER else model.preset
    made, recipe = os.path.join(workdir, "tiny_model"), {"seed": seed, "preset": preset}

    def make() -> None:
        _drop_another(made, recipe)
        directory.claim(f"{made}.json", recipe)
        if _is_complete(made):
            files.check(made)
        else:
            tiny_checkpoint.write(made, seed, preset)

    processes.on_leader(make)
    cluster.wait_until_shared(os.path.join(made, "config.json"))
    return made


def warm_started(
    teaching: Teaching, base: str, workdir: str, stop: Callable[[], bool]
) -> str | None:
    """Returns the checkpoint that RL starts from, or None if `stop()` was true before it was ready.

    Without a warm start it is `base`; else it is trained from `base`, unless it exists already.

    Raises:
        UserError: a warm start exists that was made with other settings, or its settings are unknown.
    """
    if not teaching.warm_start.num_steps:
        return base
    target = teaching.warm_start.directory or os.path.join(workdir, "warm_start")
    # Without a slash at its end, because other names start with it.
    target = str(pathlib.Path(target))
    if not teaching.warm_start.directory:
        processes.on_leader(lambda: _drop_another(target, teaching.recipe()))
    if processes.on_leader(lambda: _is_complete(target)):
        with checks.user_errors():
            processes.on_leader(lambda: place.check_has_recipe(target))
    else:
        with checks.user_errors():
            processes.on_leader(lambda: place.check_is_warm_start(target))
        with checks.user_errors():  # another run that shares the directory may be making it now
            owned = directory.own(_partial(target), "warm_start.directory")
        with owned:
            if not _made(teaching, base, target, stop):
                return None
    with checks.user_errors():
        processes.on_leader(lambda: directory.claim(target + ".json", teaching.recipe()))
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


def _made(teaching: Teaching, base: str, target: str, stop: Callable[[], bool]) -> bool:
    """Returns whether the warm start is complete, made by `train` or by another run meanwhile."""
    with checks.user_errors():
        processes.on_leader(lambda: directory.claim(target + ".json", teaching.recipe()))
    complete = processes.on_leader(lambda: _is_complete(target))
    return complete or train(teaching, base, target, stop)


def _is_complete(checkpoint: str) -> bool:
    """Returns whether config.json exists, the last file of a checkpoint to be written."""
    return os.path.exists(os.path.join(checkpoint, "config.json"))


# ------------------------------------------------------------------------------ training
def train(teaching: Teaching, base: str, target: str, stop: Callable[[], bool]) -> bool:
    """Trains the checkpoint in `base` and writes it to `target`; resumes a stopped warm start.

    Returns:
        False if `stop()` was true; the state is then saved next to `target`.
    """
    wanted, own = teaching.warm_start, teaching.own
    with checks.user_errors():
        # Weights that learn are float32, even if RL trains them in bfloat16.
        devices = mesh.make(**teaching.mesh.to_dict())
        policy = place_policy(
            base,
            devices,
            compute_dtype(teaching.model, devices),
            own.lora if own else settings.Lora(),
            rng.adapter_key(jax.random.key(teaching.seed)),
        )
        if own is None:
            checks.data.check_answers_fit(
                teaching.mixture, teaching.seed, teaching.max_tokens, policy.tokenizer
            )
    state, step = _compile(wanted, teaching.batch, policy, own.frozen if own else ())
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
        for number, batch in enumerate(_batches(teaching, policy, done), done + 1):
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

    def copy_tokenizer():
        files.copy_tokenizer(base, target)
        tokens.write_pixels(target, teaching.data.min_pixels, teaching.data.max_pixels)

    processes.on_leader(copy_tokenizer)
    files.save(target, policy.shape, policy.whole(state.params), write=processes.is_leader())
    processes.on_leader(lambda: shutil.rmtree(_partial(target), ignore_errors=True))
    return True


def _partial(target: str) -> str:
    """Returns the directory for the state of a warm start that was stopped."""
    return f"{target}.partial"


def _compile(
    wanted: settings.WarmStart, batch: settings.Batch, policy: Policy, frozen: tuple[str, ...] = ()
):
    """Returns the first state and the compiled step."""
    steps = wanted.num_steps
    transform = update.make_optimizer(
        settings.Optimizer(
            learning_rate=wanted.learning_rate,
            warmup_steps=min(50, steps // 10),
            decay_steps=steps,
            b2=wanted.b2,
            frozen=frozen,
        )
    )
    state, shardings = build.make_state(policy, transform)
    logp = build.make_logp(batch, policy, temperature=1.0)
    step = build.compile_update(
        lambda base: update.make(logp(base), objectives.likelihood, transform, frozen=frozen),
        policy,
        shardings,
    )
    return state, functools.partial(step, policy.base)


def _read(unread: list) -> float:
    """Fetches the metrics of the last steps, empties the list and returns the newest loss."""
    for number, metrics in jax.device_get(unread):
        scoring.check_losses(f"warm start, step {number}", metrics)
    unread.clear()
    return float(metrics["actor/loss"])


def _batches(teaching: Teaching, policy: Policy, done: int) -> Iterator[Batch]:
    """Yields the batches after `done`; the next batch is prepared while a step runs."""
    size, steps = teaching.warm_start.batch_size, teaching.warm_start.num_steps
    build_prompt = datasets.prompt_builder(teaching.data, policy.tokenizer)
    if teaching.own is None:
        lesson, max_tokens, at_once = _built_in(teaching, build_prompt), teaching.max_tokens, size
    else:  # larger than built-in questions: as many are in memory as in RL
        lesson = _of_rows(teaching.own, teaching.seed, build_prompt)
        max_tokens = int(teaching.own.rows.lengths.max())
        at_once = math.gcd(size, teaching.batch.prompts_per_microbatch)
    shape = minibatches.Shape(
        prompts_per_minibatch=size,
        prompts_per_microbatch=at_once,
        answers_per_row=1,
        length_multiple=teaching.data.length_multiple,
        ways=mesh.batch_size(policy.mesh),
    )

    def make_batch(number):
        items, answers = zip(*map(lesson, range(number * size, (number + 1) * size)), strict=True)
        (batch,) = minibatches.split(
            [build_prompt(item) for item in items],
            _targets(answers, policy.tokenizer, max_tokens),
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


def _built_in(teaching: Teaching, build_prompt: prompts.PromptBuilder) -> Lesson:
    """Returns built-in questions, each with the answer of a teacher who errs at times."""
    wanted = teaching.warm_start
    number = wanted.batch_size * wanted.num_steps
    source = procedural.Procedural(teaching.seed, number, "warmup", teaching.mixture)
    teacher = procedural.Teacher(source, wanted.noise, teaching.seed)

    encode, end = build_prompt.tokenizer.encode, build_prompt.tokenizer.im_end

    def lesson(i):
        item = source[i]
        return item, [*encode(teacher(item, i)), end]

    return lesson


def _of_rows(own: OwnRows, seed: int, build_prompt: prompts.PromptBuilder) -> Lesson:
    """Returns the rows with their own answers, in another order in each pass over them."""

    @functools.lru_cache(maxsize=2)
    def order(epoch):
        return np.random.default_rng([seed, epoch]).permutation(len(own.rows))

    def lesson(i):
        epoch, place = divmod(i, len(own.rows))
        item = own.rows[order(epoch)[place]]
        return item, build_prompt.target(item.answer, own.form)

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
