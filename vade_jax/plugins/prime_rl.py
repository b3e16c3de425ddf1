"""Selectors in prime-rl: a task sampler, and a gate for the selectors that drop groups.

prime-rl builds its samplers and gates from its own config, so others have to be installed, by these lines
after `Curriculum(...)` in `TrainSource.__init__` (src/prime_rl/orchestrator/train_source.py):

    from vade_jax.plugins import prime_rl
    curriculum, group_size = self.curricula[env.name], env.config.group_size
    prime_rl.install(curriculum, tasks, num_prompts=32, num_rollouts=group_size, correct="accuracy")

Nothing of prime-rl is imported. Its protocol was read in src/prime_rl/orchestrator/ at commit 559b447
(21 August 2026), that of the episodes in verifiers/v1/ at a60a606.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from vade_jax.plugins import choosing
from vade_jax.selector import right_answers


class SelectingSampler(choosing.Stream):
    """A `TaskSampler` of prime-rl that returns the tasks chosen by a selector.

    prime-rl returns one group at a time, in any order; `choosing.Stream` says how the selector learns from
    them, and what happens to groups that are cancelled, which prime-rl does not report, and at a restore.
    prime-rl itself loses the groups that wait for their training step.

    Args:
        tasks: all tasks of the environment; `task.key` is the id, unique and the same in every run. By
            default it is a hash of the task's data and its place in the task set.
        num_prompts: tasks to propose at once: about the groups of a training step in this environment.
        num_rollouts: answers to a task, the environment's `group_size`.
        name, options, seed: the selector (a key of `samplers.SAMPLERS` or path/to/file.py:NAME), its
            hyperparameters and `arrays`, and its seed.
        correct: name of the reward, or else of the metric, that says whether an answer is right. None: the
            only reward. The weights of rewards and their sum are not used.
        threshold: an answer is right if that value is above it.
        lost_after: batches after which a group is given up. Set it above the batches proposed in
            `max_off_policy_steps` steps.

    Raises:
        ValueError: the tasks are not a finite sequence with unique keys, or the selector cannot work here.
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        *,
        num_prompts: int,
        num_rollouts: int,
        name: str = "vade",
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        correct: str | None = None,
        threshold: float = 0.5,
        lost_after: int = 16,
    ):
        if not isinstance(tasks, Sequence):
            raise ValueError("the task set is infinite, but a selector needs to know all tasks")
        selector = choosing.make_selector(
            [task.key for task in tasks],
            name,
            seed=seed,
            num_rollouts=num_rollouts,
            options=options,
            by_step=False,
        )
        super().__init__(selector, num_prompts, lost_after)
        self._tasks = {task.key: task for task in tasks}
        self._correct, self._threshold = correct, threshold

    def __next__(self) -> Any:
        return self._tasks[super().__next__()]

    def observe(self, group: Sequence[Any]) -> None:
        """Takes the episodes of a group, whether or not the gates admit it.

        Answers with an error, of agents that are not trained, or without a verdict are not counted.
        """
        self.answer(group[0].task.key, self._right(group))

    def keeps(self, group: Sequence[Any]) -> bool:
        """Returns whether the selector would now train on the group."""
        right_N = self._right(group)
        trials = int(np.sum(~np.isnan(right_N)))
        return bool(self.selector.keep([group[0].task.key], [np.nansum(right_N)], trials)[0])

    def _right(self, group: Sequence[Any]) -> np.ndarray:
        """Returns 1, 0 or NaN for each answer that counts."""
        traces = [
            trace
            for episode in group
            for trace in episode.traces
            if trace.agent.trainable and not trace.has_error
        ]
        rewards = sorted({name for trace in traces for name in trace.rewards})
        names = sorted({*rewards, *(name for trace in traces for name in trace.metrics)})
        name = rewards[0] if self._correct is None and len(rewards) == 1 else self._correct
        if name not in names and (names if name else rewards):
            raise ValueError(
                f"correct={name!r}: name the one that says whether an answer is right, of {names}"
            )
        scores = [trace.rewards.get(name) for trace in traces]
        values = [trace.metrics.get(name) for trace in traces]
        score_N = [y if x is None else x.score for x, y in zip(scores, values, strict=True)]
        return right_answers(score_N, self._threshold)


def install(curriculum: Any, tasks: Sequence[Any], **settings: Any) -> None:
    """Puts a `SelectingSampler` into a `Curriculum` of prime-rl, and a gate if the selector drops groups.

    Raises:
        ValueError: as `SelectingSampler`, or the config of prime-rl asks for a sampler.
    """
    name = type(curriculum.sampler).__name__
    if name != "StandardSampler":
        raise ValueError(f"the config asks for a {name}: leave `sampler` out of `curriculum`")
    sampler = SelectingSampler(tasks, **settings)
    curriculum.sampler = sampler
    if sampler.selector.filters:
        # An `AdmissionGate` with the sampler's state; prime-rl logs the share of admitted groups.
        curriculum.gates["selector"] = SimpleNamespace(
            admit=sampler.keeps, state_dict=dict, load_state_dict=dict, metrics=dict
        )
