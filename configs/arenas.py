"""Arenas: jobs in which better selection can help, and the controls that test whether it does.

All but `smollm` are the tiny job with other data; those of `easy_vqa` are not our own.

configs/sweep.py makes a sweep of each arena. docs/arenas.md has the results of the controls, docs/results.md
those of the sweeps.
"""

from ml_collections import ConfigDict

from configs import arms, easy_vqa
from experiments.arenas import controls

# How often the teacher gives the answer of another item of the same family and level, so that right answers
# are rare at first. The other item often has the same answer: 0.66 to 0.76 of Frontier's letters are wrong.
SHY = 0.9
LESSONS = 500  # supervised steps
ARENAS = {
    "frontier": {
        "mixture": dict(
            color_0=35, hidden_0=20, letter_0=12, letter_1=11, letter_2=11, letter_3=11
        ),
        "taught": dict(color_0=57, hidden_0=3, letter_0=10, letter_1=10, letter_2=10, letter_3=10),
        "noise": dict.fromkeys(("letter_0", "letter_1", "letter_2", "letter_3"), SHY),
        "steps": 60,
    },
    "ladder": {
        "mixture": dict(
            color_0=28, color_1=6, hidden_0=20, letter_0=8, initials_0=34, initials_1=4
        ),
        "taught": dict(
            color_0=35, color_1=22, hidden_0=3, letter_0=14, initials_0=13, initials_1=13
        ),
        "noise": dict.fromkeys(("letter_0", "initials_0", "initials_1"), SHY),
        "steps": 80,  # by step 60 the second rung has hardly begun
    },
    "digits": {
        "mixture": dict(read_0=35, hidden_0=20, spell_0=18, spell_1=9, spell_2=18),
        "taught": dict(read_0=57, hidden_0=3, spell_0=15, spell_1=10, spell_2=15),
        # With more noise, letters that occur in the names of many digits would be likelier than the right
        # ones. At 0.8 the teacher is wrong in 0.59 to 0.72 of the answers.
        "noise": dict.fromkeys(("spell_0", "spell_1", "spell_2"), 0.8),
        "steps": 60,
    },
    # The longer the answer, the harder and more expensive the prompt.
    "lengths": {
        "mixture": dict(numbers_0=25, numbers_1=20, numbers_2=20, numbers_3=15, hidden_0=20),
        "taught": dict(numbers_0=30, numbers_1=25, numbers_2=22, numbers_3=20, hidden_0=3),
        "noise": dict(numbers_0=0.6, numbers_1=0.75, numbers_2=0.85, numbers_3=SHY),
        "steps": 60,
        "max_tokens": 128,
    },
    # Taught in so few steps, the policy of the package answers more than half of these questions.
    "easy_vqa": {"lessons": dict(num_steps=80, batch_size=32, data="train"), "steps": 60},
    # Tests a pretrained model, so nothing is taught.
    "smollm": {
        "mixture": dict(
            plus_0=12, plus_1=10, plus_2=8, minus_0=8, minus_1=8, times_0=12, times_2=10,
            following_0=6, following_1=6, following_2=6, letters_0=6, story_0=8,
        ),
        "prompts": 8,
        "pool": 128,
        "steps": 60,
    },
}  # fmt: skip


def sizes(name):
    """Returns the words that set the sizes of an arena, with their defaults."""
    arena = ARENAS[name]
    # As many updates a step as in the paper
    return {"prompts": arena.get("prompts", 16), "steps": arena["steps"], "updates": 4}


def put(run, lessons, name, args):
    """Changes `run` and `lessons`, those of the tiny job, into an arena with the sizes in `args`."""
    arena = ARENAS[name]
    run.num_prompts, run.num_steps = args.prompts, args.steps
    run.batch.prompts_per_minibatch = args.prompts // args.updates
    run.batch.prompts_per_microbatch = run.batch.prompts_per_minibatch
    run.data.mixture = ConfigDict(arena.get("mixture", {}))
    if name == "easy_vqa":
        easy_vqa.put(run)
        run.model.preset = "tiny_reader"
    run.data.num_train = arena.get("pool", 256)
    # At a constant learning rate two runs with one seed ended up to 0.08 apart; with decay the curves settle.
    run.optimizer.decay_steps = args.updates * run.num_steps
    run.eval.num_samples, run.eval.every = 4, 20
    if name == "smollm":
        lessons.num_steps = 0
        _pretrained(run)
        return
    lessons.noise, lessons.num_steps = ConfigDict(arena.get("noise", {})), LESSONS
    lessons.mixture = ConfigDict(arena.get("taught", {}))
    lessons.update(arena.get("lessons", {}))
    # All arms have the same validation questions. Validating less often pays for more questions.
    run.data.num_validation = 1024
    run.checkpoint.every = 30
    run.optimizer.learning_rate = 2e-4
    if longest := arena.get("max_tokens"):
        run.sampling.max_tokens = run.eval.max_tokens = longest


def _pretrained(run):
    run.model.preset, run.model.size = "", "smollm2-135m"
    run.model.checkpoint = "HuggingFaceTB/SmolLM2-135M-Instruct"
    run.data.instruction = "Answer with just the number."
    run.reward.function = "docs/examples/last_number.py:last_number"  # it never learned to box
    run.reward.format_weight = 0.0
    run.data.max_prompt_length, run.data.length_multiple = 96, 16
    run.sampling.max_tokens = run.eval.max_tokens = 16
    run.engine.prompts_per_call = run.num_prompts
    run.batch.remat = False  # such short sequences need not save memory
    run.data.num_validation = 128
    run.checkpoint.every = 20
    run.optimizer.learning_rate = 1e-5


def dose(c):
    """Changes a run to the control `dose`: uniform, three times the prompts, in as many updates."""
    arms.selector("uniform")(c)
    c.num_prompts *= 3
    c.batch.prompts_per_minibatch *= 3
    c.batch.prompts_per_microbatch *= 3


def stability(c):
    """Changes a run to the control `stability`: uniform again, with gradients summed in another order."""
    arms.selector("uniform")(c)
    c.batch.prompts_per_microbatch //= 2


def pooled_blind(c):
    """Changes a run to the selector `pooled` with all items in one category."""
    arms.selector("pooled")(c)
    c.selector.arrays = ConfigDict()


# The arms that show whether an arena can separate selectors, and two that the pages have.
CONTROLS = {
    "informed_quarter": arms.selector("informed", uniform_share=0.25),
    controls.DOSE: dose,
    controls.ORACLE: arms.selector("strata"),
    controls.STABILITY: stability,
    "pooled_blind": pooled_blind,
}
