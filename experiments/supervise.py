"""The supervised warm start: likelihood of a teacher's answers, on the RL trainer's own update.

    python -m experiments.supervise --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

Reads the procedural "warmup" split, which training and validation never share. Leaves a Hugging Face
checkpoint in <workdir>/warm_start.
"""

import collections
import concurrent.futures
import os
import time
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np
import tqdm
from ml_collections import ConfigDict

from experiments import assemble, checks, cli, errors, make_tiny
from vade_jax.data import procedural
from vade_jax.models.qwen25vl import files
from vade_jax.trainer import loop, mesh, minibatches, objectives, optimizer, update
from vade_jax.types import Batch, Item, Rollouts


def warm_start(c: ConfigDict, base: str, directory: str) -> None:
    """Trains the checkpoint in `base` and writes it to `directory`."""
    with errors.user_errors():
        policy = assemble.policy(c, base)
        _check_answers_fit(c, policy.tokenizer)
    steps = c.warm_start.num_steps
    transform = optimizer.make(
        learning_rate=c.warm_start.learning_rate,
        warmup_steps=min(50, steps // 10),
        decay_steps=steps,
        b2=c.warm_start.b2,
    )
    state, shardings = assemble.train_state(policy, transform)
    step = update.make(
        assemble.log_probs(c, policy, temperature=1.0),
        objectives.likelihood(),
        transform,
    )
    step = assemble.compile_update(step, policy.mesh, shardings)
    bar = tqdm.tqdm(
        total=steps * c.warm_start.batch_size, unit=" samples", desc="warm start"
    )
    with bar:
        for number, batch in enumerate(_batches(c, policy)):
            state, metrics = step(state, batch)
            bar.update(c.warm_start.batch_size)
            if number % 20 == 0 or number == steps - 1:
                loss = float(metrics["actor/loss"])
                if not np.isfinite(loss):
                    raise loop.NonFiniteLoss(
                        f"warm start, step {number}: loss is {loss}"
                    )
                bar.set_postfix(loss=f"{loss:.3f}")
    make_tiny.add_files(base, directory)
    files.save(directory, policy.shape, jax.device_get(state.params))


def _batches(c: ConfigDict, policy: assemble.Policy) -> Iterator[Batch]:
    """Yields the batches; the next one is drawn and cut while a step runs."""
    size, steps = c.warm_start.batch_size, c.warm_start.num_steps
    source = procedural.Procedural(c.seed, size * steps, "warmup")
    build_prompt = assemble.prompt_builder(c, policy.tokenizer)
    teacher = Teacher(source, c.warm_start.noise, c.seed)

    def batch(number):
        index = range(number * size, (number + 1) * size)
        items = [source[i] for i in index]
        answers = [teacher(item, i) for item, i in zip(items, index, strict=True)]
        return minibatches.split(
            [build_prompt(item) for item in items],
            _targets(c, policy.tokenizer, answers),
            np.zeros(size, np.float32),
            prompts_per_minibatch=size,
            prompts_per_microbatch=size,
            answers_per_row=1,
            length_multiple=c.data.length_multiple,
            ways=mesh.batch_size(policy.mesh),
        )[0]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ready = pool.submit(batch, 0)
        for number in range(1, steps + 1):
            now = ready.result()
            if number < steps:
                ready = pool.submit(batch, number)
            yield now


class Teacher:
    """Writes the answers that the warm start imitates; of some families often wrong ones.

    A policy that has seen every answer right has nothing to gain from a reward but what it cannot
    see. This one knows more than it says, as a pretrained model does: the right answer is the most
    likely one, and not yet the one it gives.

    Args:
        source: items whose answers stand in for right ones, drawn within a family and level.
        noise: for "family_level", the probability of a stand-in; the rest is always right.
        seed: of the draws.
    """

    def __init__(self, source: Sequence[Item], noise: Mapping[str, float], seed: int):
        self._noise, self._seed = dict(noise), seed
        self._stand_ins = collections.defaultdict(list)
        for i in range(min(len(source), 2000)):
            item = source[i]
            self._stand_ins[_family_level(item)].append(item)

    def __call__(self, item: Item, index: int) -> str:
        """Returns what the teacher writes under item number `index`."""
        rng = np.random.Generator(np.random.Philox(key=[self._seed, index]))
        if rng.random() < self._noise.get(_family_level(item), 0.0):
            stand_ins = self._stand_ins[_family_level(item)]
            item = stand_ins[rng.integers(len(stand_ins))]
        return procedural.target_text(item)


def _check_answers_fit(c, tokenizer) -> None:
    """Raises ValueError when the built-in answers are longer than what may be sampled."""
    source = procedural.Procedural(c.seed, 2000, "warmup")
    texts = {procedural.target_text(item) for item in source}
    longest = 1 + max(len(tokenizer.encode(text)) for text in texts)
    if longest > c.sampling.max_tokens:
        raise ValueError(
            f"sampling.max_tokens={c.sampling.max_tokens}: the warm start's answers have "
            f"up to {longest} tokens; set it to at least that"
        )


def _family_level(item):
    return f"{item.metadata['family']}_{item.metadata['level']}"


def _targets(c, tokenizer, texts) -> Rollouts:
    """Returns the teacher's answers as rollouts, one a prompt."""
    answers = [[*tokenizer.encode(text), tokenizer.im_end] for text in texts]
    length_N = np.array([len(answer) for answer in answers], np.int32)
    shape = (len(answers), c.sampling.max_tokens)
    token_NT = np.full(shape, tokenizer.im_end, np.int32)
    for n, answer in enumerate(answers):
        token_NT[n, : len(answer)] = answer
    return Rollouts(
        token_NT=token_NT,
        length_N=length_N,
        logp_NT=np.zeros(shape, np.float32),
        group_N=np.arange(len(answers), dtype=np.int32),
        finished_N=np.ones(len(answers), bool),
        valid_N=np.ones(len(answers), bool),
        params_version=np.int32(0),
    )


def base_checkpoint(c: ConfigDict, workdir: str) -> str:
    """Returns the directory that RL starts from; makes and warm-starts it where asked to."""
    base = c.model.checkpoint
    if c.model.preset:
        base = os.path.join(workdir, "tiny_model")
        if not _is_complete(base):
            make_tiny.make(base, c.seed, c.model.preset)
    if not c.warm_start.num_steps:
        return base
    directory = c.warm_start.directory or os.path.join(workdir, "warm_start")
    if not _is_complete(directory):
        start = time.perf_counter()
        warm_start(c, base, directory)
        print(f"warm start: {time.perf_counter() - start:.0f} s, in {directory}")
    return directory


def _is_complete(directory):
    """config.json is the last thing that a checkpoint gets."""
    return os.path.exists(os.path.join(directory, "config.json"))


def main(c: ConfigDict, workdir: str) -> None:
    """Makes the warm start and nothing else."""
    with errors.user_errors():
        checks.config(c)
        os.makedirs(workdir, exist_ok=True)
    base_checkpoint(c, workdir)


if __name__ == "__main__":
    cli.run(main)
