"""A selector as one small object, for training loops outside this package.

selector = Selector(len(dataset), seed=0)
for step in range(num_steps):
    ids = selector.select(32)
    ...  # roll out 8 answers to each, train
    selector.observe(ids, correct=num_right, trials=8)
    selector.save("selector.npz")

`keep` says which groups are worth training on, from their rewards alone.
"""

import functools
import hashlib
import json
import operator
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from vade_jax import atomic, fields, rng, samplers
from vade_jax.arrays import bucket, pad_rows
from vade_jax.losses import advantages
from vade_jax.samplers import per_item, ranking
from vade_jax.types import Feedback, Proposal


class Selector:
    """Chooses the items to roll out next, and learns from the number of right answers.

    With the same seed, the n-th `select` draws what step n of `trainer.loop` draws. Its result depends
    only on the seed, on n and on the observations so far. Any thread may call any method. It can be pickled
    and copied: a copy has its own state, and chooses what the original would have chosen.

    Args:
        items: the number of items, or a sequence of their unique ids. `select` returns ids and `observe`
            takes them. A saved state fits only the same ids in the same order.
        name: name of the selector, a key of `samplers.SAMPLERS` or path/to/file.py:NAME.
        seed: seed of all draws.
        arrays: values of every item that the selector's `init` takes, such as SEC's category.
        **options: the selector's hyperparameters.

    Attributes:
        needs: what the selector needs from its loop.
        filters: whether `keep` may drop a group, as that of DAPO does.

    Raises:
        ValueError: the name, an option or an array is unknown; the selector needs variants, the lengths of
            answers, a pass over all items before the first step, or several rounds a step; or the ids are
            not unique.
    """

    def __init__(
        self,
        items: int | Sequence[Hashable],
        name: str = "vade",
        *,
        seed: int = 0,
        arrays: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        seed, arrays = operator.index(seed), dict(arrays or {})
        arguments = {"name": name, "seed": seed, "arrays": arrays, **options}
        fields.SEED.check("seed", seed)
        spec = samplers.find(name, "name")
        if "seed" in spec.option_names:
            options = {"seed": seed, **options}
        self._functions = spec(**options)
        self.needs: samplers.Needs = self._functions.needs
        samplers.require(name, self.needs, arrays=arrays, lacks=("variants", "lengths"))
        self._ids = _plain(range(items) if isinstance(items, int | np.integer) else items)
        self._place = {name: i for i, name in enumerate(self._ids)}
        if not self._ids or len(self._place) < len(self._ids):
            raise ValueError(
                f"items: {len(self._ids)} ids, {len(self._place)} of them different: ids must be unique"
            )
        self.num_items, self.filters = len(self._ids), self._functions.drops
        # What a saved selector and the one that loads it must have in common
        self._identity: dict[str, Any] = {
            "name": name,
            "options": json.loads(json.dumps(spec.options.from_dict(options).to_dict())),
            "seed": seed,
            "items": self.num_items,
            "ids": _digest(self._ids),
            "arrays": {name: _digest(np.asarray(x)) for name, x in sorted(arrays.items())},
        }
        self._arguments = {"items": self._ids, **arguments}
        self._key = jax.random.key(seed)
        self._state = self._functions.init(len(self._ids), **arrays)
        self._selections = 0
        self._lock = threading.Lock()

    def __reduce__(self):
        return functools.partial(type(self), **self._arguments), (), self.state_dict()

    def select(self, batch_size: int) -> list:
        """Returns the ids of `batch_size` different items, in random order.

        Raises:
            ValueError: there are fewer items.
        """
        return [self._ids[i] for i in self.propose(batch_size).index_M]

    def propose(self, batch_size: int) -> Proposal:
        """Chooses items like `select`; returns their places among `items`.

        The proposal also says how many answers to roll out for each, and the factor on the advantages of each
        group, if the selector has one.
        """
        with self._lock:
            key = rng.step_keys(self._key, self._selections + 1).select
            proposal = self._functions.propose(self._state, key, operator.index(batch_size))
            self._selections += 1
        return jax.device_get(proposal)

    def observe(
        self,
        ids: Sequence[Hashable] | np.ndarray,
        correct: Sequence[float] | np.ndarray = (),
        trials: int | Sequence[int] | np.ndarray = 0,
        *,
        rewards: Sequence[float | None] | np.ndarray | None = None,
        threshold: float | Callable[[np.ndarray], Any] = 0.5,
    ) -> float:
        """Learns from the answers of one step. If an id occurs twice, its counts are added up.

        Args:
            ids: the items that were answered; they need not have been selected. MoPPS, ARCUS and VCRL
                take the number of ids as the batch size of the latest `select`, so give them that entire
                batch, with 0 trials if there is no answer. With `rewards`, the item of each answer.
            correct: number of right answers to each item; a fraction is a soft score.
            trials: number of valid answers to each item, or one number for all. With 0, nothing is
                learned about that item.
            rewards: instead of these counts, a reward for each answer; see `right_answers`.
            threshold: an answer is right if its reward is above it; or a function that decides.

        Returns:
            The share of items with right and wrong answers; NaN without items.

        Raises:
            KeyError: an unknown id.
            ValueError: lengths that differ, or counts outside [0, trials].
        """
        if rewards is not None:
            right_N = right_answers(rewards, threshold)
            correct, trials = np.nan_to_num(right_N), ~np.isnan(right_N)
        feedback = self._feedback(ids, correct, trials)
        if not len(feedback.index_M):
            return np.nan  # an empty observation is not a step: nothing decays
        with self._lock:
            self._state = self._functions.update(self._state, feedback)
        right_M, trials_M = feedback.successes_M, feedback.trials_M
        return float(np.mean((right_M > 0) & (right_M < trials_M)))

    def keep(
        self,
        ids: Sequence[Hashable],
        correct: Sequence[float] | np.ndarray,
        trials: int | Sequence[int] | np.ndarray,
    ) -> np.ndarray:
        """Returns bool [ids]: the groups that the selector would train on. It learns nothing from them.

        The rewards are taken to be 1 for a right answer and 0 for a wrong one. Only DAPO, GRESO and VCRL drop
        groups; VCRL needs the whole batch, before it is observed. Raises as `observe` does, and if an id
        occurs twice.
        """
        feedback = self._feedback(ids, correct, trials)
        if len(feedback.index_M) < len(ids):
            raise ValueError("ids: one occurs twice, and every group needs its own answer")
        with self._lock:
            keep_M = np.asarray(self._functions.keep(self._state, feedback))
        # The feedback is in the order of the items, the answer in that of the ids.
        return keep_M[np.searchsorted(feedback.index_M, self._places(ids))]

    def beliefs(self) -> dict[str, np.ndarray]:
        """Returns the selector's current estimates, one value per item in the order of the ids.

        A selector with a posterior gives "posterior_mean", the pass rate that it expects, and "prob_mixed",
        the probability that a group has right and wrong answers; VADE adds its counts "alpha" and "beta".
        Names with a slash are specific to a selector. Without a posterior, as with uniform, it is empty.
        """
        every_I = np.arange(len(self._ids), dtype=np.int32)
        proposal = ranking.same_num_rollouts(every_I, self._identity["options"]["num_rollouts"])
        with self._lock:
            return jax.device_get(self._functions.believe(self._state, proposal))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, and what identifies the selector, as numbers, texts, lists and dictionaries.

        So `torch.load` reads it with `weights_only=True`, its default, and JSON takes it.
        """
        identity, arrays = self._saved()
        return {**identity, "state": {name: x.tolist() for name, x in arrays.items()}}

    def _saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self._lock:
            arrays = {name: np.asarray(x) for name, x in per_item.leaves(self._state).items()}
            return {**self._identity, "selections": self._selections}, arrays

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned; lists may have become arrays or tensors.

        Raises:
            ValueError: `saved` was made by a selector with another name, options, seed or data set, or by
                another version of this package; the message names what differs.
        """
        now = per_item.leaves(self._state)
        arrays = {name: np.asarray(x) for name, x in saved["state"].items()}
        here = {**self._identity, "state": {name: x.shape for name, x in now.items()}}
        there = {**saved, "state": {name: x.shape for name, x in arrays.items()}}
        differing = [f"{x}: {there[x]} there, {here[x]} here" for x in here if there[x] != here[x]]
        if differing:
            raise ValueError("the saved selector differs (" + "; ".join(differing) + ")")
        leaves = [jax.numpy.asarray(arrays[name], x.dtype) for name, x in now.items()]
        with self._lock:
            self._state = jax.tree.unflatten(jax.tree.structure(self._state), leaves)
            self._selections = operator.index(saved["selections"])

    __setstate__ = load_state_dict  # of a pickle or a copy

    def save(self, path: str | os.PathLike) -> None:
        """Writes `state_dict` to one .npz file, atomically."""
        identity, arrays = self._saved()
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays, selector=json.dumps(identity))

    def load(self, path: str | os.PathLike) -> None:
        """Continues from what `save` wrote; ValueError as in `load_state_dict`."""
        with np.load(path) as file:
            arrays = dict(file)
        self.load_state_dict({**json.loads(str(arrays.pop("selector"))), "state": arrays})

    def _places(self, ids: Sequence[Hashable]) -> np.ndarray:
        return np.array([self._place[name] for name in _plain(ids)], np.int32)

    def _feedback(self, ids, correct, trials) -> Feedback:
        correct = np.asarray(correct, np.float32)
        trials = np.broadcast_to(np.asarray(trials, np.float64), correct.shape)
        possible = (correct >= 0) & (correct <= trials) & (trials % 1 == 0)
        if not possible.all():
            m = np.argmin(possible)
            raise ValueError(
                f"{ids[m]!r}: {correct[m]:g} right of {trials[m]:g} answers: give the number of right answers "
                "and of all"
            )
        # Groups of the same id are merged: an update takes every item once.
        index_M, slot = np.unique(self._places(ids), return_inverse=True)
        return counted(index_M, np.bincount(slot, correct), np.bincount(slot, trials).astype(int))


def keep(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable] | np.ndarray,
    *,
    tolerance: float = 1e-6,
) -> np.ndarray:
    """Returns bool [N]: the answers to train on, which are the valid ones of groups whose rewards differ.

    Where all valid answers of a group have the same reward, or only one is valid, all advantages are 0: with
    the group's mean as the baseline, and with the mean of the other answers (leave-one-out), which gives
    n / (n - 1) times as much. This holds for rewards of any kind, scale and mean. The decision is per
    group: all its valid answers are kept, or none.

    Args:
        rewards: [N] a reward for each answer; None, NaN or infinite if the answer is not valid. Leave out
            bonuses for length or format, or groups that differ only in these are kept.
        groups: [N] the group of each answer, a number or text; in any order, of any sizes. Several rows of
            one answer each have its reward.
        tolerance: rewards are equal if they differ by less than this, or than this share of the largest.
    """
    reward_N = np.asarray(rewards, np.float64)
    _, group_N = np.unique(np.asarray(groups), return_inverse=True)
    valid_N = np.isfinite(reward_N)
    highest_M, lowest_M = np.full((2, group_N.max(initial=-1) + 1), [[-np.inf], [np.inf]])
    np.maximum.at(highest_M, group_N[valid_N], reward_N[valid_N])
    np.minimum.at(lowest_M, group_N[valid_N], reward_N[valid_N])
    scale_M = np.maximum(1, np.maximum(np.abs(highest_M), np.abs(lowest_M)))
    return (highest_M - lowest_M > tolerance * scale_M)[group_N] & valid_N


def right_answers(rewards: Any, threshold: float | Callable[[np.ndarray], Any]) -> np.ndarray:
    """Returns 1 for each right answer, 0 for each wrong one, and NaN where there is no verdict.

    Args:
        rewards: [N], or whatever a function of them needs, such as [N, functions]. None, NaN: no verdict.
        threshold: an answer is right if its reward is above it; or a function of the rewards that returns
            1, 0, a fraction or NaN for each answer.
    """
    reward_N = np.asarray(rewards, np.float64)
    if callable(threshold):
        return np.asarray(threshold(reward_N), np.float64)
    return np.where(np.isnan(reward_N), np.nan, reward_N > threshold)


def _plain(ids: Any) -> list:
    """Returns ids from an array, or from a list of NumPy scalars, as plain Python values."""
    if hasattr(ids, "tolist"):
        return ids.tolist()
    return [name.item() if isinstance(name, np.generic) else name for name in ids]


def counted(index_M: np.ndarray, successes_M: np.ndarray, trials_M: np.ndarray) -> Feedback:
    """Returns the feedback for groups of which only the counts are known.

    Invalid answers pad the arrays to one of a few sizes; they do not change the result. Without padding,
    every new number of valid answers would compile a new program.
    """
    group_N = np.repeat(np.arange(len(index_M), dtype=np.int32), trials_M)
    first_M = np.cumsum(trials_M) - trials_M
    # The first answers of each group are the right ones; a soft count ends in one fraction.
    order_N = np.arange(len(group_N)) - first_M[group_N]
    correct_N = np.clip(successes_M[group_N] - order_N, 0, 1).astype(np.float32)
    num_answers = bucket(len(group_N), 64)
    valid_N = pad_rows(np.ones(len(group_N), bool), num_answers)
    group_N, correct_N = pad_rows(group_N, num_answers), pad_rows(correct_N, num_answers)
    advantage_N = advantages.group_normalized(
        correct_N, group_N, bucket(len(index_M), 8), valid_N=valid_N
    )
    return Feedback(
        index_M=index_M,
        successes_M=successes_M.astype(np.float32),
        trials_M=trials_M.astype(np.float32),
        group_N=group_N,
        reward_N=correct_N,
        correct_N=correct_N,
        advantage_N=np.asarray(advantage_N),
        length_N=valid_N.astype(np.int32),  # unused: selectors that need lengths are refused
        valid_N=valid_N,
    )


def _digest(values: Any) -> str:
    """Returns a checksum of ids, or of an array of values.

    A matrix is hashed by its bytes: as text, a million rows would take gigabytes.
    """
    is_matrix = getattr(values, "ndim", 1) > 1
    if is_matrix:
        content = np.ascontiguousarray(values, np.float32).tobytes()
    else:
        content = repr(_plain(values)).encode()
    return hashlib.sha256(content).hexdigest()[:16]
