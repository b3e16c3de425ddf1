"""Selectors in TRL's AsyncGRPOTrainer: each prompt is chosen when the rollouts ask for the next one.

trainer = SelectingAsyncGRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct", args=args, train_dataset=rows,
    reward_funcs=[accuracy, format], correct="accuracy", id_column="id",
)

TRL rolls out and rewards in a separate process, which takes the next row whenever it can. The selector stays
in the trainer's process, which saves it: it chooses each row, and gets a group's rewards as soon as they are
known, before the trainer uses them. What is overridden is in trl/experimental/async_grpo/.
"""

import math
import threading
from collections.abc import Iterator
from multiprocessing import managers
from typing import Any

from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutGroup,
    RolloutSample,
    _AsyncRolloutLoop,
)
from trl.trainer.utils import get_callable_name

from vade_jax.plugins import choosing, trl_trainer

trl_trainer.require_hooks(_AsyncRolloutLoop, "_repeat_iterator", "_score_group")


class Connection(managers.BaseManager):
    """Lets the process of the rollouts call the trainer."""


Connection.register("trainer")


class SelectingLoop(_AsyncRolloutLoop):
    """TRL's loop in the process of the rollouts, on the rows that the trainer's process chooses."""

    def __init__(self, *, connection: dict[str, Any], id_column: str, **kwargs: Any):
        super().__init__(**kwargs)
        manager = Connection(**connection)
        manager.connect()
        self._trainer, self._id_column = manager.trainer(), id_column

    def _repeat_iterator(self) -> Iterator[tuple[int, dict[str, Any]]]:
        self._dataset_iter = (self.dataset[place] for place in iter(self._trainer.choose, None))
        return super()._repeat_iterator()

    async def _score_group(self, group: RolloutGroup) -> list[RolloutSample]:
        samples = await super()._score_group(group)
        # An answer may have several samples, each with the answer's rewards.
        answers = {id(sample.completion): sample.metrics for sample in samples}.values()
        names = [f"rewards/{name}" for name in self.reward_func_names]
        reward_NF = [[metrics[name] for name in names] for metrics in answers]
        self._trainer.observe(group.reward_kwargs[self._id_column][0], reward_NF)
        return samples


class SelectingAsyncGRPOTrainer(trl_trainer.WithSelector, AsyncGRPOTrainer):
    """TRL's AsyncGRPOTrainer on the prompts that a selector chooses.

    The selector learns from as many groups at a time as an optimizer step has. `choosing.Stream` says how,
    and what a resumed run does with the groups that were out. Groups that were rewarded and not yet trained
    on are lost when TRL resumes; the selector has learned from them. Groups that a selector would drop
    (`keep`) are trained on. The arguments are those of `WithSelector`, without `rollout_worker`.
    """

    BY_STEP = False

    def __init__(
        self, model: str, reward_funcs: Any = None, *args, id_column: str = "id", **kwargs
    ):
        functions = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        self.reward_func_names = [get_callable_name(x) for x in functions if x is not None]
        super().__init__(model, reward_funcs, *args, id_column=id_column, **kwargs)
        size = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
        num_prompts = size * self.accelerator.num_processes // self.args.num_generations
        # No group is ever lost.
        self._saved = self.stream = choosing.Stream(self.selector, max(num_prompts, 1), math.inf)
        self._place = {name: i for i, name in enumerate(self._ids)}
        if not self.accelerator.is_main_process:
            return
        if type(self.rollout_worker) is not AsyncRolloutWorker:
            raise ValueError("rollout_worker: the selector needs TRL's own AsyncRolloutWorker")
        self.rollout_worker._loop_cls = SelectingLoop
        self.rollout_worker._loop_kwargs |= {"connection": self._serve(), "id_column": id_column}

    def choose(self) -> int:
        """Returns the index of the next row."""
        return self._place[next(self.stream)]

    def observe(self, name: Any, reward_NF: list[list[float]]) -> None:
        """Takes the rewards of a row's N answers from all functions; N may be 0."""
        self.stream.answer(name, self._right(reward_NF) if reward_NF else [])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        logs |= {f"vade/{name}": value for name, value in self.stream.metrics().items()}
        super().log(logs, start_time)

    def _serve(self) -> dict[str, Any]:
        """Answers the process of the rollouts in a thread; returns the arguments of its `Connection`."""
        served = type("Served", (Connection,), {})
        served.register("trainer", lambda: self, exposed=["choose", "observe"])
        server = served().get_server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return {"address": server.address, "authkey": bytes(server.authkey)}
