"""The supervised warm start: likelihood of a teacher's answers, on the RL trainer's own update.

    python -m experiments.supervise --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

Reads the procedural "warmup" split, which training and validation never share. Leaves a Hugging Face
checkpoint in <workdir>/warm_start.
"""

import concurrent.futures
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
import tqdm
from ml_collections import ConfigDict

from experiments import (
    assemble,
    checks,
    cli,
    datasets,
    distributed,
    errors,
    run_directory,
)
from experiments.stop_signal import StopSignal
from vade_jax.data import procedural
from vade_jax.models.qwen25vl import files, tiny_checkpoint
from vade_jax.store import checkpoints
from vade_jax.trainer import (
    loop,
    mesh,
    minibatches,
    objectives,
    optimizer,
    processes,
    update,
)
from vade_jax.types import Batch, Rollouts


def warm_start(
    c: ConfigDict, base: str, directory: str, stop: Callable[[], bool]
) -> None:
    """Trains the checkpoint in `base` and writes it to `directory`; resumes what was stopped.

    Raises:
        SystemExit: `stop()` was true; the state is saved.
    """
    with errors.user_errors():
        policy = assemble.policy(c, base)
        _check_answers_fit(c, policy.tokenizer)
    state, step = _compile(c, policy)
    partial = f"{directory}.partial"
    saved = checkpoints.Checkpointer(partial, keep=1, every=200)
    if done := saved.latest_step() or 0:
        state, _, _ = saved.restore(done, state, {})
    size, last = c.warm_start.batch_size, c.warm_start.num_steps
    bar = tqdm.tqdm(
        total=last * size,
        initial=done * size,
        unit=" samples",
        desc="warm start",
        disable=not processes.is_leader(),
    )
    with bar, contextlib.closing(saved):
        unread = []
        for number, batch in enumerate(_batches(c, policy, done), done + 1):
            state, metrics = step(state, batch)
            unread.append((number, metrics))
            bar.update(size)
            stopped = stop()
            if number % 20 == 0 or number == last or stopped:
                bar.set_postfix(loss=f"{_read(unread):.3f}")
            saved.save(number, state, {}, {}, {}, force=stopped)
            if stopped:
                print(f"warm start stopped after step {number}; run again to resume")
                sys.exit(0)
    processes.on_leader(lambda: files.copy_tokenizer(base, directory))
    leader = processes.is_leader()
    files.save(directory, policy.shape, state.params, write=leader)
    processes.on_leader(lambda: shutil.rmtree(partial, ignore_errors=True))


def _compile(c: ConfigDict, policy: assemble.Policy):
    """Returns the first state and the compiled step."""
    steps = c.warm_start.num_steps
    transform = optimizer.make(
        learning_rate=c.warm_start.learning_rate,
        warmup_steps=min(50, steps // 10),
        decay_steps=steps,
        b2=c.warm_start.b2,
    )
    state, shardings = assemble.train_state(policy, transform)
    logp = assemble.log_probs(c, policy, temperature=1.0)
    step = update.make(logp, objectives.likelihood(), transform)
    return state, assemble.compile_update(step, policy.mesh, shardings)


def _read(unread) -> float:
    """Fetches the metrics of the last steps, empties the list and returns the newest loss."""
    for number, metrics in jax.device_get(unread):
        loop.check_finite(f"warm start, step {number}", metrics)
    unread.clear()
    return float(metrics["actor/loss"])


def _batches(c: ConfigDict, policy: assemble.Policy, done: int) -> Iterator[Batch]:
    """Yields the batches after `done`; the next one is cut while a step runs."""
    size, steps = c.warm_start.batch_size, c.warm_start.num_steps
    source = procedural.Procedural(c.seed, size * steps, "warmup")
    build_prompt = datasets.prompt_builder(c, policy.tokenizer)
    teacher = procedural.Teacher(source, c.warm_start.noise, c.seed)

    def batch(number):
        index = range(number * size, (number + 1) * size)
        items = [source[i] for i in index]
        answers = [teacher(item, i) for item, i in zip(items, index, strict=True)]
        (cut,) = minibatches.split(
            [build_prompt(item) for item in items],
            _targets(c, policy.tokenizer, answers),
            np.zeros(size, np.float32),
            prompts_per_minibatch=size,
            prompts_per_microbatch=size,
            answers_per_row=1,
            length_multiple=c.data.length_multiple,
            ways=mesh.batch_size(policy.mesh),
        )
        return processes.put(cut, mesh.batch_sharding(policy.mesh, axis=1))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ready = pool.submit(batch, done)
        for number in range(done + 1, steps + 1):
            now = ready.result()
            if number < steps:
                ready = pool.submit(batch, number)
            yield now


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


def untrained(c: ConfigDict, workdir: str) -> str:
    """Returns the checkpoint that everything starts from; makes the tiny one where asked to."""
    if not c.model.preset:
        files.load_config(c.model.checkpoint)  # is there, and is a Qwen2.5-VL
        return c.model.checkpoint
    directory = os.path.join(workdir, "tiny_model")
    if not processes.on_leader(lambda: _is_complete(directory)):
        processes.on_leader(
            lambda: tiny_checkpoint.write(directory, c.seed, c.model.preset)
        )
    distributed.check_shared(os.path.join(directory, "config.json"))
    return directory


def warm_started(
    c: ConfigDict, base: str, workdir: str, stop: Callable[[], bool]
) -> str:
    """Returns the checkpoint that RL starts from: warm-started, where the config asks for it.

    Raises:
        SystemExit: there is one of another config, or `stop()` was true.
    """
    if not c.warm_start.num_steps:
        return base
    directory = c.warm_start.directory or os.path.join(workdir, "warm_start")
    with errors.user_errors():
        processes.on_leader(
            lambda: run_directory.claim(directory + ".json", _recipe(c))
        )
    if not processes.on_leader(lambda: _is_complete(directory)):
        start = time.perf_counter()
        warm_start(c, base, directory, stop)
        print(f"warm start: {time.perf_counter() - start:.0f} s, in {directory}")
    distributed.check_shared(os.path.join(directory, "config.json"))
    return directory


def _recipe(c):
    """What a warm start depends on: one made with other values must not be taken for it."""
    fields = json.loads(c.to_json_best_effort())
    wanted = {name: fields[name] for name in ("seed", "model", "warm_start")}
    del wanted["warm_start"]["directory"]
    prompt = ("instruction", "min_pixels", "max_pixels", "max_prompt_length")
    return wanted | {"data": {name: fields["data"][name] for name in prompt}}


def _is_complete(directory):
    """config.json is the last thing that a checkpoint gets."""
    return os.path.exists(os.path.join(directory, "config.json"))


def main(c: ConfigDict, workdir: str) -> None:
    """Makes the warm start and nothing else."""
    with errors.user_errors():
        checks.config(c)
        run_directory.open_for(c, workdir)
        base = untrained(c, workdir)
    try:
        print("in", warm_started(c, base, workdir, StopSignal()))
    except loop.NonFiniteLoss as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    cli.run(main)
