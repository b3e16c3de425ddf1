"""Every setting of a run: its default, meaning, unit and range, written once.

`Run` is a tree of frozen dataclasses. Each checks its own ranges when it is made, so a typo or an
impossible value is one clear error before anything is built. Where the paper (arXiv 2511.18902) gives
no value, the default is that of verl's Qwen2.5-VL recipe. Checks that need more than these values (a
selector's options, files, GPUs, packages) are in run/checks.py.

    run = settings.Run.from_dict({"num_steps": 200, "model": {"preset": "tiny"}})

A setting is turned off by 0 or "", not by None, which a command line cannot express.

`experiments.config` prints the comment of each field as the meaning of that setting.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from vade_jax import fields
from vade_jax.fields import Section, choice, fraction, location, mapping, number


# ------------------------------------------------------------------------------ selection
@dataclasses.dataclass(frozen=True)
class Selector(Section):
    """The selector, which chooses the prompts of every step."""

    path: ClassVar[str] = "selector."

    # Name of the selector: one of docs/selectors.md, or your own as path/to/file.py:NAME
    name: str = "vade"
    # Hyperparameters of the selector that differ from its defaults
    options: Mapping[str, Any] = mapping()
    # Arrays that the selector needs for every item: name of the array to metadata fields ("family,level")
    arrays: Mapping[str, Any] = mapping()


@dataclasses.dataclass(frozen=True)
class Measure(Section):
    """Passes over all items. The selector learns from their answers, the policy does not."""

    path: ClassVar[str] = "measure."

    # Steps from one pass to the next, the first before step 1; 0: no passes
    every: int = number(0, at_least=0)
    # Answers to each item in a pass; 0: as many as in a step (num_rollouts)
    num_rollouts: int = number(0, at_least=0)
    # Items in the engine at once during a pass; 0: as many as make the answers of one step
    num_prompts: int = number(0, at_least=0)


@dataclasses.dataclass(frozen=True)
class Refill(Section):
    """How a step replaces the groups that the selector drops."""

    path: ClassVar[str] = "refill."

    # Most rounds of rollouts in a step; 1: dropped groups are not replaced; 0: no limit
    max_rounds: int = number(1, at_least=0)
    # Prompts of a later round. "batch": a whole batch (DAPO). "missing": one for each missing group
    # (VCRL). Each new number compiles the selector's programs, which takes a second or two.
    ask: str = choice("batch", "missing")


# ------------------------------------------------------------------------------ model and data
@dataclasses.dataclass(frozen=True)
class Model(Section):
    """The policy that training starts from."""

    path: ClassVar[str] = "model."

    # Checkpoint to start from: a Hugging Face directory or a name on the hub; empty: the preset
    checkpoint: str = location()
    # A tiny model, used without a checkpoint. "tiny_reader" comes with the package: 1.6 M weights that can
    # read the built-in pictures. The others have random weights: "tiny" (the same sizes), "tiny_6m", and
    # the text-only "tiny_qwen2.5" and "tiny_qwen3".
    preset: str = ""
    # Model size that the checkpoint must have, such as 7b or qwen3-4b; empty: any
    size: str = ""
    # Dtype of the computation; "auto": float32 on CPUs, bfloat16 on other devices
    dtype: str = choice("auto", "float32", "bfloat16")
    # Dtype of the weights. With its optimizer state, a bfloat16 weight takes 10 bytes instead of 12, and no
    # update is lost (trainer/precision.py)
    param_dtype: str = choice("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Lora(Section):
    """A low-rank adapter (arXiv 2106.09685) that is trained instead of the model's weights.

    The base weights are kept once, in the dtype of the computation: they are also the reference policy.
    """

    path: ClassVar[str] = "lora."

    rank: int = number(0, at_least=0)  # Rank of the adapter; 0: no adapter, all weights learn
    alpha: float = number(32.0, above=0)  # Scale: the adapter's output is times alpha / rank
    # Layers with an adapter: a pattern searched in their published names, such as "q_proj|v_proj"; empty:
    # all linear layers
    targets: str = ""
    # Whether layers of the vision tower also get an adapter; False: the tower does not change
    vision: bool = False


@dataclasses.dataclass(frozen=True)
class Data(Section):
    """The questions, and how they become prompts."""

    path: ClassVar[str] = "data."

    # Training data: "procedural" (built in), a file or directory of rows (docs/data.md), a function that
    # returns rows, path/to/file.py:NAME, or OWNER/NAME[@REVISION][:SPLIT] on the Hugging Face hub
    train: str = location()
    # Validation data, in the forms of data.train; a directory made by build_data holds both
    validation: str = location()
    # Share of the rows of data.train that are held out for the validation, where data.validation is empty
    validation_share: float = number(0.0, at_least=0, below=1)
    # Kind of answer (a key of vade_jax.rewards.verify.KINDS) for rows that name none and whose answer fits
    # several, such as a formula; empty: such rows are rejected
    kind: str = ""
    # Another directory that images may be read from; by default they must be in the directory of their file
    image_root: str = location()
    num_train: int = number(0, at_least=0)  # Training items, of a file the first rows; 0: all
    num_validation: int = number(0, at_least=0)  # Validation items; 0: all in the file
    # Weights of the question types in the built-in data, by "family_level"; empty: the default weights
    mixture: Mapping[str, Any] = mapping()
    # Share of built-in training items that get a wrong reference answer on purpose
    wrong_golds: float = fraction(0.0)
    # Text of the prompt that tells the policy how to answer
    instruction: str = (
        "Think step by step inside <think> </think>, then give the final answer inside \\boxed{}."
    )
    # Arguments of the chat template, such as enable_thinking=False for Qwen3
    template: Mapping[str, Any] = mapping()
    # Fewest pixels of an image; smaller images are enlarged
    min_pixels: int = number(
        3136, at_least=1568, why="as an image has at least two cells of 28 x 28"
    )
    max_pixels: int = 1003520  # Most pixels of an image; larger images are reduced
    # Longest prompt, in tokens, images included; longer ones are left out, counted and listed
    max_prompt_length: int = number(8192, at_least=1)
    # Prompts are padded to a few multiples of this many tokens
    length_multiple: int = number(128, at_least=1)
    num_threads: int = number(4, at_least=1)  # Threads that decode images


# ------------------------------------------------------------------------------ rollouts
@dataclasses.dataclass(frozen=True)
class Engine(Section):
    """The engine that makes the rollouts."""

    path: ClassVar[str] = "engine."

    # The built-in engine ("local"), or one vLLM behind HTTP ("vllm_server")
    name: str = choice("local", "vllm_server")
    prompts_per_call: int = number(64, at_least=1)  # Prompts that "local" decodes together
    # Most steps between the weights that answer and those that learn from the answers. With 1, vLLM answers
    # while the policy learns; 0: they take turns
    max_lag: int = number(0, at_least=0, at_most=1)
    url: str = ""  # URL of a vLLM server that already runs; empty: the run starts one
    # Name under which the server of `url` serves the model; empty: the checkpoint's path
    model: str = ""
    data_parallel: int = number(1, at_least=1)  # Replicas among which vLLM divides the requests
    tensor_parallel: int = number(1, at_least=1)  # GPUs of each replica
    max_in_flight: int = number(256, at_least=1)  # Most requests at once
    timeout_s: float = number(1800.0, above=0)  # Longest wait for a request's answers, in seconds
    start_s: float = number(600.0, above=0)  # Longest wait for a server to be ready, in seconds
    retries: int = number(3, at_least=0)  # Retries of a request before the run saves and stops
    # Directory through which the server gets new weights; empty: <workdir>/weights
    sync_directory: str = location()
    options: Mapping[str, Any] = mapping()  # Other options of vLLM, such as max_num_seqs

    def __post_init__(self):
        super().__post_init__()
        if self.url:
            fields.check_url("engine.url", self.url)


@dataclasses.dataclass(frozen=True)
class Layout(Section):
    """Which GPUs train and which serve; the top of configs/qwen.py explains the layouts."""

    path: ClassVar[str] = "layout."

    train: str = ""  # GPUs that train, such as "0,1"; empty: all
    serve: str = ""  # GPUs of vLLM, such as "2,3"; empty: all
    # Share of a GPU's memory that JAX reserves; 0: JAX's default
    train_memory: float = number(0.0, at_least=0, below=1)
    serve_memory: float = number(0.9, above=0, below=1)  # Share of a GPU's memory that vLLM takes
    sleep: bool = False  # True: vLLM frees its GPU memory while the policy learns


@dataclasses.dataclass(frozen=True)
class Sampling(Section):
    """How the answers of a step are sampled."""

    path: ClassVar[str] = "sampling."

    # Sampling temperature; the log-probs of the loss use it too
    temperature: float = number(1.0, above=0, why="as rollouts need to differ (eval's may be 0)")
    # Nucleus sampling: only the likeliest tokens with this total probability; 1: all tokens
    top_p: float = number(1.0, above=0, at_most=1)
    top_k: int = number(0, at_least=0)  # Only this many likeliest tokens are sampled; 0: all
    max_tokens: int = number(2048, at_least=1)  # Longest answer, in tokens, end token included


@dataclasses.dataclass(frozen=True)
class Reward(Section):
    """reward = (1 - format_weight) correct + format_weight well formed - cost of length.

    Your own functions can replace "correct" and "well formed": see docs/rewards.md.
    """

    path: ClassVar[str] = "reward."

    # Form that a well-formed answer has, a key of vade_jax.rewards.answers.FORMATS
    format: str = "think_boxed"
    format_weight: float = number(0.1, at_least=0, below=1)  # Share of the reward for a good form
    # Tokens before max_tokens over which the cost of length grows from 0 to 1; 0: length costs nothing
    overlong_buffer: int = number(0, at_least=0)
    # Reward functions, separated by commas: "path/to/file.py:name", "module:name", or "rules" for the
    # built-in rules; empty: the rules alone
    function: str = ""
    weights: tuple[float, ...] = ()  # Weight of each reward function; empty: 1 each
    # An answer is correct above this reward, where no function says which answers are correct
    correct_above: float = number(0.5)
    # Longest call of a reward function, in seconds; after it the call's answers have no verdict
    timeout_s: float = number(300.0, above=0)
    # Calls of reward functions at a time: 1 in the main thread of their process, more in threads of it
    concurrency: int = number(1, at_least=1)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names in `function`; empty if only the rules judge."""
        return tuple(filter(None, (name.strip() for name in self.function.split(","))))

    @property
    def has_rules(self) -> bool:
        """Whether the built-in rules judge. Every row then needs a reference answer and its kind."""
        return not self.functions or "rules" in self.functions

    def __post_init__(self):
        super().__post_init__()
        if self.weights and len(self.weights) != len(self.functions):
            raise ValueError(
                f"reward.weights={self.weights}: give one for each of the {len(self.functions)} "
                f"functions of reward.function={self.function!r}"
            )


# ------------------------------------------------------------------------------ learning
UNWEIGHTED = ("", "none")  # values of `loss.importance` without importance weights


@dataclasses.dataclass(frozen=True)
class Loss(Section):
    """The objective: GRPO (arXiv 2402.03300) by default, GSPO (arXiv 2507.18071) with `GSPO`."""

    path: ClassVar[str] = "loss."

    # Whose probability ratio is clipped: each token's (GRPO) or the whole answer's (GSPO)
    ratio: str = choice("token", "sequence")
    clip_low: float = number(0.2, above=0, below=1)  # Clip: the ratio is at least 1 - clip_low
    clip_high: float = number(0.2, above=0)  # Clip: the ratio is at most 1 + clip_high
    # Largest loss of a token in a bad answer, in multiples of |advantage|; 0: no limit
    dual_clip: float = 3.0
    # How the losses of tokens become one number, named as in verl: losses/policy.py
    aggregate: str = choice(
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    )
    mask_cut_off: bool = False  # True: answers cut off at max_tokens are not trained on
    # Estimator of the KL to the reference policy: losses/kl.py
    kl: str = choice("k3", "k1", "abs", "k2", "k1+", "k3+")
    kl_coef: float = number(0.01, at_least=0)  # Weight of the KL; 0: no reference policy is kept
    # Source of the old policy's log-probs. "trainer": computed again by the trainer. "behaviour": those of
    # the engine.
    old_logp: str = choice("trainer", "behaviour")
    # Importance weights of the trainer's policy over the engine's, losses/importance.py: truncated, of each
    # token ("token") or of the whole answer ("sequence"); 0 outside of bounds, for a token ("icepop") or for
    # an answer ("geometric"); unbounded ("raw"). Empty or "none": no weights
    importance: str = choice("", "none", "token", "sequence", "icepop", "geometric", "raw")
    importance_cap: float = number(2.0, above=0)  # Largest weight of "token" and "sequence"

    def __post_init__(self):
        super().__post_init__()
        if self.dual_clip != 0 and not self.dual_clip > 1:
            raise ValueError(f"loss.dual_clip={self.dual_clip}: must be above 1, or 0 for none")


# The fields of `Loss` that tell one algorithm from the others. GRPO's "token-mean" is verl's; the paper
# averages each answer first, which is "seq-mean-token-mean".
GRPO = dict(ratio="token", clip_low=0.2, clip_high=0.2, dual_clip=3.0, aggregate="token-mean")
# With the narrow clip of its authors.
GSPO = dict(
    ratio="sequence",
    clip_low=3e-4,
    clip_high=4e-4,
    dual_clip=0.0,
    aggregate="seq-mean-token-mean",
)
# arXiv 2503.14476: clip-higher, no KL.
DAPO = GRPO | dict(clip_high=0.28, dual_clip=10.0, kl_coef=0.0)
# arXiv 2503.20783: divides by a constant length, no KL; it also needs scale_by_std=False.
DR_GRPO = GRPO | dict(aggregate="seq-mean-token-sum-norm", dual_clip=0.0, kl_coef=0.0)


@dataclasses.dataclass(frozen=True)
class Optimizer(Section):
    """AdamW, after the gradient is clipped to a global norm."""

    path: ClassVar[str] = "optimizer."

    learning_rate: float = number(1e-6, at_least=0)  # Peak learning rate
    # Updates in which the rate rises from 0 to its peak
    warmup_steps: int = number(0, at_least=0, below=1e9)
    # Updates after the warm-up in which the rate falls to a tenth of its peak, as a cosine; 0: constant
    decay_steps: int = number(0, at_least=0, below=1e9)
    b1: float = number(0.9, at_least=0, below=1)  # Decay of AdamW's first moment
    b2: float = number(0.999, at_least=0, below=1)  # Decay of AdamW's second moment
    weight_decay: float = number(0.01, at_least=0)  # Weight decay of AdamW
    clip_norm: float = number(1.0, above=0, at_most=math.inf)  # Largest global norm of the gradient


@dataclasses.dataclass(frozen=True)
class Batch(Section):
    """How a step's rollouts are split into optimizer updates, and those into pieces that fit in memory."""

    path: ClassVar[str] = "batch."

    prompts_per_minibatch: int = 128  # Prompts of one optimizer update
    prompts_per_microbatch: int = 16  # Prompts in memory at once
    # Answers that the built-in engine decodes with one copy of their prompt; 0: num_rollouts
    answers_per_row: int = number(0, at_least=0)
    vocab_chunk: int = number(1024, at_least=1)  # Tokens whose logits are in memory at once
    # False: the results of matrix products are stored, not computed again in the backward pass
    remat: bool = True


@dataclasses.dataclass(frozen=True)
class Mesh(Section):
    """Axes of the device mesh; one may be -1, which takes the remaining devices."""

    path: ClassVar[str] = "mesh."

    data: int = 1  # Devices along the axis that splits batches and replicates the weights
    fsdp: int = -1  # Devices along the axis that splits batches and weights
    tensor: int = 1  # Devices along the axis that splits attention heads and the MLP


@dataclasses.dataclass(frozen=True)
class Eval(Section):
    """Validation while training."""

    path: ClassVar[str] = "eval."

    # Steps from one validation to the next, the first before step 1; 0: one validation, at the end
    every: int = number(5, at_least=0)
    num_samples: int = number(4, at_least=1)  # Answers to each question; accuracy is their mean
    temperature: float = number(1.0, at_least=0)  # Sampling temperature of validation answers
    max_tokens: int = number(2048, at_least=1)  # Longest validation answer, in tokens
    # Benchmarks for validation, as "mathvista:FILE,chartqa:FILE"; scored by rules, without a judge
    benchmarks: str = ""
    profile: str = choice("cot", "paper")  # Prompts and rules of the benchmarks
    benchmark_items: int = number(0, at_least=0)  # First items of each benchmark; 0: all


@dataclasses.dataclass(frozen=True)
class Checkpoint(Section):
    """When the run is saved."""

    path: ClassVar[str] = "checkpoint."

    every: int = number(20, at_least=1)  # Steps from one checkpoint to the next
    keep: int = number(2, at_least=1)  # Number of newest checkpoints that are kept


# ------------------------------------------------------------------------------ the run
@dataclasses.dataclass(frozen=True)
class Run(Section):
    """A whole training run."""

    seed: int = fields.seed()  # Seed of data, selection, rollouts and the tiny model's weights
    num_steps: int = number(240, at_least=1)  # RL steps of the run, unless num_epochs is set
    # If above 0, num_steps is ceil(num_epochs x items / num_prompts), and each of DIVA's variants counts
    # as an item. 0: num_steps sets the length of the run.
    num_epochs: float = number(0.0, at_least=0, below=1e9)
    # If above 0, no step begins once the run has generated budget x num_steps x num_prompts x num_rollouts
    # answers, those of passes and of refill's rounds included; nor does a pass that would use up the rest.
    # 0: num_steps alone ends the run.
    budget: float = number(0.0, at_least=0, below=1e9)
    num_prompts: int = number(512, at_least=1)  # B, prompts in a step
    # G, answers to a prompt
    num_rollouts: int = number(8, at_least=2, why="as a group of one has no advantage")
    # Whether advantages are divided by the group's standard deviation (GRPO); False: not (Dr. GRPO)
    scale_by_std: bool = True
    selector: Selector = Selector()
    measure: Measure = Measure()
    refill: Refill = Refill()
    model: Model = Model()
    lora: Lora = Lora()
    data: Data = Data()
    engine: Engine = Engine()
    layout: Layout = Layout()
    sampling: Sampling = Sampling()
    reward: Reward = Reward()
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    batch: Batch = Batch()
    mesh: Mesh = Mesh()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    wandb: str = ""  # Weights & Biases project that also gets the metrics; empty: none

    @property
    def max_rollouts(self) -> int:
        """The number of answers that `budget` allows, at least one; 0: no limit."""
        num_answers = self.budget * self.num_steps * self.num_prompts * self.num_rollouts
        return max(round(num_answers), 1) if self.budget else 0

    @property
    def resolved_measure(self) -> Measure:
        """`measure` with its zeros filled in: G answers to an item, and a step's answers at once."""
        num_rollouts = self.measure.num_rollouts or self.num_rollouts
        num_prompts = self.num_prompts * self.num_rollouts // num_rollouts
        return dataclasses.replace(
            self.measure,
            num_rollouts=num_rollouts,
            num_prompts=self.measure.num_prompts or max(1, num_prompts),
        )

    def with_items(self, num_items: int, places: int = 1) -> "Run":
        """Returns the run with `num_steps` set to what `num_epochs` over `num_items` items take.

        An item takes `places` places of a batch (`samplers.base.Needs`).
        """
        if not self.num_epochs:
            return self
        # In floats 1.1 x 100 is slightly above 110. Rounding keeps that from adding a step.
        num_steps = math.ceil(round(self.num_epochs * num_items * places / self.num_prompts, 6))
        return dataclasses.replace(self, num_steps=max(num_steps, 1))

    def __post_init__(self):
        super().__post_init__()
        self._check_log_probs()
        self._check_fit()

    def _check_log_probs(self) -> None:
        """Raises ValueError where the loss would compare log-probs of two different distributions."""
        sampling, loss, max_lag = self.sampling, self.loss, self.engine.max_lag
        weighs = loss.importance not in UNWEIGHTED
        if weighs and loss.old_logp == "behaviour":
            raise ValueError(
                f"loss.importance={loss.importance!r} weighs the trainer's log-probs against "
                "the engine's: set loss.old_logp='trainer'"
            )
        if max_lag and (loss.old_logp == "behaviour" or not loss.importance):
            raise ValueError(
                f"engine.max_lag={max_lag}: the weights that answer are older than those that learn, and "
                f"loss.old_logp={loss.old_logp!r} with loss.importance={loss.importance!r} would not correct for it: "
                "set loss.old_logp='trainer' and loss.importance='token' or another one, or 'none' to go without"
            )
        if (sampling.top_p < 1 or sampling.top_k) and (weighs or loss.old_logp == "behaviour"):
            # The engine's log-probs are of the truncated distribution and the trainer's are not, so
            # every ratio of the two would be off.
            raise ValueError(
                f"sampling.top_p={sampling.top_p} and sampling.top_k={sampling.top_k} truncate the engine's "
                "distribution and not the trainer's: set them to 1 and 0, or loss.old_logp='trainer' and "
                "loss.importance=''"
            )

    def _check_fit(self) -> None:
        """Raises ValueError where settings of different sections do not fit each other."""
        batch = self.batch
        if not self.lora.rank and self.lora != Lora():
            raise ValueError(
                f"lora={self.lora.to_dict()}: all weights learn: set lora.rank as well"
            )
        if self.lora.rank and self.model.param_dtype != "float32":
            raise ValueError(
                f"model.param_dtype={self.model.param_dtype!r} is of weights that learn; with "
                f"lora.rank={self.lora.rank} an adapter does, and the base is in the dtype of the "
                "computation already: leave it at 'float32'"
            )
        if self.data.min_pixels > self.data.max_pixels:
            raise ValueError(
                f"data.min_pixels={self.data.min_pixels} is larger than "
                f"data.max_pixels={self.data.max_pixels}"
            )
        mini, micro = batch.prompts_per_minibatch, batch.prompts_per_microbatch
        _check_divides("batch.prompts_per_minibatch", mini, "num_prompts", self.num_prompts)
        _check_divides("batch.prompts_per_microbatch", micro, "batch.prompts_per_minibatch", mini)


def _check_divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise ValueError(
            f"{small_name}={small} does not divide {large_name}={large}: choose a divisor"
        )
