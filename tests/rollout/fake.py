"""An engine with known pass rates and times, for tests of the loop."""

import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from vade_jax.rollout.engine import OnGroup, Sampling, check_version, flat, ignore
from vade_jax.types import Params, Prompt, Rollouts

RIGHT = 1  # the token of a right answer; a wrong answer has token 0


class FakeEngine:
    """Gives right answers to each prompt with that prompt's probability.

    An answer is two tokens: right or wrong, then the end token.

    Args:
        pass_rate: the probability of a right answer, by the prompt's uid.
        version: the version of the weights that it claims to hold.
        seconds: that a call takes.
    """

    def __init__(self, pass_rate: Mapping[str, float], version: int = 0, seconds: float = 0.0):
        self.pass_rate = dict(pass_rate)
        self.version = version
        self.seconds = seconds

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`."""
        check_version(params_version, self.version)
        rate_M = np.array([self.pass_rate[prompt.uid] for prompt in prompts])
        group_N = np.repeat(np.arange(len(prompts), dtype=np.int32), num_rollouts_M)
        uniform_N = np.asarray(jax.random.uniform(key, group_N.shape))
        right_N = (uniform_N < rate_M[group_N]).astype(np.int32)
        token_NT = np.stack([right_N, np.full_like(right_N, 2)], 1)
        time.sleep(self.seconds)
        for m in range(len(prompts)):
            on_group(m, list(token_NT[group_N == m]))
        logp_NT, finished_N = np.full_like(token_NT, -0.5, np.float32), np.ones(len(token_NT), bool)
        length_N = np.full(len(token_NT), 2, np.int32)
        return flat(token_NT, logp_NT, length_N, finished_N, num_rollouts_M, params_version)

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`."""
        self.version = version

    def close(self) -> None:
        """See `Engine.close`."""
