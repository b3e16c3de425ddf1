"""VADE + GSPO on the tiny job in one plain loop: the starting point for your own training loop.

    python -m experiments.own_loop --workdir=runs/own_loop

It uses only the parts: samplers, losses, models, data, rewards, rollout, trainer. `experiments.train` with
configs/tiny_gspo.py takes the same steps and adds what a long run needs: checks, records, a page, vLLM,
several hosts. docs/tutorials/own_loop.md walks through this file.
"""

import argparse
import functools
import os

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from vade_jax import rng, settings
from vade_jax.data import procedural, prompts
from vade_jax.models.qwen import tiny_checkpoint
from vade_jax.rewards import functions
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.samplers import SAMPLERS
from vade_jax.trainer import learner, mesh, minibatches, scoring, update, validation
from vade_jax.trainer.choosing import Pool
from vade_jax.trainer.collect import Collector
from vade_jax.trainer.policy import place_policy

B, G = 32, 8  # prompts a step, answers to each
LENGTH = 8  # tokens of the longest answer
MULTIPLE = 36  # prompts are padded to multiples of this, so that few shapes compile


def main(workdir: str, num_steps: int = 100, seed: int = 0, on_step=lambda *_: None) -> float:
    """Trains, and returns the accuracy of the last validation; `on_step` gets the results of each step."""
    key = jax.random.key(seed)

    # The policy: 1.6 M weights that can read some of the pictures. Any Hugging Face directory of a Qwen
    # works.
    directory = os.path.join(workdir, "model")
    tiny_checkpoint.write(directory, seed, "tiny_reader")
    policy = place_policy(directory, mesh.make(), jnp.dtype("float32"))
    tokenizer = policy.tokenizer

    # The data: any sequence of `types.Item`. These are questions about small pictures.
    train = procedural.Procedural(seed, 512, "train")
    held_out = procedural.Procedural(seed, 256, "validation")
    build = prompts.PromptBuilder(
        tokenizer, instruction="", min_pixels=112 * 112, max_pixels=112 * 112, max_length=64
    )

    # The reward: 0.9 for the right answer, 0.1 for a box around it.
    score = scoring.Scorer(tokenizer.decode, functions.by_rules("boxed", format_weight=0.1))

    # The selector: VADE's posterior over the pass rates of all questions.
    selector = SAMPLERS["vade"](num_rollouts=G, warmup="none")
    posterior = selector.init(len(train))
    pool = Pool(train, build)

    # The engine samples with the policy's own arrays, which it shares.
    engine = LocalEngine(
        policy.merge,
        policy.params,
        sampling=Sampling(max_tokens=LENGTH),
        stop_ids=tokenizer.stop_ids,
        banned_ids=tokenizer.banned_ids,
        answers_per_row=G,
        prompts_per_call=B,
        length_multiple=MULTIPLE,
        mesh=policy.mesh,
    )

    # All of these together make the batches.
    collect = Collector(selector, pool, engine, score, key, num_prompts=B)

    # The learner: clipped GSPO with a KL to the first policy, AdamW, four updates a step.
    optimizer = update.make_optimizer(
        settings.Optimizer(learning_rate=5e-5, warmup_steps=10, b2=0.99)
    )
    logp = update.make_logp(policy.merge, banned=tokenizer.banned_ids)
    objective = update.group_rl(settings.Loss(**settings.GSPO))
    step_of_policy = update.make(logp, objective, optimizer, whole=policy.whole)
    # A copy: each update deletes the parameters that it is given, and the first ones are the KL's reference.
    state = learner.first_state(policy, optimizer, copy=True)
    learn = learner.Learner(
        update=learner.compile_update(step_of_policy, policy, state),
        logprobs=learner.compile_logprobs(logp, policy),
        split=functools.partial(
            minibatches.split,
            prompts_per_minibatch=8,
            prompts_per_microbatch=8,
            answers_per_row=G,
            length_multiple=MULTIPLE,
            ways=mesh.batch_size(policy.mesh),
        ),
        reference=policy.params,
    )
    validate = validation.of_items(
        "validation", held_out, build, score, num_samples=4, sampling=Sampling(max_tokens=LENGTH)
    )

    # Everything that a step changes, so that a stopped run continues where it was.
    saved = ocp.CheckpointManager(os.path.abspath(os.path.join(workdir, "checkpoints")))
    first = saved.latest_step() or 0
    if first:
        target = ocp.args.StandardRestore({"state": state, "posterior": posterior})
        state, posterior = saved.restore(first, args=target).values()

    accuracy = float("nan")
    for step in range(first + 1, num_steps + 1):
        # Weights first: an update has deleted those of the step before.
        engine.sync(policy.whole(state.params, state.frozen), step - 1)
        # Choose the B questions with the greatest I(p), p ~ Beta; answer each G times; compare every answer
        # with its group; update the counts. Lines 6 to 12 of Algorithm 1.
        batch, posterior = collect(posterior, step)
        # The policy learns, with the weights that made the answers as the old policy.
        state, losses = learn(state, *batch.batch())
        right, mixed = batch.feedback.correct_N.mean(), batch.feedback.mixed_M.mean()
        print(f"step {step}: {right:.2f} right, {mixed:.2f} of the groups teach", end="")
        if step % 20 == 0 or step == num_steps:
            engine.sync(policy.whole(state.params, state.frozen), step)
            metrics, _ = validate(engine, rng.step_keys(key, step).validation, step, frozenset())
            accuracy = metrics["val/validation/acc/mean@4"]
            print(f", validation {accuracy:.3f}", end="")
            saved.save(step, args=ocp.args.StandardSave({"state": state, "posterior": posterior}))
        print(flush=True)
        on_step(step, batch, losses, state, posterior)
    saved.close()
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser("experiments.own_loop", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--num_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
