"""An engine with known pass rates and times, for tests of the loop."""

import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from vade_jax.rollout.engine import OnGroup, Sampling, check_version, ignore
from vade_jax.types import Metrics, Params, Prompt, Rollouts

RIGHT = 1  # the token of a right answer; a wrong answer has token 0


class FakeEngine:
    """Gives right answers to each prompt with that prompt's probability.

    An answer is two tokens: right or wrong, then the end token.

    Args:
        pass_rate: the probability of a right answer, by the prompt's uid.
        version: the version of the weights that it claims to hold.
        seconds: (key, number of answers) -> the seconds that each answer takes; all are made at once, so a
            call takes as long as the longest.
    """

    def __init__(
        self,
        pass_rate: Mapping[str, float],
        version: int = 0,
        seconds: Callable[[jax.Array, int], np.ndarray] = lambda key, number: np.zeros(number),
    ):
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
        time.sleep(float(np.max(self.seconds(key, len(group_N)), initial=0.0)))
        for m in range(len(prompts)):
            on_group(m, list(token_NT[group_N == m]))
        return Rollouts(
            token_NT=token_NT,
            length_N=np.full(group_N.shape, 2, np.int32),
            logp_NT=np.full((len(group_N), 2), -0.5, np.float32),
            group_N=group_N,
            finished_N=np.ones(group_N.shape, bool),
            valid_N=np.ones(group_N.shape, bool),
            params_version=np.array(params_version, np.int32),
        )

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`."""
        self.version = version

    def metrics(self) -> Metrics:
        """See `Engine.metrics`."""
        return {}

    def close(self) -> None:
        """See `Engine.close`."""
