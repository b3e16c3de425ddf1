"""Selectors in prime-rl: a task sampler, and a gate for the selectors that drop groups.

prime-rl builds its samplers and gates from its own config, so others have to be installed. These lines in
`TrainSource.__init__` (src/prime_rl/orchestrator/train_source.py), after `Curriculum(...)` is made, do that:

    from vade_jax.plugins import prime_rl
    curriculum, group_size = self.curricula[env.name], env.config.group_size
    prime_rl.install(curriculum, tasks, num_prompts=32, num_rollouts=group_size, correct="accuracy")

Nothing of prime-rl is imported. Its protocol was read in src/prime_rl/orchestrator/ at commit 559b447
(21 August 2026), that of the episodes in verifiers/v1/ at a60a606.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax.plugins import choosing

GATE = "selector"  # name of the gate in its curriculum
TRIES = 4  # selections of a batch, before a larger one finds tasks that are not out


class SelectingSampler:
    """A `TaskSampler` of prime-rl that hands out the tasks that a selector chooses.

    The selector proposes `num_prompts` tasks at once, and `next` hands them out one by one. A task that is
    out is not proposed again before the selector has learned from its group.

    prime-rl returns one group at a time, in any order. To a selector each observation is a step, in which all
    other items decay. So answers are collected. Right before a proposal those to `num_prompts` tasks, which
    may be of several batches, are observed together; the rest waits. It is also observed when all tasks that
    were handed out are back and none of the batch is left, or when every task is out or waits.

    prime-rl never reports groups that it cancels for their age, nor those of which it cancels every answer. A
    task counts as lost after `lost_after` further batches; if no other task is left, the oldest ones do so
    earlier. A lost task may be chosen again. If its group comes back after all, it counts, and if the task is
    out a second time, it is no longer out.

    A task that is out when a checkpoint is written is handed out first after a restore, since its answers are
    lost. Groups that came back are in the checkpoint, so each is learned from once. prime-rl itself loses the
    groups that wait for their training step.

    prime-rl calls everything from one event loop; the methods are not safe with threads.

    Args:
        tasks: all tasks of the environment; `task.key` is the id, unique and the same in every run. By
            default it is a hash of the task's data and its place in the task set.
        num_prompts: tasks to propose at once: about the groups of a training step in this environment.
        num_rollouts: answers to a task, the environment's `group_size`.
        name, options, seed: the selector (a key of `samplers.SAMPLERS` or path/to/file.py:NAME), its
            hyperparameters and its seed.
        category: function from a task to its category, a name or a number, for `pooled` and other selectors
            that take it.
        correct: name of the reward, or else of the metric, that says whether an answer is right. None: the
            only reward. The weights of rewards do not matter, and their sum is not looked at.
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
        category: Callable[[Any], Any] | None = None,
        correct: str | None = None,
        threshold: float = 0.5,
        lost_after: int = 16,
    ):
        if not isinstance(tasks, Sequence):
            raise ValueError("the task set is infinite, but a selector needs to know all tasks")
        self.selector = choosing.make_selector(
            [task.key for task in tasks],
            name,
            seed=seed,
            num_rollouts=num_rollouts,
            options=options,
            category=[category(task) for task in tasks] if category else None,
            by_step=False,
        )
        self._tasks = {task.key: task for task in tasks}
        self._num_prompts, self._lost_after = num_prompts, lost_after
        self._correct, self._threshold = correct, threshold
        self._queue: list[str] = []  # proposed, not handed out
        self._out: dict[str, int] = {}  # handed out, oldest first -> the batch that was the latest
        self._answers: list[tuple[str, float]] = []  # not learned yet: the task, and whether right
        self._batches, self._lost = 0, 0
        self._metrics: dict[str, float] = {}

    def __iter__(self) -> "SelectingSampler":
        return self

    def __next__(self) -> Any:
        if not self._queue:
            self._learn(least=self._num_prompts)
            self._give_up()
            if len(self._taken()) == len(self._tasks):
                self._learn(least=1)
            self._queue = self._choose()
            self._batches += 1
        key = self._queue.pop(0)
        self._out[key] = self._batches
        return self._tasks[key]

    def observe(self, group: Sequence[Any]) -> None:
        """Takes the episodes of a group, whether or not the gates admit it.

        Answers with an error, of agents that are not trained, or without a verdict are not counted.
        """
        key, right_N = self._judged(group)
        self._out.pop(key, None)
        # A group without verdicts is also an observation: "uniform" counts it as a visit.
        self._answers += [(key, right) for right in right_N.tolist()] or [(key, float("nan"))]
        if not self._out and not self._queue:
            self._learn(least=1)

    def keeps(self, group: Sequence[Any]) -> bool:
        """Returns whether the selector, as it is now, would train on the group."""
        key, right_N = self._judged(group)
        right = float(np.nansum(right_N))
        return bool(self.selector.keep([key], [right], int(np.sum(~np.isnan(right_N))))[0])

    def state_dict(self) -> dict[str, Any]:
        """Returns the selector's state, the tasks proposed and out, and the answers not learned from."""
        return {
            "selector": self.selector.state_dict(),
            "queue": list(self._queue),
            "out": list(self._out),
            "answers": list(self._answers),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned; the tasks that were out come first."""
        self.selector.load_state_dict(saved["selector"])
        self._queue = [*saved["out"], *saved["queue"]]
        self._out, self._answers = {}, list(saved["answers"])
        self._batches, self._lost, self._metrics = 0, 0, {}

    def metrics(self) -> dict[str, float]:
        """Returns tasks out and given up, and the share of mixed groups in the latest observation."""
        return {"in_flight": float(len(self._out)), "lost": float(self._lost), **self._metrics}

    def _learn(self, *, least: int) -> None:
        """Tells the selector the answers to `num_prompts` tasks at a time, while there are `least` tasks."""
        while len(tasks := dict.fromkeys(key for key, _ in self._answers)) >= least:
            step = set(list(tasks)[: self._num_prompts])
            ids_N, right_N = zip(*(x for x in self._answers if x[0] in step), strict=True)
            mixed = choosing.observe(self.selector, ids_N, np.array(right_N))
            self._answers = [x for x in self._answers if x[0] not in step]
            self._metrics = {"effective_ratio_correct": mixed}

    def _give_up(self) -> None:
        """Takes the tasks that are out for too long for lost, or the oldest ones if all are out."""
        latest = self._batches - self._lost_after
        old = [key for key, batch in self._out.items() if batch <= latest]
        if not old and len(self._out) == len(self._tasks):
            old = list(self._out)[: self._num_prompts]
        self._lost += len(old)
        for key in old:
            del self._out[key]

    def _taken(self) -> set[str]:
        """Returns the tasks that are out, and those whose answers were not learned yet."""
        return {*self._out, *(key for key, _ in self._answers)}

    def _choose(self) -> list[str]:
        """Returns a batch of tasks that are not taken: `num_prompts` if there are so many, at least one."""
        taken = self._taken()
        size = min(self._num_prompts, len(self._tasks) - len(taken))
        free: dict[str, None] = {}
        for attempt in range(TRIES + 1):
            # The last, larger selection has enough tasks, but its best do not come first. Its size is a
            # multiple of the batch's, as every new size compiles a new program.
            times = 1 + (len(taken) // self._num_prompts + 1) * (attempt == TRIES)
            chosen = self.selector.select(min(times * self._num_prompts, len(self._tasks)))
            free |= dict.fromkeys(key for key in chosen if key not in taken)
            if len(free) >= size:
                break
        return list(free)[:size]

    def _judged(self, group: Sequence[Any]) -> tuple[str, np.ndarray]:
        """Returns the task's key, and for each answer that counts 1 if it is right, 0 or NaN."""
        traces = [
            trace
            for episode in group
            for trace in episode.traces
            if trace.agent.trainable and not trace.has_error
        ]
        names = {name for trace in traces for name in (*trace.rewards, *trace.metrics)}
        if self._correct is not None and names and self._correct not in names:
            raise ValueError(
                f"correct={self._correct!r}: the answers have {sorted(names)}; name one of them"
            )
        score_N = np.array([_score(trace, self._correct) for trace in traces], float)
        return group[0].task.key, choosing.above(score_N, self._threshold)


class SelectingGate:
    """An `AdmissionGate` of prime-rl, which rolls out others in place of groups that the selector drops."""

    def __init__(self, sampler: SelectingSampler):
        self._sampler = sampler

    def admit(self, group: Sequence[Any]) -> bool:
        return self._sampler.keeps(group)

    def state_dict(self) -> dict[str, Any]:
        return {}  # the sampler saves the selector

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}  # prime-rl logs the share of groups that are admitted


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
        curriculum.gates[GATE] = SelectingGate(sampler)


def _score(trace: Any, correct: str | None) -> float:
    """Returns the value that says whether an answer is right; NaN if it was not scored."""
    if correct is None and len(trace.rewards) > 1:
        raise ValueError(
            f"the answers have the rewards {sorted(trace.rewards)}: set `correct` to the one that says whether an "
            "answer is right"
        )
    if correct is None or correct in trace.rewards:
        reward = (
            next(iter(trace.rewards.values()), None) if correct is None else trace.rewards[correct]
        )
        return np.nan if reward is None else reward.score
    value = trace.metrics.get(correct)
    return np.nan if value is None else value
