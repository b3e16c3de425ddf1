"""The update on a real (two-layer) model and on a table of logits, against NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.models.qwen import inputs
from tests.trainer import small
from vade_jax import settings
from vade_jax.models import logprobs
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.trainer import learner, minibatches, update
from vade_jax.types import Batch, TrainState

UNEVEN = np.array([3, 8, 1, 5])
TEMPERATURE = 0.7
SGD = optax.sgd(0.05)
model_logp = update.make_logp(
    small.merge, temperature=TEMPERATURE, banned=small.BANNED, chunk=16, remat=False
)
compiled = jax.jit(
    update.make(model_logp, update.group_rl(small.GRPO), SGD),
    donate_argnums=0,
    compiler_options=small.FAST,
)
score = jax.jit(update.make_logprobs(model_logp), compiler_options=small.FAST)


def start(params, optimizer=SGD):
    """A state that owns its memory: the update takes it."""
    params = jax.tree.map(jnp.copy, params)
    return TrainState(params=params, opt_state=optimizer.init(params), step=jnp.int32(0))


def split(rollouts, advantage_N, micro=2, **shape):
    """Four prompts as one update, `micro` of them at a time; the reference is another policy."""
    shape = {"prompts_per_minibatch": 4, "prompts_per_microbatch": micro, **shape}
    (batch,) = small.split(small.prompts(4), rollouts, advantage_N, **shape)
    return batch.replace(ref_logp_NT=batch.old_logp_NT - 0.5)


def assert_close(got, want, atol=1e-6):
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=atol, rtol=0, err_msg=jax.tree_util.keystr(path))


# ------------------------------------------------------------------------------ oracles
def numpy_loss(loss, logp_NT, old_NT, ref_NT, advantage_N, mask_NT):
    """The objective answer by answer, token by token, in float64."""
    num_tokens, num_sequences = mask_NT.sum(), mask_NT.any(1).sum()
    total = 0.0
    for n in np.flatnonzero(mask_NT.any(1)):
        inside = mask_NT[n] > 0
        log_ratio = (logp_NT[n] - old_NT[n])[inside].astype(np.float64)
        if loss.ratio == "sequence":
            log_ratio = np.full_like(log_ratio, log_ratio.mean())
        r, a = np.exp(log_ratio), advantage_N[n]
        clipped = np.clip(r, 1 - loss.clip_low, 1 + loss.clip_high)
        x = (ref_NT[n] - logp_NT[n])[inside].astype(np.float64)
        token_T = np.maximum(-a * r, -a * clipped)
        token_T = token_T + loss.kl_coef * np.minimum(np.exp(x) - x - 1, 10)
        if loss.aggregate == "token-mean":
            total += token_T.sum() / num_tokens
        else:
            total += token_T.mean() / num_sequences
    return total


@functools.partial(jax.jit, compiler_options=small.FAST)
def plain_logp(params, rows, token_NT):
    """One plain row per answer: its prompt, then its tokens; full logits."""
    qwen, T = small.merge(params), token_NT.shape[1]
    index_NT = rows.length_M[:, None] - T - 1 + jnp.arange(T)
    hidden = jnp.take_along_axis(qwen.hidden(rows), index_NT[..., None], 1)
    logits = qwen.logits(hidden).at[..., jnp.array(small.BANNED)].set(-jnp.inf)
    logp = jax.nn.log_softmax(logits / TEMPERATURE)
    return jnp.take_along_axis(logp, token_NT[..., None], -1)[..., 0]


def plain(params, rollouts):
    batch = inputs.batch(small.examples(4), small.SHAPE.image_token_id, length=32)
    rows = inputs.join(batch, rollouts.token_NT, rollouts.group_N)
    return np.asarray(plain_logp(params, rows, rollouts.token_NT))


# ------------------------------------------------------------------------------ a table of logits
TABLE = np.random.default_rng(1).normal(size=512).astype(np.float32)


def table_logp(params, batch):
    """A policy that says token v with probability softmax(w)[v], wherever it stands."""
    logp_V = jax.nn.log_softmax(params["w"])
    entropy_NT = jnp.broadcast_to(-jnp.sum(jnp.exp(logp_V) * logp_V), batch.token_NT.shape)
    return logprobs.Tokens(logp_V[batch.token_NT], entropy_NT)


@pytest.mark.parametrize("loss", [small.GRPO, small.GSPO], ids=["grpo", "gspo"])
def test_microbatches_equal_one_big_batch(loss):
    rollouts = small.rollouts(UNEVEN)
    advantage_N = small.advantages(17)
    step = jax.jit(update.make(table_logp, update.group_rl(loss), SGD))
    state = start({"w": jnp.asarray(TABLE)})
    one, metrics = step(state, split(rollouts, advantage_N, 4))
    for micro in (1, 2):
        more, more_metrics = step(state, split(rollouts, advantage_N, micro))
        assert_close(more.params, one.params)
        assert_close(more_metrics, metrics, 2e-6)


def test_entropy_is_the_mean_over_tokens_that_count_and_the_rate_is_the_schedules():
    """Each token has the entropy of its number; two micro-batches, at the fourth update."""

    def logp(params, batch):
        entropy_NT = jnp.asarray(batch.token_NT, jnp.float32)
        return logprobs.Tokens(entropy_NT * params["w"], entropy_NT)

    rollouts = small.rollouts(UNEVEN)
    step = update.make(logp, update.group_rl(small.GRPO), SGD, learning_rate=lambda t: 0.5 * t)
    state = start({"w": jnp.float32(-0.01)}).replace(step=jnp.int32(3))
    _, metrics = jax.jit(step)(state, split(rollouts, small.advantages(17)))
    mask_NT = minibatches.answer_mask(rollouts)
    expected = (rollouts.token_NT * mask_NT).sum() / mask_NT.sum()
    np.testing.assert_allclose(metrics["actor/entropy"], expected, rtol=1e-5)
    assert metrics["actor/lr"] == 1.5


@pytest.mark.parametrize("objective", [small.GRPO, small.GSPO], ids=["grpo", "gspo"])
def test_loss_and_gradient_are_those_of_numpy(objective):
    """A step over its rate, less the decay of the weights, against central differences of the NumPy loss."""
    rollouts, advantage_N = small.rollouts(UNEVEN), small.advantages(17)
    table = TABLE.astype(np.float64)

    def loss(w):
        logp_V = w - np.log(np.exp(w).sum())
        return numpy_loss(
            objective,
            logp_V[rollouts.token_NT],
            rollouts.logp_NT,
            rollouts.logp_NT - 0.5,
            advantage_N,
            minibatches.answer_mask(rollouts),
        )

    optimizer = optax.chain(optax.add_decayed_weights(0.1), SGD)
    step = jax.jit(update.make(table_logp, update.group_rl(objective), optimizer))
    after, metrics = step(start({"w": jnp.asarray(TABLE)}, optimizer), split(rollouts, advantage_N))
    np.testing.assert_allclose(metrics["actor/loss"], loss(table), rtol=1e-5)
    gradient_V = (table - np.asarray(after.params["w"])) / 0.05 - 0.1 * table
    for v in np.unique(rollouts.token_NT)[:12]:
        nudge = 1e-5 * np.eye(512)[v]
        slope = (loss(table + nudge) - loss(table - nudge)) / 2e-5
        np.testing.assert_allclose(gradient_V[v], slope, atol=1e-5)
    np.testing.assert_allclose(metrics["actor/grad_norm"], np.linalg.norm(gradient_V), rtol=1e-4)


def test_counts_are_of_all_microbatches_and_of_sequences_with_a_token():
    mask_ANT = np.array([[[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [1, 1, 1]]], np.float32)
    assert update.count(mask_ANT) == (6, 3)


def test_over_minibatches_a_largest_is_the_largest_and_the_engine_is_compared_once():
    history = [{"a": x, "b_max": x, "training/c": x} for x in (1.0, 4.0, 1.0)]
    found = learner._mean_over_minibatches(history)
    assert found == {"a": 2.0, "b_max": 4.0, "training/c": 1.0}


# ------------------------------------------------------------------------------ the real model
@functools.cache
def reference():
    """One step on uneven groups, micro-batches of two prompts."""
    rollouts, advantage_N = small.rollouts(UNEVEN), small.advantages(17)
    state, metrics = compiled(start(small.params()), split(rollouts, advantage_N))
    return rollouts, advantage_N, state, metrics


def test_compiled_once_over_steps_that_change_data_and_its_state_is_donated():
    state = jax.tree.map(jnp.copy, reference()[2])
    old = jax.tree.leaves(state)
    assert compiled._cache_size() <= 2  # the two layouts of this file
    before = compiled._cache_size()
    for seed, sizes in enumerate(([3, 8, 1, 5], [8, 3, 4, 2], [1, 8, 4, 6])):
        rollouts = small.rollouts(np.array(sizes), seed=seed)
        batch = split(rollouts, small.advantages(sum(sizes), seed))
        state, metrics = compiled(state, batch)
        assert np.isfinite(metrics["actor/loss"])
    assert compiled._cache_size() == before
    assert all(leaf.is_deleted() for leaf in old)
    assert state.step == 4


def test_invalid_answers_and_dropped_groups_have_no_influence():
    """Group 1 and answer 12 do not count: whatever they hold, banned tokens too."""
    rollouts, advantage_N, _, _ = reference()
    gone_N = (rollouts.group_N == 1) | (np.arange(17) == 12)
    states = []
    for token, logp, advantage in ((5, -1.0, 2.0), (small.BANNED[3], -40.0, 1e4)):
        other = rollouts.replace(
            token_NT=np.where(gone_N[:, None], token, rollouts.token_NT),
            logp_NT=np.where(gone_N[:, None], logp, rollouts.logp_NT).astype(np.float32),
            valid_N=~gone_N,
        )
        batch = split(other, np.where(gone_N, advantage, advantage_N))
        states.append(compiled(start(small.params()), batch))
    # A GPU adds the gradients of a token's embeddings in any order, so even equal updates differ in rounding.
    assert_close(states[1], states[0], 0 if jax.default_backend() == "cpu" else 1e-7)
    expected = numpy_loss(
        small.GRPO,
        plain(small.params(), rollouts),
        rollouts.logp_NT,
        rollouts.logp_NT - 0.5,
        advantage_N,
        minibatches.answer_mask(rollouts) * ~gone_N[:, None],
    )
    np.testing.assert_allclose(states[0][1]["actor/loss"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("loss", "level"), [(small.GRPO, ""), (small.GSPO, "geometric"), (small.GRPO, "token")]
)
def test_banned_tokens_of_masked_answers_leave_the_update_finite(loss, level):
    """The log-prob of a banned token is -inf, also the engine's, and -inf x 0 is not 0."""

    def logp(params, batch):
        logp_NT = jnp.where(batch.token_NT == 7, -jnp.inf, params["w"])
        return logprobs.Tokens(logp_NT, jnp.zeros(logp_NT.shape))

    rollouts, is_banned_N1 = small.rollouts(UNEVEN), np.arange(17)[:, None] == 3
    rollouts = rollouts.replace(
        token_NT=np.where(is_banned_N1, 7, np.full((17, 5), 5, np.int32)),
        logp_NT=np.where(is_banned_N1, -np.inf, rollouts.logp_NT),
        valid_N=np.arange(17) != 3,
    )
    loss = dataclasses.replace(loss, importance=level)
    learn = learner.Learner(
        update=jax.jit(update.make(logp, update.group_rl(loss), SGD)),
        logprobs=jax.jit(lambda params, frozen, batch: update.make_logprobs(logp)(params, batch)),
        split=SPLIT,
        reference={"w": jnp.full(5, -5.0)},
        old_logp="trainer" if level else "behaviour",
    )
    start_state = start({"w": jnp.full(5, -6.0)})
    state, metrics = learn(start_state, small.prompts(4), rollouts, small.advantages(17))
    assert np.isfinite([*state.params["w"], *metrics.values()]).all(), metrics


def test_groups_of_one_row_and_of_two_equal_plain_rows():
    """The gradient of the model, against one row an answer; the first and the last group have two rows."""
    rollouts, advantage_N = small.rollouts([8, 3, 1, 5]), small.advantages(17)
    batch = inputs.batch(small.examples(4), small.SHAPE.image_token_id, length=32)
    rows = inputs.join(batch, rollouts.token_NT, rollouts.group_N)
    mask_NT = minibatches.answer_mask(rollouts)
    flat = Batch(
        prompts=None,
        token_NT=rollouts.token_NT,
        mask_NT=mask_NT,
        advantage_N=advantage_N,
        rollout_logp_NT=rollouts.logp_NT,
        old_logp_NT=rollouts.logp_NT,
        ref_logp_NT=rollouts.logp_NT - 0.5,
    )
    objective, totals = update.group_rl(small.GRPO), update.count(mask_NT[None])

    def loss(params):
        logp_NT = plain_logp.__wrapped__(params, rows, rollouts.token_NT)
        return objective(jnp.where(mask_NT > 0, logp_NT, 0), flat, totals)[0]

    plain = jax.jit(jax.value_and_grad(loss), compiler_options=small.FAST)
    value, gradient = plain(small.params())
    state, metrics = compiled(start(small.params()), split(rollouts, advantage_N))
    np.testing.assert_allclose(metrics["actor/loss"], value, rtol=1e-5)
    ours = jax.tree.map(lambda a, b: (a - b) / 0.05, small.params(), state.params)
    norm = float(metrics["actor/grad_norm"])
    assert norm > 0.1
    assert_close(ours, gradient, atol=1e-4 * norm)


# ------------------------------------------------------------------------------ with the engine
def test_behaviour_logps_are_the_trainers_also_after_an_update():
    engine = LocalEngine(
        small.merge,
        small.params(),
        sampling=Sampling(temperature=TEMPERATURE, max_tokens=5),
        stop_ids=small.STOP,
        banned_ids=small.BANNED,
        answers_per_row=4,
        prompts_per_call=4,
        length_multiple=32,
    )
    state = start(small.params())
    for version in range(2):
        rollouts = engine.generate(small.prompts(), UNEVEN, jax.random.key(version), version)
        batch = split(rollouts, small.advantages(17))
        logp_ANT = score(state.params, batch) * batch.mask_NT
        np.testing.assert_allclose(logp_ANT, batch.old_logp_NT, atol=1e-5)
        assert batch.mask_NT.sum() == rollouts.length_N.sum()
        state, metrics = compiled(state, batch)
        np.testing.assert_allclose(metrics["actor/ppo_kl"], 0, atol=1e-6)
        engine.sync(state.params, version + 1)


# ------------------------------------------------------------------------------ a whole step
# Update and score write down what they were given.
SPLIT = functools.partial(
    minibatches.split,
    prompts_per_minibatch=2,
    prompts_per_microbatch=1,
    answers_per_row=4,
    length_multiple=32,
)


class Journal:
    def __init__(self):
        self.updates, self.scores = [], []

    def update(self, state, batch):
        self.updates.append(batch)
        metrics = {
            "actor/loss": jnp.float32(len(self.updates)),
            "actor/x": jnp.float32(3),
        }
        return state.replace(params=state.params + 1, step=state.step + 1), metrics

    def score(self, params, frozen, batch):
        self.scores.append(params)
        return np.full(batch.old_logp_NT.shape, float(params), np.float32)


def run_learner(num_prompts=4, invalid=(), cut_off=None, equal=(), **options):
    journal = Journal()
    learn = learner.Learner(update=journal.update, logprobs=journal.score, split=SPLIT, **options)
    rollouts = small.rollouts([4] * num_prompts)
    rollouts = rollouts.replace(valid_N=~np.isin(rollouts.group_N, invalid))
    if cut_off is not None:
        rollouts = rollouts.replace(finished_N=~cut_off)
    state = TrainState(params=-1, opt_state=(), step=jnp.int32(0))
    prompts, advantage_N = small.prompts(num_prompts), small.advantages(4 * num_prompts)
    advantage_N[np.isin(rollouts.group_N, equal)] = 0
    state, metrics = learn(state, prompts, rollouts, advantage_N)
    return journal, rollouts, state, metrics


def test_an_update_a_minibatch_and_the_mean_of_their_metrics():
    journal, rollouts, state, metrics = run_learner()
    assert len(journal.updates) == 2 and journal.scores == []
    assert (state.step, state.params) == (2, 1)
    mean = {name: x for name, x in metrics.items() if name.startswith("actor/")}
    assert mean == {"actor/loss": 1.5, "actor/x": 3.0, "actor/updates": 2}
    assert all(isinstance(value, float | int) for value in metrics.values())
    old = np.concatenate([b.old_logp_NT.reshape(8, 5) for b in journal.updates])
    np.testing.assert_array_equal(old, rollouts.logp_NT)  # the engine's


@pytest.mark.parametrize(
    ("old_logp", "equal", "invalid", "updates"),
    [
        ("behaviour", (0, 1), (), [1]),  # prompts 0 and 1 are the first of two mini-batches
        ("trainer", (0, 1), (), [1]),
        ("behaviour", (0, 2, 3), (), [0]),  # of prompt 1 alone an answer may still teach
        ("trainer", range(4), (), []),
        ("behaviour", (), (0, 1), [1]),
        ("behaviour", (), range(4), []),
    ],
)
def test_a_minibatch_that_teaches_nothing_is_no_update(old_logp, equal, invalid, updates):
    journal, rollouts, state, metrics = run_learner(equal=equal, invalid=invalid, old_logp=old_logp)
    assert len(journal.updates) == state.step == metrics.get("actor/updates", 0) == len(updates)
    assert len(journal.scores) == len(updates) * (old_logp == "trainer")
    for batch, number in zip(journal.updates, updates, strict=True):
        first = rollouts.token_NT[8 * number : 8 * number + 8]
        np.testing.assert_array_equal(batch.token_NT.reshape(8, 5), first)
    assert updates or metrics == {}


def test_a_kl_pulls_where_all_advantages_are_0():
    journal, _, state, metrics = run_learner(equal=range(4), reference=-7)
    assert len(journal.updates) == state.step == metrics["actor/updates"] == 2


@pytest.mark.parametrize("old_logp", ["behaviour", "trainer"])
def test_old_logps_are_of_the_policy_before_the_first_update_and_the_reference_never_moves(
    old_logp,
):
    """verl: all mini-batches are scored first, so the second is off-policy by one update."""
    put = []

    def place(batch):  # as on the mesh: the host's batches stay as they are
        put.append(batch)
        return batch.replace(mask_NT=batch.mask_NT * 0 + 7)

    journal, *_ = run_learner(reference=-7, old_logp=old_logp, put=place)
    assert journal.scores == ([-1, -7] if old_logp == "trainer" else [-7]) * 2
    assert all((b.ref_logp_NT == -7).all() for b in journal.updates)
    assert all((b.old_logp_NT == -1).all() == (old_logp == "trainer") for b in journal.updates)
    assert all((b.mask_NT == 7).all() for b in journal.updates) and len(put) == 4
    assert not any((b.mask_NT == 7).any() for b in put)


def test_answers_that_were_cut_off_are_not_trained_on():
    """They are left out of the mask, and teach nothing; who is finished and valid stays as it was said."""
    cut_off_N = np.arange(16) % 2 == 1
    journal, rollouts, *_ = run_learner(invalid=(2,), cut_off=cut_off_N, mask_cut_off=True)
    found_N = np.concatenate([b.mask_NT.reshape(8, 5).any(1) for b in journal.updates])
    np.testing.assert_array_equal(found_N, ~cut_off_N & (rollouts.group_N != 2))
    np.testing.assert_array_equal(rollouts.valid_N, rollouts.group_N != 2)
    journal, *_ = run_learner(cut_off=cut_off_N)
    assert all(b.mask_NT.any(-1).all() for b in journal.updates)
    only_cut_off_N = np.repeat([False, True, False, False], 4)
    journal, *_ = run_learner(equal=(0, 2, 3), cut_off=only_cut_off_N, mask_cut_off=True)
    assert journal.updates == []


# ------------------------------------------------------------------------------ optimizer
PARAMS = {"vision": {"w": jnp.array([1.0, 2.0])}, "text": {"w": jnp.array([3.0, -4.0])}}
GRADS = {"vision": {"w": jnp.array([30.0, 0.0])}, "text": {"w": jnp.array([0.0, 40.0])}}
RATES = {"log_rate": jnp.array([5.0]), "rate_bias": jnp.array([6.0])}  # of a linear layer
PARAMS["delta"], GRADS["delta"] = RATES, jax.tree.map(jnp.zeros_like, RATES)


def steps(transform, num, params=PARAMS):
    transform = optax.GradientTransformation(*map(jax.jit, transform))
    state = transform.init(params)
    for _ in range(num):
        updates, state = transform.update(GRADS, state, params)
        params = optax.apply_updates(params, updates)
    return params


def test_two_steps_of_adamw_by_hand():
    """Torch's AdamW: w -= lr (m^ / (sqrt v^ + eps) + decay w), after the clip to norm 1."""
    transform = update.make_optimizer(settings.Optimizer(learning_rate=0.1, weight_decay=0.01))
    g, w, m, v = np.array([0.6, 0.8]), np.array([1.0, -4.0]), 0.0, 0.0  # 30, 40 over 50
    for t in (1, 2):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        w = w - 0.1 * (m_hat / (np.sqrt(v_hat) + 1e-8) + 0.01 * w)
    after = steps(transform, 2)
    np.testing.assert_allclose(after["vision"]["w"][0], w[0], rtol=5e-6)
    np.testing.assert_allclose(after["text"]["w"][1], w[1], rtol=5e-6)
    # No gradient: only the decay moves it, but not the rates of a linear layer.
    np.testing.assert_allclose(after["vision"]["w"][1], 2 * 0.999**2, rtol=1e-6)
    assert after["delta"] == RATES


def test_schedule_by_hand():
    def schedule(warmup_steps, decay_steps):
        config = settings.Optimizer(2.0, warmup_steps, decay_steps)
        return update.schedule(config)

    constant = schedule(0, 0)
    assert [float(constant(t)) for t in (0, 5)] == [2, 2]
    ramp = schedule(4, 0)
    np.testing.assert_allclose([ramp(t) for t in range(6)], [0, 0.5, 1, 1.5, 2, 2])
    tail = schedule(4, 10)
    # Halfway down the cosine: 2 (0.9 / 2 + 0.1); at its end a tenth.
    np.testing.assert_allclose([tail(t) for t in (4, 9, 14, 20)], [2, 1.1, 0.2, 0.2])
