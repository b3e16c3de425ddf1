"""A selector as one small object, for training loops outside this package.

selector = Selector(len(dataset), seed=0)
for step in range(num_steps):
    ids = selector.select(32)
    ...  # roll out 8 answers to each, train
    selector.observe(ids, correct=num_right, trials=8)
    selector.save("selector.npz")
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
from vade_jax.types import Feedback

FORMAT = 1  # version of the saved state
_REMADE = ("_functions", "_place", "_identity", "_key", "_state", "_lock")  # left out of a pickle


def _in_32_bits(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that computes in 32 bits, as in a run, even if JAX_ENABLE_X64 is set."""

    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(False):
            return method(*args, **kwargs)

    return wrapped


class Selector:
    """Chooses the items to roll out next, and learns from the number of right answers.

    With the same seed, the n-th `select` draws what step n of `trainer.loop` draws. Its result depends
    only on the seed, on n and on the observations so far. Any thread may call any method. It can be pickled
    and copied: a copy has a state of its own, and chooses what the original would have chosen.

    Args:
        items: the number of items, or a sequence of their unique ids. `select` returns ids and `observe`
            takes them. A saved state fits only the same ids in the same order.
        name: name of the selector, a key of `samplers.SAMPLERS` or path/to/file.py:NAME.
        seed: seed of all draws.
        arrays: values of every item that the selector's `init` takes, such as SEC's category.
        **options: the selector's hyperparameters.

    Raises:
        ValueError: the name, an option or an array is unknown; the selector needs variants, weights, a
            pass over all items before the first step, or several rounds a step; or the ids are not unique.
    """

    @_in_32_bits
    def __init__(
        self,
        items: int | Sequence[Hashable],
        name: str = "vade",
        *,
        seed: int = 0,
        arrays: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        seed, self._arrays = operator.index(seed), dict(arrays or {})
        fields.SEED.check("seed", seed)
        spec = samplers.find(name, "name")
        options = _with_seed(spec, options, seed)
        self._functions = spec(**options)
        samplers.require(name, self.needs, arrays=self._arrays, lacks=("variants", "weights"))
        self._ids = _unique(items)
        self._place = {name: i for i, name in enumerate(self._ids)}
        self._identity = _identity(spec, name, options, seed, self._ids, self._arrays)
        self._key = jax.random.key(seed)
        self._state = self._functions.init(len(self._ids), **self._arrays)
        self._selections = 0
        self._lock = threading.Lock()

    def select(self, batch_size: int) -> list:
        """Returns the ids of `batch_size` different items, in random order.

        Raises:
            ValueError: there are fewer items.
        """
        return self.propose(batch_size)[0]

    @_in_32_bits
    def propose(self, batch_size: int) -> tuple[list, np.ndarray]:
        """Chooses items like `select`; returns their ids and how many answers to roll out for each."""
        with self._lock:
            key = rng.step_keys(self._key, self._selections + 1).select
            proposal = self._functions.propose(self._state, key, operator.index(batch_size))
            self._selections += 1
        ids = [self._ids[int(i)] for i in proposal.index_M]
        return ids, np.asarray(proposal.num_rollouts_M)

    @_in_32_bits
    def observe(
        self,
        ids: Sequence[Hashable],
        correct: Sequence[float],
        trials: int | Sequence[int],
        tokens: Sequence[float] | None = None,
    ) -> None:
        """Learns from the answers of one step. If an id occurs twice, its counts are added up.

        Args:
            ids: the items that were answered; they need not have been selected. MoPPS, ARCUS and VCRL
                take the number of ids for the batch size of the latest `select`, so give them that whole
                batch, with 0 trials where no answer came.
            correct: number of right answers to each item; a fraction is a soft score.
            trials: number of valid answers to each item, or one number for all. With 0, nothing is
                learned about that item.
            tokens: of the valid answers to each item, all together; only a selector that scores by the
                length of answers needs them.

        Raises:
            ValueError: an unknown id, lengths that differ, counts outside [0, trials], or tokens are needed.
        """
        feedback = self._feedback(ids, correct, trials, tokens)
        if not len(feedback.index_M):
            return  # an empty observation is not a step: nothing decays
        with self._lock:
            self._state = self._functions.update(self._state, feedback)

    @property
    def needs(self) -> samplers.Needs:
        """What the selector needs from its loop."""
        return self._functions.needs

    @property
    def filters(self) -> bool:
        """Whether `keep` may drop a group, as that of DAPO does."""
        return self._functions.drops

    @_in_32_bits
    def keep(
        self, ids: Sequence[Hashable], correct: Sequence[float], trials: int | Sequence[int]
    ) -> np.ndarray:
        """Returns bool [ids]: the groups that the selector would train on. It learns nothing from them.

        The rewards are taken to be 1 for a right answer and 0 for a wrong one. Only DAPO, GRESO and VCRL drop
        groups; VCRL needs the whole batch, before it is observed. Raises ValueError as `observe` does.
        """
        ids = _plain(ids)
        # A token an answer: `keep` asks for no lengths.
        feedback = self._feedback(ids, correct, trials, np.broadcast_to(trials, len(ids)))
        if len(feedback.index_M) < len(ids):
            raise ValueError("ids: one occurs twice, and every group needs an answer of its own")
        if not ids:
            return np.zeros(0, bool)
        with self._lock:
            keep_M = self._functions.keep(self._state, feedback)
        # The feedback is in the order of the items, the answer in that of the ids.
        order = np.searchsorted(feedback.index_M, [self._place[name] for name in ids])
        return np.asarray(keep_M)[order]

    @_in_32_bits
    def beliefs(self) -> dict[str, np.ndarray]:
        """Returns what the selector thinks of every item now, one value an item in the order of the ids.

        A selector with a posterior gives "posterior_mean", the pass rate that it expects, and "prob_mixed",
        the probability that a group has right and wrong answers; VADE adds its counts "alpha" and "beta".
        Names with a slash are a selector's own. Without a posterior, as with uniform, it is empty.
        """
        every_I = np.arange(len(self._ids), dtype=np.int32)
        proposal = ranking.same_num_rollouts(every_I, self._identity["options"]["num_rollouts"])
        with self._lock:
            belief = self._functions.believe(self._state, proposal)
        return {name: np.asarray(value) for name, value in belief.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Returns what pickle and copy keep: arguments, the `state_dict`, and what a subclass has added."""
        kept = {name: value for name, value in vars(self).items() if name not in _REMADE}
        return {**kept, "saved": self.state_dict()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        saved = kept.pop("saved")
        vars(self).update(kept)
        arguments = {**saved["options"], "name": saved["name"], "seed": saved["seed"]}
        Selector.__init__(self, kept["_ids"], arrays=kept["_arrays"], **arguments)
        self.load_state_dict(saved)

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

    @_in_32_bits
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned; lists may have become arrays or tensors.

        Raises:
            ValueError: `saved` is damaged, or was made by a selector with another name, seed, data set or
                version; the message names what differs.
        """
        try:
            if saved["format"] != FORMAT:
                raise ValueError(
                    f"its format is not {FORMAT}: another version of vade_jax wrote it"
                )
            defaults = _plain_options(samplers.find(self._identity["name"], "name"), {})
            here = _one_by_one(self._identity)
            # An option that is newer than the saved state had its default.
            there = _one_by_one({**saved, "options": defaults | dict(saved["options"])})
            differing = [
                f"{x}: {there[x]!r} there, {here[x]!r} here" for x in here if there[x] != here[x]
            ]
            if differing:
                raise ValueError("it is another one (" + "; ".join(differing) + ")")
            state, selections = saved["state"], operator.index(saved["selections"])
            now = per_item.leaves(self._state)
            if state.keys() != now.keys() or selections < 0:
                raise ValueError(f"damaged, with {selections} selections and {sorted(state)}")
            arrays = [_like(x, name, state[name]) for name, x in now.items()]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the saved selector cannot be continued: {error}") from error
        with self._lock:
            self._state = jax.tree.unflatten(jax.tree.structure(self._state), arrays)
            self._selections = selections

    def save(self, path: str | os.PathLike) -> None:
        """Writes `state_dict` to one .npz file, atomically."""
        identity, arrays = self._saved()
        with atomic.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays, selector=json.dumps(identity))

    def load(self, path: str | os.PathLike) -> None:
        """Continues from what `save` wrote; ValueError as in `load_state_dict`, or if it is another file."""
        try:
            with np.load(path) as file:
                arrays = dict(file)
            saved = dict(json.loads(str(arrays.pop("selector"))))
        except FileNotFoundError:
            raise
        # NumPy and zipfile raise many kinds of errors for a damaged file.
        except Exception as error:
            raise ValueError(f"{path} is not a saved selector: {error}") from error
        self.load_state_dict({**saved, "state": arrays})

    def _feedback(self, ids, correct, trials, tokens) -> Feedback:
        ids = _plain(ids)
        if unknown := [name for name in ids if name not in self._place]:
            raise ValueError(f"ids: {unknown[0]!r} is none of the {len(self._ids)} items")
        try:
            correct, trials = np.asarray(correct, np.float32), np.asarray(trials, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"correct and trials have to be numbers: {error}") from error
        if correct.shape != (len(ids),) or trials.shape not in ((), correct.shape):
            raise ValueError(
                f"correct has shape {correct.shape}, trials {trials.shape}: give one of {len(ids)} ids"
            )
        trials = np.broadcast_to(trials, correct.shape)
        is_whole = np.isfinite(trials) & (trials == np.trunc(trials))
        for m in np.flatnonzero(~((correct >= 0) & (correct <= trials) & is_whole)):
            raise ValueError(
                f"{ids[m]!r}: {correct[m]:g} right of {trials[m]:g} answers: give the number of right answers "
                "and of all"
            )
        tokens = self._tokens(ids, trials, tokens)
        # Groups of the same id are merged: an update takes every item once.
        places, slot = np.unique([self._place[name] for name in ids], return_inverse=True)
        total = lambda x: np.bincount(slot, x)
        return _counted(places, total(correct), total(trials).astype(int), total(tokens))

    def _tokens(self, ids, trials, tokens) -> np.ndarray:
        """Returns the tokens of the answers to each item; 1 an answer if none are given nor needed."""
        if tokens is None:
            if self.needs.lengths:
                raise ValueError(
                    "tokens: this selector needs those of all valid answers to each id"
                )
            return trials
        tokens = np.asarray(tokens, np.float64)
        if tokens.shape != trials.shape or not np.all((tokens >= trials) & (tokens < 2**31)):
            raise ValueError(f"tokens: give {len(ids)} numbers, at least one token for each answer")
        return np.where(trials > 0, tokens, 0)


def _like(array: Any, name: str, values: Any) -> jax.Array:
    """Returns saved values, such as a list, as an array like `array`; ValueError if it cannot hold them."""
    saved = np.asarray(values)
    here = saved.astype(array.dtype)
    if here.shape != array.shape or not np.array_equal(here, saved, equal_nan=True):
        raise ValueError(
            f"{name} is {saved.dtype}{list(saved.shape)}, not {array.dtype}{list(array.shape)}"
        )
    return jax.numpy.asarray(here)


def _with_seed(spec: samplers.Spec, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Returns the options, and the seed for a selector that has such an option."""
    return {**({"seed": seed} if "seed" in spec.option_names else {}), **options}


def _plain_options(spec: samplers.Spec, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a selector, defaults included, as plain JSON values."""
    as_json = lambda x: dict(x) if isinstance(x, Mapping) else _plain(x)
    return json.loads(json.dumps(spec.options.from_dict(options).to_dict(), default=as_json))


def _one_by_one(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an identity with one entry per option, so that messages name the option that differs."""
    options = {f"options.{name}": value for name, value in identity["options"].items()}
    return {**identity, "options": None, **options}


def _unique(items: int | Sequence[Hashable]) -> Sequence[Hashable]:
    if isinstance(items, set | frozenset):
        raise ValueError("items is a set, which has no order of its own: give a list")
    ids = range(int(items)) if isinstance(items, int | np.integer) else _plain(items)
    if not len(ids) or len(set(ids)) < len(ids):
        raise ValueError(
            f"items: {len(ids)} ids, {len(set(ids))} of them different: give different ones"
        )
    return ids


def _plain(ids: Any) -> list:
    """Returns ids from an array, or from a list of NumPy scalars, as plain Python values."""
    if hasattr(ids, "tolist"):
        return ids.tolist()
    return [name.item() if isinstance(name, np.generic) else name for name in ids]


def _counted(index_M, successes_M, trials_M, token_M) -> Feedback:
    """Returns the feedback for groups of which only the counts, and the tokens of all answers, are known.

    Invalid answers pad the arrays to one of a few sizes; they do not change the result. Without padding,
    every new number of valid answers would compile a new program.
    """
    group_N = np.repeat(np.arange(len(index_M), dtype=np.int32), trials_M)
    first_M = np.cumsum(trials_M) - trials_M
    # The first answers of each group are the right ones; a soft count ends in one fraction.
    order_N = np.arange(len(group_N)) - first_M[group_N]
    correct_N = np.clip(successes_M[group_N] - order_N, 0, 1).astype(np.float32)
    # All answers of a group are taken to be as long; the first ones take what is left over.
    each_M, over_M = np.divmod(token_M.astype(np.int64), np.maximum(trials_M, 1))
    length_N = (each_M[group_N] + (order_N < over_M[group_N])).astype(np.int32)
    valid_N = np.ones(len(group_N), bool)
    num_answers = bucket(len(group_N), 64)
    group_N, correct_N, length_N, valid_N = (
        pad_rows(x_N, num_answers) for x_N in (group_N, correct_N, length_N, valid_N)
    )
    advantage_N = advantages.group_normalized(
        correct_N, group_N, bucket(len(index_M), 8), valid_N=valid_N
    )
    return Feedback(
        index_M=index_M.astype(np.int32),
        successes_M=successes_M.astype(np.float32),
        trials_M=trials_M.astype(np.float32),
        group_N=group_N,
        reward_N=correct_N,
        correct_N=correct_N,
        advantage_N=np.asarray(advantage_N),
        length_N=length_N,
        valid_N=valid_N,
    )


def _identity(spec, name, options, seed, ids, arrays) -> dict[str, Any]:
    """Returns what a saved selector must have in common with the one that continues it."""
    return {
        "format": FORMAT,
        "name": name,
        "options": _plain_options(spec, options),
        "seed": seed,
        "items": len(ids),
        "ids": _digest(ids),
        "arrays": {name: _digest(np.asarray(x)) for name, x in sorted(arrays.items())},
    }


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
