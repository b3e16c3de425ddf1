"""Gated DeltaNet (arXiv:2412.06464), the linear attention of Qwen3.5: a memory of fixed size, no keys.

With unit keys k and queries q, a rate beta in 0 to 1 and a decay exp(g) of at most 1, each value head has a
memory S, K x V, that is 0 before the first token and learns to return v for k:

    S_t = exp(g_t) S_{t-1} + k_t (beta_t (v_t - (exp(g_t) S_{t-1})^T k_t))^T        o_t = S_t^T q_t

What comes before a token tells it only S and the last columns of a short convolution. So an answer needs of
its prompt one `State`, however long the prompt is, and the prompt gets its gradient through it.

**Chunks.** Token by token is too slow for a prompt. In a chunk let c_t be the sum of g up to t, and
D_ij = exp(c_i - c_j) for j <= i, else 0. With A the part below the diagonal of (beta k k^T) * D,

    (I + A) U = beta v        (I + A) W = beta k exp(c)        N = U - W S
    o = (q exp(c)) S + ((q k^T) * D) N        S <- exp(c_end) S + (k exp(c_end - c))^T N

in which S is the memory before the chunk. A token with beta = 0 and g = 0 leaves it as it is: padding does.

Letters that types.py does not have: H value heads, K width of a key, V width of a value, C channels of the
convolution, U tokens of a chunk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vade_jax import arrays
from vade_jax.models.qwen import config, layers
from vade_jax.types import Array

CHUNK = 64


class State(NamedTuple):
    """What the tokens so far leave to the next one."""

    tail_NXC: jax.Array  # the last kernel - 1 columns of the convolution's input
    memory_NHKV: jax.Array  # float32


class DeltaNet(nnx.Module):
    """The mixer of a linear layer; `scale` is for the kernel of the output."""

    def __init__(
        self, width: int, shape: config.LinearConfig, eps: float, make: layers.Make, *, scale: float
    ):
        self.shape, self.eps, self.dtype = shape, eps, make.dtype
        linear = lambda out: layers.Linear(width, out, make, bias=False)
        self.qkv, self.gate = linear(shape.channels), linear(shape.value_size)
        self.beta, self.decay = linear(shape.num_heads), linear(shape.num_heads)
        self.output = layers.Linear(shape.value_size, width, make, bias=False, scale=scale)
        key, param = make.rngs.params, make.param_dtype
        taps = jax.random.normal(key(), (shape.kernel, shape.channels), param)
        self.conv = nnx.Param(taps / shape.kernel**0.5)
        # A token leaves exp(-rate x step) of the memory. Steps start between 0.001 and 0.1, as in the paper's
        # code: with transformers' 1.3, a new model forgets its prompt at once and hardly learns.
        uniform = lambda *ends: jax.random.uniform(key(), (shape.num_heads,), param, *ends)
        self.log_rate = nnx.Param(jnp.log(uniform(0.01, 16)))
        step_H = jnp.exp(uniform(np.log(0.001), np.log(0.1)))
        self.rate_bias = nnx.Param(jnp.log(jnp.expm1(step_H)))
        self.norm = nnx.Param(jnp.ones(shape.value_width, param))

    def start(self, num_rows: int) -> State:
        """Returns the state before the first token."""
        shape = self.shape
        memory = (num_rows, shape.num_heads, shape.key_width, shape.value_width)
        tail_NXC = jnp.zeros((num_rows, shape.kernel - 1, shape.channels), self.dtype)
        return State(tail_NXC, jnp.zeros(memory, jnp.float32))

    def __call__(
        self, x_NTD: jax.Array, state: State, length_N: Array | None = None
    ) -> tuple[jax.Array, State]:
        """Returns the outputs of tokens after `state`, and the state after them.

        Args:
            x_NTD: the tokens, right-padded.
            state: what came before them.
            length_N: the tokens of each row that are not padding; None: all.
        """
        products = (f(x_NTD) for f in (self.qkv, self.beta, self.decay, self.gate))
        out_NTF, state = self._mix(state, length_N, *products)
        return self.output(out_NTF), state

    def _mix(self, state, length_N, qkv_NTC, beta_NTH, decay_NTH, gate_NTF):
        """Returns what `output` gets, and the state after the tokens."""
        shape, (N, T, _) = self.shape, qkv_NTC.shape
        column_NTC = jnp.concatenate([state.tail_NXC, qkv_NTC], 1)
        taps = self._float32(self.conv)
        mixed_NTC = sum(column_NTC[:, i : i + T] * taps[i] for i in range(shape.kernel))
        keys_NTC, v_NTC = jnp.split(jax.nn.silu(mixed_NTC), [2 * shape.key_size], -1)
        q_NTHK, k_NTHK = self._keys(keys_NTC)
        q_NTHK = q_NTHK * shape.key_width**-0.5
        v_NTHV = v_NTC.reshape(N, T, -1, shape.value_width)
        beta_NTH = jax.nn.sigmoid(beta_NTH.astype(jnp.float32))
        step_NTH = jax.nn.softplus(decay_NTH + self._float32(self.rate_bias))
        g_NTH = -jnp.exp(self._float32(self.log_rate)) * step_NTH
        end_N = jnp.full(N, T)
        if length_N is not None:
            end_N = jnp.asarray(length_N)
            is_real = (jnp.arange(T) < end_N[:, None])[..., None]
            beta_NTH, g_NTH = jnp.where(is_real, beta_NTH, 0), jnp.where(is_real, g_NTH, 0)
        rule = one_token if T == 1 else in_chunks
        with jax.default_matmul_precision("highest"):  # the memory adds up rounding
            out_NTHV, memory = rule(q_NTHK, k_NTHK, v_NTHV, beta_NTH, g_NTH, state.memory_NHKV)
        # Column 0 is three tokens before the first one, so those before token `end` start at `end`.
        place_NX = end_N[:, None] + jnp.arange(shape.kernel - 1)
        tail_NXC = jnp.take_along_axis(column_NTC, place_NX[..., None], 1)
        size_NTH1 = jnp.mean(out_NTHV**2, -1, keepdims=True)
        out_NTHV = out_NTHV * jax.lax.rsqrt(size_NTH1 + self.eps) * self._float32(self.norm)
        gate = gate_NTF.astype(jnp.float32).reshape(out_NTHV.shape)
        out = (out_NTHV * jax.nn.silu(gate)).astype(gate_NTF.dtype).reshape(N, T, -1)
        return out, State(tail_NXC, memory)

    def _keys(self, x_NTC: jax.Array) -> list[jax.Array]:
        """Returns queries and keys of length 1, for each value head those of the key head that serves it."""
        shape = self.shape
        x = x_NTC.reshape(*x_NTC.shape[:2], 2 * shape.num_key_heads, shape.key_width)
        x = x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-6)
        return jnp.split(jnp.repeat(x, shape.num_heads // shape.num_key_heads, 2), 2, 2)

    def _float32(self, param: nnx.Param) -> jax.Array:
        # Rounded first: an engine has these in the compute dtype.
        return arrays.rounded(param[...], self.dtype).astype(jnp.float32)


def one_token(q_N1HK, k_N1HK, v_N1HV, beta_N1H, g_N1H, memory_NHKV):
    """Returns what `in_chunks` does, for one token of each row: the rule as it is written."""
    q, k, v, beta, g = (x[:, 0] for x in (q_N1HK, k_N1HK, v_N1HV, beta_N1H, g_N1H))
    memory_NHKV = memory_NHKV * jnp.exp(g)[..., None, None]
    error_NHV = v - jnp.einsum("nhkv,nhk->nhv", memory_NHKV, k)
    # Without the barrier a GPU computes this again where it writes the memory, and then copies the memory.
    change_NHV = jax.lax.optimization_barrier(beta[..., None] * error_NHV)
    memory_NHKV += k[..., None] * change_NHV[:, :, None]
    return jnp.einsum("nhkv,nhk->nhv", memory_NHKV, q)[:, None], memory_NHKV


def in_chunks(
    q_NTHK: jax.Array,
    k_NTHK: jax.Array,
    v_NTHV: jax.Array,
    beta_NTH: jax.Array,
    g_NTH: jax.Array,
    memory_NHKV: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Returns `out_NTHV` and the memory after the last token; all are float32.

    What needs no memory is computed for all chunks at once; only N and S go from chunk to chunk.
    """
    (N, T, _, V), size = v_NTHV.shape, min(CHUNK, v_NTHV.shape[1])

    def chunks(x_NTH):
        """Returns `x_NTH` as [chunks, N, H, U, ...]."""
        x = jnp.pad(x_NTH, [(0, 0), (0, -T % size), *[(0, 0)] * (x_NTH.ndim - 2)])
        x = x.reshape(N, -1, size, *x.shape[2:])
        return jnp.swapaxes(jnp.moveaxis(x, 1, 0), 2, 3)

    q, k, v, beta, g = map(chunks, (q_NTHK, k_NTHK, v_NTHV, beta_NTH, g_NTH))
    seen = jnp.tril(jnp.ones((size, size), bool))
    c = g @ seen.T.astype(g.dtype)  # a cumulative sum; JAX's own compiles to a hundred operations
    # Masked before exp: above the diagonal the exponent is positive, and would overflow.
    decay = jnp.exp(jnp.where(seen, c[..., :, None] - c[..., None, :], -jnp.inf))
    k_beta, grown = k * beta[..., None], jnp.exp(c)[..., None]
    right = jnp.concatenate([v * beta[..., None], k_beta * grown], -1)
    solved = _inverse((k_beta @ jnp.swapaxes(k, -1, -2)) * decay) @ right
    left = jnp.exp(c[..., -1:] - c)[..., None]

    def step(memory, chunk):
        solved, k_left, kept = chunk
        new = solved[..., :V] - solved[..., V:] @ memory
        return memory * kept + jnp.swapaxes(k_left, -1, -2) @ new, (memory, new)

    of_chunks = solved, k * left, grown[..., -1:, :]
    memory_NHKV, (before, new) = jax.lax.scan(step, memory_NHKV, of_chunks)
    out = (q * grown) @ before + ((q @ jnp.swapaxes(k, -1, -2)) * decay) @ new
    out = jnp.moveaxis(jnp.swapaxes(out, 2, 3), 0, 1)
    return out.reshape(N, -1, *out.shape[3:])[:, :T], memory_NHKV


@jax.custom_vjp
def _inverse(system: jax.Array) -> jax.Array:
    """Returns (I + A)^-1, with A what `system`, [..., U, U], has below its diagonal.

    Twice the size at a time: of a block ((P, 0), (B, Q)) with inverted P and Q, B becomes -Q B P. Two of
    `jax.lax.linalg.triangular_solve` at once can wait for each other for ever on a CPU (jaxlib 0.10.2).
    """
    size = system.shape[-1]
    width_W11 = 2 ** np.arange((size - 1).bit_length())[:, None, None]
    row, col = np.arange(size)[:, None] // width_W11, np.arange(size) // width_W11
    # The parts B of all blocks of twice each width
    is_part_WUU = (row == col + 1) & (row % 2 == 1)

    def join(inverse, is_part_UU):
        return inverse - inverse @ jnp.where(is_part_UU, system, 0) @ inverse, None

    first = jnp.eye(size, dtype=system.dtype) - jnp.where(is_part_WUU[0], system, 0)
    return jax.lax.scan(join, first, is_part_WUU[1:])[0]


def _inverse_forward(system):
    inverse = _inverse(system)
    return inverse, inverse


def _inverse_backward(inverse, gradient):
    turned = jnp.swapaxes(inverse, -1, -2)
    with jax.default_matmul_precision("highest"):  # the caller's does not reach a backward pass
        return (-jnp.tril(turned @ gradient @ turned, -1),)


_inverse.defvjp(_inverse_forward, _inverse_backward)
