"""Every setting of a run: its default, meaning, unit and range, written once.

`Run` is a tree of frozen dataclasses. Each checks its own ranges when it is made, so a typo or an
impossible value is one clear error before anything is built. Where the paper (arXiv 2511.18902) names
no value, the default is that of verl's Qwen2.5-VL recipe. What needs more than the numbers to be
checked (a selector's options, files, GPUs, packages) is in `run/checks/`.

    run = settings.Run.from_dict({"num_steps": 200, "model": {"preset": "tiny"}})

Throughout, 0 and "" mean "none" where None would be natural: a command line can type them.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, ClassVar

from vade_jax import fields
from vade_jax.fields import Section, choice, fraction, location, mapping, number


# ------------------------------------------------------------------------------ selection
@dataclasses.dataclass(frozen=True)
class Selector(Section):
    """Which prompts are rolled out."""

    path: ClassVar[str] = "selector."

    name: str = "vade"  # one of docs/selectors.md, or your own: path/to/file.py:NAME
    options: Mapping[str, Any] = mapping()  # hyperparameters that differ from the defaults
    # What the selector needs of every item: array=metadata fields, such as "family,level"
    arrays: Mapping[str, Any] = mapping()


@dataclasses.dataclass(frozen=True)
class Measure(Section):
    """Passes over all items, whose answers only the selector learns from."""

    path: ClassVar[str] = "measure."

    every: int = number(0, at_least=0)  # steps; the first is before step 1; 0: never
    num_rollouts: int = number(0, at_least=0)  # answers to each item; 0: num_rollouts
    # Items in the engine at once; 0: as many as give the answers of a step.
    num_prompts: int = number(0, at_least=0)


@dataclasses.dataclass(frozen=True)
class Refill(Section):
    """What a step does about the groups that the selector drops."""

    path: ClassVar[str] = "refill."

    max_rounds: int = number(1, at_least=0)  # of rollouts in a step; 1 never asks again; 0: no cap
    # How many prompts a later round rolls out: a whole batch (DAPO), what is missing (VCRL), or as
    # many as this step's share of dropped groups makes likely to be needed (estimate, GRESO).
    ask: str = choice("batch", "missing", "estimate")
    # With fewer groups than a batch: train on fewer, repeat those that are there, or stop the run.
    at_cap: str = choice("fewer", "repeat", "stop")
    surplus: str = choice("discard", "train")  # what becomes of groups beyond a batch


@dataclasses.dataclass(frozen=True)
class Diva(Section):
    """What a selector that asks for variants (diva, arXiv 2603.01106) adds to a run."""

    path: ClassVar[str] = "diva."

    changes: tuple[str, ...] = (  # of pictures, in harder variants
        *("rotate", "write", "gaussian", "salt_pepper", "speckle", "blur"),
    )
    norm: str = choice("sequence", "code", "off")  # of advantages over the batch
    weight: float = number(0.1, at_least=0)  # k, of a variant's difficulty
    weighted: str = choice("global", "both")  # which advantages are weighted by it
    balance: str = choice("range", "low_reward", "off")  # low_reward: the authors' code
    local_share: float = number(1.0, at_least=0)
    global_share: float = number(1.0, at_least=0)


# ------------------------------------------------------------------------------ model and data
@dataclasses.dataclass(frozen=True)
class Model(Section):
    """The policy that training starts from."""

    path: ClassVar[str] = "model."

    checkpoint: str = (
        location()
    )  # a Hugging Face directory, or a name on the hub; empty: the preset's
    # "tiny_reader" (1.6 M weights that can read the built-in pictures, from the package), or random weights:
    # "tiny" (the same sizes), "tiny_6m", or text-only "tiny_qwen2.5" and "tiny_qwen3"
    preset: str = ""
    size: str = ""  # such as 7b or qwen3-4b: the checkpoint must have this shape; empty: any
    dtype: str = choice("auto", "float32", "bfloat16")  # of the computation
    # Of the weights in RL. bfloat16 takes 10 bytes a weight with its optimizer in the place of 12, and
    # loses no update: trainer/precision.py. The warm start is in float32.
    param_dtype: str = choice("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Lora(Section):
    """A low-rank adapter (arXiv 2106.09685) that learns in the place of all weights.

    The base is then kept in the dtype of the computation, once: it is the reference policy too.
    """

    path: ClassVar[str] = "lora."

    rank: int = number(0, at_least=0)  # 0: no adapter, all weights learn
    alpha: float = number(32.0, above=0)  # what the adapter adds is times alpha / rank
    # Searched in the published names of the layers, such as "q_proj|v_proj"; empty: all linear ones
    targets: str = ""
    vision: bool = False  # True: the vision tower's layers too; False: it stays as it is


@dataclasses.dataclass(frozen=True)
class WarmStart(Section):
    """Supervised steps on the built-in data before RL."""

    path: ClassVar[str] = "warm_start."

    num_steps: int = number(0, at_least=0)  # 0: none
    batch_size: int = number(64, at_least=1)
    learning_rate: float = number(1e-3, above=0)
    b2: float = number(0.95, at_least=0, below=1)  # short runs want a short memory
    mixture: Mapping[str, Any] = mapping()  # of its questions, as data.mixture; empty: that
    # family_level: how often the teacher gives the answer of another item of it, which is at times right too
    noise: Mapping[str, Any] = mapping()
    directory: str = location()  # where it lies or goes; empty: in the run directory


@dataclasses.dataclass(frozen=True)
class Data(Section):
    """Questions, and how they become prompts."""

    path: ClassVar[str] = "data."

    # "procedural", a .jsonl/.parquet/.arrow file, a directory, or OWNER/NAME[@REVISION][:SPLIT] of the
    # Hugging Face hub
    train: str = location()
    validation: str = location()  # a directory made by build_data holds both
    # Share of the rows of data.train that are held out for the validation, where data.validation is empty
    validation_share: float = number(0.0, at_least=0, below=1)
    # Of rows that name no kind, and whose answer may be of several, such as a formula; empty: they are
    # rejected. A key of vade_jax.rewards.verify.KINDS
    kind: str = ""
    # Another directory that images may be read from; by default they may not leave that of their file
    image_root: str = location()
    num_train: int = number(0, at_least=0)  # items; of files, 0 takes all
    num_validation: int = number(0, at_least=0)
    # Of the built-in data: weights of "family_level" or of a stratum; empty: the default ones
    mixture: Mapping[str, Any] = mapping()
    wrong_golds: float = fraction(0.0)  # share, on purpose
    instruction: str = (
        "Think step by step inside <think> </think>, then give the final answer inside \\boxed{}."
    )
    # Given to the chat template, such as enable_thinking=False for Qwen3
    template: Mapping[str, Any] = mapping()
    min_pixels: int = number(
        3136, at_least=1568, why="as an image has at least two cells of 28 x 28"
    )
    max_pixels: int = 1003520
    max_prompt_length: int = number(8192, at_least=1)  # tokens
    drop_too_long: bool = True  # leave longer prompts out, counted and listed; or fail
    length_multiple: int = number(128, at_least=1)  # prompts are padded to few of these
    num_threads: int = number(4, at_least=0)  # that decode images; 0: none


# ------------------------------------------------------------------------------ rollouts
@dataclasses.dataclass(frozen=True)
class Engine(Section):
    """Who makes the rollouts."""

    path: ClassVar[str] = "engine."

    name: str = choice("local", "vllm_server")
    prompts_per_call: int = number(64, at_least=1)  # local: decoded together
    urls: tuple[str, ...] = ()  # servers that run already; empty: the run starts its own
    model: str = ""  # the name they serve it under; empty: the checkpoint's path
    num_servers: int = number(1, at_least=1)  # that the run starts
    tensor_parallel: int = number(1, at_least=1)  # GPUs of each
    max_in_flight: int = number(256, at_least=1)  # requests at once, over all servers
    timeout_s: float = number(1800.0, above=0)  # of a request; then the server hangs
    start_s: float = number(600.0, above=0)  # for a server that the run starts
    wait_s: float = number(300.0, at_least=0)  # for a server of `urls` that is down
    retries: int = number(3, at_least=0)  # of a request, before the run saves and stops
    sync_directory: str = location()  # shared with the servers; empty: <workdir>/weights
    options: Mapping[str, Any] = mapping()  # more of vLLM's own, such as max_num_seqs

    def __post_init__(self):
        super().__post_init__()
        for url in self.urls:
            fields.check_no_secret("engine.urls", url=url)


@dataclasses.dataclass(frozen=True)
class Layout(Section):
    """Which GPU trains and which serves: the top of configs/qwen.py explains it."""

    path: ClassVar[str] = "layout."

    train: str = ""  # "0,1": the GPUs that train; empty: all
    serve: str = ""  # "2,3": the GPUs of the vLLM servers; empty: all
    train_memory: float = number(0.0, at_least=0, below=1)  # JAX's share; 0: its default
    serve_memory: float = number(0.9, above=0, below=1)  # vLLM's share of a GPU
    sleep: bool = False  # vLLM gives its memory back while the policy learns
    # What waits in the host's memory while it is not needed: the reference policy, or all: the
    # optimizer's state too
    offload: str = choice("", "reference", "all")


@dataclasses.dataclass(frozen=True)
class Sampling(Section):
    """How answers are drawn in training."""

    path: ClassVar[str] = "sampling."

    temperature: float = number(1.0, above=0, why="as rollouts need to differ (eval's may be 0)")
    top_p: float = number(1.0, above=0, at_most=1)
    top_k: int = number(0, at_least=0)  # 0: all tokens
    max_tokens: int = number(2048, at_least=1)  # of an answer, the end included


@dataclasses.dataclass(frozen=True)
class Reward(Section):
    """reward = (1 - format_weight) correct + format_weight well formed - what length costs.

    Or functions of one's own in the place of correct and well formed: docs/rewards.md.
    """

    path: ClassVar[str] = "reward."

    format: str = "think_boxed"  # a key of vade_jax.rewards.answers.FORMATS
    format_weight: float = number(0.1, at_least=0, below=1)
    overlong_buffer: int = number(0, at_least=0)  # last tokens of max_tokens that cost
    overlong_factor: float = number(1.0, at_least=0)  # what an answer cut off costs
    # "path/to/file.py:name" or "module:name", "rules" for the above, several behind commas; empty: rules
    function: str = ""
    weights: tuple[float, ...] = ()  # of each function; empty: 1
    # Where no function says which answers are correct, those with a higher reward are.
    correct_above: float = number(0.5)
    timeout_s: float = number(300.0, above=0)  # of a call; then its answers have no verdict
    concurrency: int = number(1, at_least=1)  # calls at a time; beyond 1 from several threads

    @property
    def functions(self) -> tuple[str, ...]:
        """The names in `function`; none: rules alone."""
        return tuple(filter(None, (name.strip() for name in self.function.split(","))))

    @property
    def has_rules(self) -> bool:
        """Whether the built-in verifiers judge, so that every row needs a right answer of a kind."""
        return not self.functions or "rules" in self.functions

    def __post_init__(self):
        super().__post_init__()
        if self.weights and len(self.weights) != len(self.functions):
            raise ValueError(
                f"reward.weights={self.weights}: give one for each of the {len(self.functions)} "
                f"functions of reward.function={self.function!r}"
            )
        if any(not isinstance(x, int | float) or not math.isfinite(x) for x in self.weights):
            raise ValueError(f"reward.weights={self.weights}: must be numbers")


# ------------------------------------------------------------------------------ learning
@dataclasses.dataclass(frozen=True)
class Loss(Section):
    """The objective: GRPO (arXiv 2402.03300) by default, GSPO (arXiv 2507.18071) with `GSPO`."""

    path: ClassVar[str] = "loss."

    ratio: str = choice("token", "sequence")
    clip_low: float = number(0.2, at_least=0, below=1)
    clip_high: float = number(0.2, at_least=0)
    dual_clip: float = 3.0  # 0: none
    aggregate: str = choice(
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    )
    mask_cut_off: bool = False  # True: answers that were cut off are not trained on
    kl: str = choice("k3", "k1", "abs", "k2", "k1+", "k3+")  # estimator: losses.kl
    kl_coef: float = number(0.01, at_least=0)  # 0: no reference policy is kept
    # "behaviour" takes the engine's log-probs for the old policy's; "trainer" computes them again.
    old_logp: str = choice("trainer", "behaviour")
    # "token" or "sequence": truncated trainer/engine importance weights; empty: none
    importance: str = choice("", "token", "sequence")
    importance_cap: float = number(2.0, above=0)

    def __post_init__(self):
        super().__post_init__()
        if self.dual_clip != 0 and not self.dual_clip > 1:
            raise ValueError(f"loss.dual_clip={self.dual_clip}: must be above 1, or 0 for none")


# The fields of `Loss` that tell the algorithms apart.
GRPO = types.MappingProxyType(
    dict(
        ratio="token",
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
        aggregate="token-mean",
    )
)
GSPO = types.MappingProxyType(  # its authors' narrow clip
    dict(
        ratio="sequence",
        clip_low=3e-4,
        clip_high=4e-4,
        dual_clip=0.0,
        aggregate="seq-mean-token-mean",
    )
)
DAPO = types.MappingProxyType(  # arXiv 2503.14476: clip-higher, no KL
    GRPO | dict(clip_high=0.28, dual_clip=10.0, kl_coef=0.0)
)
DR_GRPO = (
    types.MappingProxyType(  # arXiv 2503.20783: a constant for the length, no KL; scale_by_std
        GRPO | dict(aggregate="seq-mean-token-sum-norm", dual_clip=0.0, kl_coef=0.0)
    )
)


@dataclasses.dataclass(frozen=True)
class Optimizer(Section):
    """AdamW behind a clip of the global gradient norm."""

    path: ClassVar[str] = "optimizer."

    learning_rate: float = number(1e-6, at_least=0)  # the peak
    warmup_steps: int = number(0, at_least=0)  # optimizer updates from 0 to the peak
    decay_steps: int = number(0, at_least=0)  # cosine to a tenth; 0: constant
    b1: float = number(0.9, at_least=0, below=1)
    b2: float = number(0.999, at_least=0, below=1)
    weight_decay: float = number(0.01, at_least=0)
    clip_norm: float = number(1.0, above=0, at_most=math.inf)
    remainders: bool = True  # beside bfloat16 weights; without them small updates round to nothing
    frozen: tuple[str, ...] = ()  # parameter path prefixes, such as ("vision",)


@dataclasses.dataclass(frozen=True)
class Batch(Section):
    """How a step's rollouts are cut into optimizer updates and into what memory holds."""

    path: ClassVar[str] = "batch."

    prompts_per_minibatch: int = 128  # prompts of an optimizer update
    prompts_per_microbatch: int = 16  # prompts in memory at once
    answers_per_row: int = number(0, at_least=0)  # share a prompt; 0: num_rollouts
    vocab_chunk: int = number(1024, at_least=1)  # tokens whose logits exist at once
    remat: bool = True  # compute activations again in the backward pass


@dataclasses.dataclass(frozen=True)
class Mesh(Section):
    """Axes of the device mesh; one may be -1, which takes the remaining devices."""

    path: ClassVar[str] = "mesh."

    data: int = 1
    fsdp: int = -1
    tensor: int = 1


@dataclasses.dataclass(frozen=True)
class Eval(Section):
    """Validation while training."""

    path: ClassVar[str] = "eval."

    every: int = number(5, at_least=0)  # steps; the first is before step 1; 0: only at the end
    num_samples: int = number(4, at_least=1)  # accuracy is the mean of so many answers
    temperature: float = number(1.0, at_least=0)
    max_tokens: int = number(2048, at_least=1)
    benchmarks: str = ""  # "mathvista:FILE,chartqa:FILE", scored by rules alone
    profile: str = "cot"  # of their prompts and rules; or paper
    benchmark_items: int = number(0, at_least=0)  # the first of each; 0: all


@dataclasses.dataclass(frozen=True)
class Checkpoint(Section):
    """When the run is saved."""

    path: ClassVar[str] = "checkpoint."

    every: int = number(20, at_least=1)  # steps
    keep: int = number(2, at_least=1)  # the newest


@dataclasses.dataclass(frozen=True)
class Perf(Section):
    """What is done for speed, and what it is compared with."""

    path: ClassVar[str] = "perf."

    # Compiled programs are kept in the run directory's parent, for the next run: run/compiled.py
    compile_cache: bool = True
    # Of one device in the dtype of the computation, for perf/mfu; 0: bfloat16's, by its name
    peak_tflops: float = number(0.0, at_least=0)


# ------------------------------------------------------------------------------ the run
def places_per_item(selector: str, options: Mapping[str, Any]) -> int:
    """Returns how many of a batch's places an item takes: with DIVA's variants, one more for each."""
    return 1 + options.get("num_variants", 1) if selector == "diva" else 1


@dataclasses.dataclass(frozen=True)
class Run(Section):
    """A training run, whole."""

    seed: int = fields.seed()  # of data, selection, rollouts and the tiny model
    num_steps: int = number(240, at_least=1)  # RL steps, where num_epochs does not say it
    # As many steps as take this many times the items of the data: B a step, of which DIVA's variants are
    # no items, and without further rounds of `refill`; 0: num_steps.
    num_epochs: float = number(0.0, at_least=0)
    # Answers that may be paid for, those of passes and of refill's rounds included, over those of
    # num_steps plain steps: once they are spent, no step begins, and no pass that spends them all.
    # 0: num_steps alone ends the run.
    budget: float = number(0.0, at_least=0)
    num_prompts: int = number(512, at_least=1)  # B, prompts a step
    # G, answers to a prompt
    num_rollouts: int = number(8, at_least=2, why="as a group of one has no advantage")
    scale_by_std: bool = True  # GRPO's advantage; False is Dr. GRPO's
    selector: Selector = Selector()
    measure: Measure = Measure()
    refill: Refill = Refill()
    model: Model = Model()
    lora: Lora = Lora()
    warm_start: WarmStart = WarmStart()
    data: Data = Data()
    engine: Engine = Engine()
    layout: Layout = Layout()
    sampling: Sampling = Sampling()
    diva: Diva = Diva()
    reward: Reward = Reward()
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    batch: Batch = Batch()
    mesh: Mesh = Mesh()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    perf: Perf = Perf()
    tensorboard: bool = False
    wandb: str = ""  # Weights & Biases project that gets the numbers too; empty: none

    @property
    def max_rollouts(self) -> int:
        """The answers that `budget` stands for, at least one; 0: any number."""
        num_answers = self.budget * self.num_steps * self.num_prompts * self.num_rollouts
        return max(round(num_answers), 1) if self.budget else 0

    @property
    def whole_measure(self) -> Measure:
        """The passes over all items, with G answers and a step's number of them where none is named."""
        num_rollouts = self.measure.num_rollouts or self.num_rollouts
        num_prompts = self.num_prompts * self.num_rollouts // num_rollouts
        return dataclasses.replace(
            self.measure,
            num_rollouts=num_rollouts,
            num_prompts=self.measure.num_prompts or max(1, num_prompts),
        )

    def with_items(self, num_items: int) -> "Run":
        """Returns the same run with the steps that its epochs over so many items take."""
        if not self.num_epochs:
            return self
        places = num_items * places_per_item(self.selector.name, self.selector.options)
        # 1.1 epochs of 100 items are 110 items, not a part of the next one more.
        num_steps = math.ceil(round(self.num_epochs * places / self.num_prompts, 6))
        return dataclasses.replace(self, num_steps=max(num_steps, 1))

    def __post_init__(self):
        super().__post_init__()
        sampling, loss, reward, batch = self.sampling, self.loss, self.reward, self.batch
        if loss.importance and loss.old_logp == "behaviour":
            raise ValueError(
                f"loss.importance={loss.importance!r} weighs the trainer's log-probs against "
                "the engine's: set loss.old_logp='trainer'"
            )
        if sampling.top_p < 1 or sampling.top_k:
            # Else every ratio would be off by what the truncation leaves out.
            for name, fitting in (("old_logp", "trainer"), ("importance", "")):
                if (value := getattr(loss, name)) != fitting:
                    raise ValueError(
                        f"loss.{name}={value!r} is of the truncated distribution, the update's log-probs "
                        f"are not: set sampling.top_p=1 and sampling.top_k=0, or loss.{name}={fitting!r}"
                    )
        if self.lora.rank and self.model.param_dtype != "float32":
            raise ValueError(
                f"model.param_dtype={self.model.param_dtype!r} is of weights that learn; with "
                f"lora.rank={self.lora.rank} an adapter does, and the base is in the dtype of the "
                "computation already: leave it at 'float32'"
            )
        if reward.overlong_buffer >= sampling.max_tokens:
            raise ValueError(
                f"reward.overlong_buffer={reward.overlong_buffer} leaves no answer of "
                f"sampling.max_tokens={sampling.max_tokens} unpunished: lower the buffer or "
                "raise max_tokens"
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
