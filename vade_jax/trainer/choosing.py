"""Which prompts a step rolls out next: the selector's proposal, made into prompts.

Reading items, decoding their images and building prompts takes as long as a small update. The posterior is
final once a step's answers are scored, so the loop has all of it done in a thread while the policy learns.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import jax
import numpy as np

from vade_jax import arrays, samplers
from vade_jax.data import loading
from vade_jax.types import Item, Prompt, Proposal

# (items with their images, proposal, key) -> the variants shown in their place, and the proposal with the
# difficulties that resulted in its `extra_M`.
Expand = Callable[[Sequence[Item], Proposal, jax.Array], tuple[Sequence[Item], Proposal]]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What one round rolls out."""

    proposal: Proposal
    items: Sequence[Item]  # without their images, which the prompts have
    prompts: Sequence[Prompt]
    seconds: float  # that choosing and building took, in whichever thread

    def identity(self) -> list[np.ndarray | list[str]]:
        """Returns what must be equal in all processes, each of which makes its own choice."""
        texts = [prompt.text for prompt in self.prompts]
        return [np.asarray(self.proposal.index_M), texts]


@dataclasses.dataclass(frozen=True)
class ChoosePrompts:
    """Asks the selector and builds the prompts.

    Attributes:
        selector: the selector's functions.
        items: the data set.
        build_prompt: item -> prompt.
        map: maps a function over items, such as in threads.
        expand: makes variants, for a selector that asks for them.
    """

    selector: samplers.Sampler
    items: Sequence[Item]
    build_prompt: Callable[[Item], Prompt]
    map: loading.Map = loading.in_turn
    expand: Expand | None = None

    def __call__(
        self,
        posterior: samplers.State,
        key: jax.Array,
        num_prompts: int,
        used: AbstractSet[int] = frozenset(),
    ) -> Chosen:
        """Returns what a round rolls out, chosen by the posterior before it.

        Args:
            posterior: the selector's state.
            key: of its draws.
            num_prompts: how many; fewer, or none, where the data has not as many that are unused.
            used: items that this step has rolled out already; none of them comes again.
        """
        start = time.perf_counter()
        proposal = self._propose(posterior, key, num_prompts, used)
        read = self._reader(proposal)
        if self.expand is not None:
            items = self.map(read, range(len(proposal.index_M)))
            shown, proposal = self.expand(items, proposal, key)
            read = shown.__getitem__
        return self._build(proposal, read, start)

    def again(self, proposal: Proposal) -> Chosen:
        """Returns what was rolled out for a proposal; variants are drawn, so theirs cannot be had again."""
        assert self.expand is None
        return self._build(proposal, self._reader(proposal), time.perf_counter())

    def everything(self, batch: range, num_rollouts: int) -> Chosen:
        """Returns a batch of items in the order of the data, without asking the selector."""
        proposal = Proposal(
            index_M=np.array(batch, np.int32),
            num_rollouts_M=np.full(len(batch), num_rollouts, np.int32),
        )
        return self._build(proposal, self._reader(proposal), time.perf_counter())

    def _reader(self, proposal):
        return lambda m: self.items[int(proposal.index_M[m])]

    def _build(self, proposal, read, start) -> Chosen:
        """Builds the prompts of the items that `read` gives of the places in `proposal`."""

        def build(m):
            item = read(m)
            # A decoded image takes megabytes: it lives on in the prompt alone, cut to size.
            return item.without_images(), self.build_prompt(item)

        made = self.map(build, range(len(proposal.index_M)))
        return Chosen(
            proposal=proposal,
            items=[item for item, _ in made],
            prompts=[prompt for _, prompt in made],
            seconds=time.perf_counter() - start,
        )

    def _propose(self, posterior, key, num_prompts, used) -> Proposal:
        """Returns the selector's choice among the items that are not used.

        A selector does not know what its step has used. If it names used items, it is asked again
        with the same key, so with the same draws, for so many that enough others are left. The
        number is one of few sizes, because each compiles. That larger batch is in random order, so the
        places that used items leave are filled at random from it: not strictly by the next best.
        """

        def ask(number):
            if not self.selector.needs.variants:  # whose places are more than its items
                number = min(number, len(self.items))
            proposal = jax.device_get(self.selector.propose(posterior, key, number))
            self._check(proposal, number)
            return proposal

        proposal = ask(num_prompts)
        first = _without(used, proposal)
        if len(first.index_M) == len(proposal.index_M):
            return proposal
        more = ask(arrays.bucket(len(used) + num_prompts, 1))
        more = _without(used | set(first.index_M.tolist()), more)
        return jax.tree.map(lambda a, b: np.concatenate([a, b])[:num_prompts], first, more)

    def _check(self, proposal: Proposal, num_prompts: int) -> None:
        """Raises ValueError if a selector, which may be a user's own, breaks its contract."""
        index_M, num_M = proposal.index_M, proposal.num_rollouts_M
        sizes = (num_prompts,) if not self.selector.needs.variants else index_M.shape
        if index_M.shape != sizes or num_M.shape != sizes or index_M.dtype.kind != "i":
            raise ValueError(
                f"the selector proposed {index_M.dtype}{list(index_M.shape)} with answers for "
                f"{list(num_M.shape)}: give int32 indices of {num_prompts} items, and a number for each"
            )
        is_inside = np.all((index_M >= 0) & (index_M < len(self.items)))
        is_repeated = len(np.unique(index_M)) < len(index_M) and not self.selector.needs.variants
        if not is_inside or is_repeated or (num_M < 1).any():
            raise ValueError(
                f"the selector proposed the items {index_M[:20].tolist()} with {num_M[:20].tolist()} answers: "
                f"give different indices from 0 to {len(self.items) - 1}, and 1 answer or more to each"
            )


def _without(used: AbstractSet[int], proposal: Proposal) -> Proposal:
    unused_M = np.array([int(i) not in used for i in proposal.index_M], bool)
    return jax.tree.map(lambda x: x[unused_M], proposal)
