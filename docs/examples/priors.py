"""VADE with a prior from the policy's own answers: right, noisy or wrong. Three arms of a sweep.

    D=docs/examples/priors.py
    python -m experiments.sweep --config=configs/sweep.py:frontier,updates=8 --workdir=runs/priors \
        --config.arms=uniform,vade,$D:RIGHT,$D:NOISY,$D:WRONG --config.seeds=0,1,2,3,4,5,6,7

Before step 1 every prompt is answered 8 times. Of these answers VADE is told their pass rate, this rate with
noise, or another prompt's. The policy does not learn from them, as if another model had given them.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import rng
from vade_jax.samplers import base, beta, vade

NOISE = 2.0  # standard deviation on the logit, as in the simulator
CHANGES = {
    "right": lambda key, p_I: p_I,
    "noisy": lambda key, p_I: jax.nn.sigmoid(
        jax.scipy.special.logit(jnp.clip(p_I, 1 / 17, 16 / 17))  # 0 of 8 is not certainly 0
        + NOISE * jax.random.normal(key, p_I.shape)
    ),
    "wrong": jax.random.permutation,
}


def selector(options):
    whole = vade.selector(options)

    def update(state, feedback):
        counted = whole.update(state, feedback)
        if not base.is_pass(feedback, len(state.alpha_I)):
            return counted
        n_I = counted.alpha_I + counted.beta_I
        rate_I = counted.alpha_I / jnp.maximum(n_I, 1)
        p_I = CHANGES[options.prior](rng.own_key(options.seed, np.int32(0)), rate_I)
        return counted.replace(alpha_I=n_I * p_I, beta_I=n_I * (1 - p_I))

    return base.compiled(whole.init, whole.propose, update, believe=beta.believe, needs=whole.needs)


def spec(prior):
    parts = [("warmup", str, "measured"), ("prior", str, prior), ("seed", int, 0)]
    options = dataclasses.make_dataclass("Prior", parts, bases=(vade.VadeOptions,), frozen=True)
    return base.Spec(f"prior_{prior}", options, selector)


RIGHT, NOISY, WRONG = map(spec, CHANGES)
