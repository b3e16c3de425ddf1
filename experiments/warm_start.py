"""Supervised steps before RL: teaches a policy right answers and writes it as a model directory.

The answers are those in data.train, or a teacher's to built-in questions that RL does not ask.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tqdm

from vade_jax import fields, settings
from vade_jax.data import procedural, tokens
from vade_jax.data.prompts import PromptBuilder
from vade_jax.fields import Section, choice, mapping, number
from vade_jax.models.qwen import files
from vade_jax.rollout.engine import Answer, to_rollouts
from vade_jax.run import build, datasets
from vade_jax.trainer import learner, mesh, minibatches, processes, update
from vade_jax.trainer.policy import Policy
from vade_jax.types import Batch, Item

Rows = datasets.Subset | None  # the user's rows that are taught; None: built-in questions
Taught = Iterator[tuple[Item, list[int]]]  # questions, and the tokens of their answers


@dataclasses.dataclass(frozen=True)
class Lessons(Section):
    """What is taught, and how."""

    path: ClassVar[str] = "lessons."

    num_steps: int = number(0, at_least=0)  # Supervised steps; 0: no warm start
    # What is taught. "train": the rows of data.train with their own answers, in the form of reward.format, to
    # the weights that RL trains. "procedural", also if data.train is: built-in questions that RL does not
    # ask, to all weights
    data: str = choice("train", "procedural")
    batch_size: int = number(64, at_least=1)  # Questions in a step
    learning_rate: float = number(1e-3, above=0)  # Peak learning rate
    # Decay of AdamW's second moment; lower than in RL, as so few steps need a short memory
    b2: float = number(0.95, at_least=0, below=1)
    # Weights of the types of built-in questions, as in data.mixture; empty: those of data.mixture
    mixture: Mapping[str, Any] = mapping()
    # Share of wrong targets for each "family_level" of built-in questions: the teacher gives the answer to
    # another item of the same family and level, which may be right by chance
    noise: Mapping[str, Any] = mapping()

    def are_rows(self, run: settings.Run) -> bool:
        """Returns whether the rows of a user's file are taught."""
        return self.data == "train" and run.data.train != "procedural"

    def mixed(self, run: settings.Run) -> Mapping[str, Any]:
        """Returns the mixture of built-in questions; raises ValueError if the teacher errs in others."""
        mixture = self.mixture or run.data.mixture
        kinds = list(procedural.expand_mixture(mixture))
        for name, share in self.noise.items():
            fields.check_word("lessons.noise", name, kinds)
            fields.Interval(at_least=0, below=1).check(f"lessons.noise.{name}", share)
        return mixture


def teach(run: settings.Run, lessons: Lessons, base: str, directory: str, rows: Rows) -> None:
    """Trains the model in `base` and writes it to `directory`, which is complete with its config.json.

    Raises:
        ValueError: the model or the batch does not fit the devices, or a loss is not finite.
    """
    learning = _learning(run, lessons)
    policy = build.load_policy(learning, base)
    mesh.check_batch(policy.mesh, "lessons.batch_size", lessons.batch_size)
    transform = update.make_optimizer(learning.optimizer)
    state = learner.first_state(policy, transform)
    step = update.make(
        update.make_logp(
            policy.merge,
            banned=policy.tokenizer.banned_ids,
            chunk=run.batch.vocab_chunk,
            remat=run.batch.remat,
        ),
        update.likelihood,
        transform,
        whole=policy.whole,
    )
    step = learner.compile_update(step, policy, state)
    batches, size = _batches(run, lessons, policy, rows), lessons.num_steps
    bar = tqdm.tqdm(batches, "warm start", size, disable=not processes.is_leader())
    for done, batch in enumerate(bar, 1):
        state, metrics = step(state, batch)
        if done % 20 == 0 or done == size:  # reading a loss waits for its step
            loss = float(metrics["actor/loss"])
            bar.set_postfix(loss=f"{loss:.3f}")
            if not math.isfinite(loss):
                raise ValueError(f"step {done}: loss={loss}: lower lessons.learning_rate")
    pixels = run.data.min_pixels, run.data.max_pixels
    processes.on_leader(lambda: files.copy_tokenizer(base, directory))
    processes.on_leader(lambda: tokens.write_pixels(directory, *pixels))
    params = policy.whole(state.params, state.frozen)
    files.save(directory, policy.shape, params, write=processes.is_leader())


def _learning(run: settings.Run, lessons: Lessons) -> settings.Run:
    """Returns the run in float32, with the weights that RL trains, or all weights for built-in questions."""
    optimizer = settings.Optimizer(
        learning_rate=lessons.learning_rate,
        warmup_steps=min(50, lessons.num_steps // 10),
        decay_steps=lessons.num_steps,
        b2=lessons.b2,
    )
    model = dataclasses.replace(run.model, param_dtype="float32")
    adapter = run.lora if lessons.are_rows(run) else settings.Lora()
    return dataclasses.replace(run, optimizer=optimizer, model=model, lora=adapter)


def _batches(run: settings.Run, lessons: Lessons, policy: Policy, rows: Rows) -> Iterator[Batch]:
    """Yields a batch for each step; the next one is made while the devices are at work."""
    size, build_prompt = lessons.batch_size, datasets.prompt_builder(run.data, policy.tokenizer)
    # Rows are larger than built-in questions, so as many are in memory as in RL.
    at_once = math.gcd(size, run.batch.prompts_per_microbatch) if rows else size
    longest = int(rows.notes["length"].max()) if rows else run.sampling.max_tokens
    sizes = {"prompts_per_minibatch": size, "prompts_per_microbatch": at_once}
    sizes |= {"answers_per_row": 1, "length_multiple": run.data.length_multiple}
    sizes |= {"ways": mesh.batch_size(policy.mesh)}
    taught = _rows(run, rows, build_prompt) if rows else _built_in(run, lessons, policy.tokenizer)
    for _ in range(lessons.num_steps):
        items, targets = zip(*itertools.islice(taught, size), strict=True)
        if (most := max(map(len, targets))) > longest:
            raise ValueError(f"sampling.max_tokens={longest}: a taught answer has {most} tokens")
        rollouts = to_rollouts(
            [Answer(np.array(x), np.zeros(len(x)), finished=True) for x in targets],
            np.ones(size, np.int32),
            max_tokens=longest,
            pad=policy.tokenizer.im_end,
            params_version=0,
        )
        prompts = [build_prompt(item) for item in items]
        (batch,) = minibatches.split(prompts, rollouts, np.zeros(size, np.float32), **sizes)
        yield processes.put(batch, mesh.batch_sharding(policy.mesh, axis=1))


def _built_in(run: settings.Run, lessons: Lessons, tokenizer: tokens.Tokenizer) -> Taught:
    """Yields built-in questions with the answers of a teacher that makes mistakes."""
    count = lessons.batch_size * lessons.num_steps
    source = procedural.Procedural(run.seed, count, "warmup", lessons.mixed(run))
    teacher = procedural.Teacher(source, lessons.noise, run.seed)
    for i, item in enumerate(source):
        yield item, [*tokenizer.encode(teacher(item, i)), tokenizer.im_end]


def _rows(run: settings.Run, rows: datasets.Subset, build_prompt: PromptBuilder) -> Taught:
    """Yields rows with their own answers, in another order in each pass over them."""
    for epoch in itertools.count():
        for i in np.random.default_rng([run.seed, epoch]).permutation(len(rows)):
            item = rows[int(i)]
            yield item, build_prompt.target(item.answer, run.reward.format)
