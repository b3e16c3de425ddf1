"""Every field of a config, what it means and its default; the other files change these."""

import operator

from ml_collections import ConfigDict

from vade_jax.samplers import SAMPLERS


def get_config() -> ConfigDict:
    """Returns the values of verl's Qwen2.5-VL recipe where the paper names none."""
    c = ConfigDict()
    c.seed = 0
    c.num_steps = 240  # RL steps
    c.num_prompts = 512  # B, prompts a step
    c.num_rollouts = 8  # G, answers to a prompt
    c.scale_by_std = True  # GRPO's advantage; False is Dr. GRPO's

    c.sampler = ConfigDict()
    c.sampler.name = "vade"  # a key of vade_jax.samplers.SAMPLERS
    c.sampler.options = ConfigDict(  # the sampler's keyword arguments
        dict(
            decay_selected=0.2,
            decay_rest=0.999,
            info_gain="p(1-p)^2",  # or p(1-p)
            draw="thompson",  # or greedy, mean
            history="two_scale",  # or last_update
            warmup="full",  # or none
        )
    )

    # What the sampler's init needs of every item: argument=metadata fields, "family,level"
    c.sampler.arrays = ConfigDict()

    c.measure = ConfigDict()  # passes over all items, for the selector alone
    c.measure.every = 0  # T, steps; the first is before step 1; 0: never
    c.measure.num_rollouts = 0  # answers to each item; 0: num_rollouts

    c.refill = ConfigDict()  # where the sampler drops groups: trainer.rounds.Refill
    c.refill.max_rounds = 1  # of rollouts in a step; more fill the batch up
    c.refill.ask = "batch"  # of prompts a round: missing, or estimate (GRESO's)
    c.refill.at_cap = "fewer"  # are trained on; or repeat the kept ones, or stop
    c.refill.surplus = "discard"  # groups beyond B; or train on them too

    c.model = ConfigDict()
    c.model.checkpoint = ""  # a Hugging Face directory; empty: built from the preset
    c.model.preset = ""  # "tiny": random weights and a tokenizer of its own
    c.model.size = ""  # 3b or 7b: the checkpoint must have this shape; empty: any
    c.model.dtype = "auto"  # of the computation: bfloat16, float32; auto: by device

    c.warm_start = ConfigDict()  # supervised steps before RL; 0 steps: none
    c.warm_start.num_steps = 0
    c.warm_start.batch_size = 64
    c.warm_start.learning_rate = 1e-3
    c.warm_start.b2 = 0.95  # short runs want a short memory of gradient sizes
    c.warm_start.noise = ConfigDict()  # family_level: how often the teacher is wrong
    c.warm_start.directory = ""  # where it lies or goes; empty: in the run directory

    c.data = ConfigDict()
    c.data.train = ""  # "procedural", a .jsonl/.parquet/.arrow file or a directory
    c.data.validation = ""  # a directory of build_data holds both
    c.data.num_train = 0  # procedural: items; files: 0 takes all
    c.data.num_validation = 0
    c.data.wrong_golds = 0.0  # share of the procedural training items, on purpose
    c.data.instruction = (
        "Think step by step inside <think> </think>, "
        "then give the final answer inside \\boxed{}."
    )
    c.data.min_pixels = 3136
    c.data.max_pixels = 1003520
    c.data.max_prompt_length = 8192  # tokens
    c.data.drop_too_long = (
        True  # longer prompts are left out, counted and listed; or an error
    )
    c.data.length_multiple = 128  # prompts are padded to few multiples of this
    c.data.num_threads = 4  # that decode images while the policy learns; 0: none

    c.engine = ConfigDict()
    c.engine.name = "local"  # or vllm_server
    c.engine.prompts_per_call = 64  # local: prompts decoded together
    c.engine.urls = ()  # vllm_server: servers that run already; empty: the run starts its own
    c.engine.model = ""  # the name they serve it under; empty: the checkpoint's path
    c.engine.num_servers = 1  # that the run starts
    c.engine.tensor_parallel = 1  # GPUs of each
    c.engine.max_in_flight = 256  # requests (a prompt each) at once, over all servers
    c.engine.timeout_s = 1800.0  # of a request; then the server counts as hanging
    c.engine.wait_s = 300.0  # the longest wait for a server of `urls` that is down
    c.engine.retries = 3  # of a request, before the run saves and stops
    c.engine.sync_directory = (
        ""  # new weights on their way to the servers, which must see it;
    )
    # empty: <workdir>/weights
    c.engine.options = ConfigDict()  # more of vLLM's own, such as max_num_seqs=512

    c.layout = ConfigDict()  # who has which GPU: the top of configs/qwen.py explains it
    c.layout.train = ""  # "0,1": the GPUs that train; empty: all
    c.layout.serve = ""  # "2,3": the GPUs of the vLLM servers; empty: all
    c.layout.train_memory = 0.0  # share of a GPU that JAX takes; 0: its default, 0.75
    c.layout.serve_memory = 0.9  # share of a GPU that vLLM takes
    c.layout.sleep = False  # vLLM gives its memory back while the policy learns

    c.sampling = ConfigDict()
    c.sampling.temperature = 1.0
    c.sampling.top_p = 1.0
    c.sampling.top_k = 0
    c.sampling.max_tokens = 2048

    c.diva = ConfigDict()  # what the sampler diva adds to a run
    c.diva.changes = (  # of pictures, in harder variants
        "rotate",
        "write",
        "gaussian",
        "salt_pepper",
        "speckle",
        "blur",
    )
    c.diva.norm = "sequence"  # over the batch; or code, off
    c.diva.weight = 0.1  # k, of a variant's difficulty
    c.diva.weighted = "global"  # or both
    c.diva.balance = "range"  # or low_reward (the authors' code), off
    c.diva.local_share = 1.0
    c.diva.global_share = 1.0

    c.reward = ConfigDict()
    c.reward.format = "think_boxed"  # or boxed
    c.reward.format_weight = 0.1  # reward = 0.9 correct + 0.1 well formed
    c.reward.overlong_buffer = 0  # the last tokens of max_tokens that cost; 0: none
    c.reward.overlong_factor = 1.0  # what an answer that was cut off costs

    c.loss = ConfigDict()  # the fields of trainer.objectives.PolicyLoss
    c.loss.mask_cut_off = False  # True: answers that were cut off are not trained on
    c.loss.kl = "k3"
    c.loss.kl_coef = 0.01
    c.loss.old_logp = "trainer"  # or behaviour: the engine's
    c.loss.importance = ""  # token or sequence: truncated trainer/engine weights
    c.loss.importance_cap = 2.0
    grpo(c)

    c.optimizer = ConfigDict()
    c.optimizer.learning_rate = 1e-6
    c.optimizer.warmup_steps = 0
    c.optimizer.decay_steps = 0
    c.optimizer.b1 = 0.9
    c.optimizer.b2 = 0.999
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip_norm = 1.0
    c.optimizer.frozen = ()  # parameter path prefixes, such as ("vision",)

    c.batch = ConfigDict()
    c.batch.prompts_per_minibatch = 128  # prompts an optimizer update
    c.batch.prompts_per_microbatch = 16  # prompts in memory at once
    c.batch.answers_per_row = 0  # against one copy of the prompt; 0: num_rollouts
    c.batch.vocab_chunk = 1024  # tokens whose logits are held at once
    c.batch.remat = True

    c.mesh = ConfigDict(dict(data=1, fsdp=-1, tensor=1))  # -1: the remaining devices

    c.eval = ConfigDict()
    c.eval.every = 5
    c.eval.num_samples = 4  # accuracy is the average of this many answers
    c.eval.temperature = 1.0
    c.eval.max_tokens = 2048
    c.eval.benchmarks = ""  # too: "mathvista:FILE,chartqa:FILE", by rules alone
    c.eval.profile = "cot"  # of their prompts and rules; or paper
    c.eval.benchmark_items = 0  # the first of each; 0: all

    c.checkpoint = ConfigDict(dict(every=20, keep=2))
    c.tensorboard = False
    c.wandb = ""  # Weights & Biases project that gets the numbers too; empty: none
    return c


def grpo(c: ConfigDict) -> None:
    """Sets GRPO: token ratios, verl's clip and token-mean."""
    c.loss.update(
        ratio="token",
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
        aggregate="token-mean",
    )


def gspo(c: ConfigDict) -> None:
    """Sets GSPO: sequence ratios and the narrow clip of its authors."""
    c.loss.update(
        ratio="sequence",
        clip_low=3e-4,
        clip_high=4e-4,
        dual_clip=0.0,  # 0: none
        aggregate="seq-mean-token-mean",
    )


def dapo(c: ConfigDict) -> None:
    """Sets DAPO (arXiv 2503.14476): GRPO with clip-higher, no KL, soft overlong punishment.

    The last fifth of an answer's limit costs, as in the paper; set `sampling.max_tokens` before. The
    other part, dynamic sampling, is a selector: `selector(c, "dapo")`.
    """
    grpo(c)
    c.loss.clip_high = 0.28
    c.loss.dual_clip = 10.0  # of its authors' script
    c.loss.kl_coef = 0.0
    c.reward.overlong_buffer = c.sampling.max_tokens // 5


def selector(c: ConfigDict, name: str) -> None:
    """Sets another selector than VADE, with its own defaults."""
    if name == c.sampler.name:
        return
    plain = get_config()
    for path in {path for method in SAMPLERS.values() for path in method.goes_with}:
        _set(c, path, operator.attrgetter(path)(plain))
    c.sampler.name = name
    c.sampler.options = ConfigDict()
    for path, value in SAMPLERS[name].goes_with.items():
        _set(c, path, value)


def _set(c: ConfigDict, path: str, value) -> None:
    section, _, name = path.rpartition(".")
    value = ConfigDict(dict(value)) if hasattr(value, "items") else value
    setattr(operator.attrgetter(section)(c), name, value)
