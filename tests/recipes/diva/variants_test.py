"""From a wanted difficulty to a variant: what it is, how hard it says it is, and its answer."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from vade_jax.data import images, procedural
from vade_jax.recipes.diva import built_in, variants
from vade_jax.rewards import verify
from vade_jax.types import Item

LIMITS = {"min_pixels": 112 * 112, "max_pixels": 112 * 112}
PARTS = [(f, n - 1) for f, (_, n, _) in procedural.FAMILIES.items()]
TEXTS = {"paraphrases": ["So?", "Well?"], "steps": ["One.", "Two.", "Three.", "Four."]}


def of_built_in(**options):
    return variants.Vary(built_in.texts, allowed=built_in.allowed, **LIMITS, **options)


def user_item(**metadata):
    picture = Image.fromarray(np.full((112, 112, 3), 200, np.uint8))
    return Item("a:1", "Why?", (picture,), "1", "int", TEXTS | metadata)


def of_users(**options):
    return variants.Vary(variants.from_metadata, **LIMITS, **options)


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_family_keeps_its_answers_and_its_size(part):
    """Gold, kind and options are the item's, the gold verifies, and nothing recompiles."""
    source, vary = procedural.Procedural(0, 4, mixture={part: 1}), of_built_in()
    for index in range(4):
        item = source[index]
        for delta in range(-4, 5):
            variant, difficulty = vary(item, 5.0, 5.0 + delta, np.random.default_rng(3))
            assert (variant.answer, variant.kind) == (item.answer, item.kind)
            for name in ("tolerance", "choices"):
                assert variant.metadata.get(name) == item.metadata.get(name)
            assert verify.verify_item(procedural.target_text(item), variant).correct
            assert difficulty == 5 + variant.metadata["delta"]
            picture = images.load(variant.images[0], **LIMITS)
            assert picture.shape == (112, 112, 3)
            if part[0] != "hidden":
                assert np.sign(variant.metadata["delta"]) == np.sign(delta)


@pytest.mark.parametrize("delta", range(-8, 9))
def test_the_difficulty_is_the_one_wanted_where_that_can_be_made(delta):
    vary = of_users()
    for own in (1.3, 5.0, 8.75):
        variant, difficulty = vary(
            user_item(), own, own + delta, np.random.default_rng(0)
        )
        assert difficulty == pytest.approx(own + delta)
        assert variant.metadata["delta"] == delta
        sort = {-1: "hints", 0: "paraphrase", 1: "picture"}[np.sign(delta)]
        assert variant.metadata["variant"].split()[0] == sort
        assert variant.uid != "a:1" and variant.uid.startswith("a:1 ")
    assert not set(vary.counts) - {"hints", "paraphrase", "picture"}


@pytest.mark.parametrize(
    ("delta", "steps"),
    [(-1, 1), (-2, 1), (-3, 2), (-5, 3), (-7, 4), (-8, 4)],
)
def test_hints_are_the_first_steps(delta, steps):
    variant, _ = of_users()(user_item(), 9.0, 9.0 + delta, np.random.default_rng(0))
    assert variant.question == variants.hinted("Why?", TEXTS["steps"][:steps])
    assert variant.images == user_item().images or len(variant.images) == 1


def test_texts_do_not_travel_with_the_variant():
    variant, _ = of_users()(
        user_item(tolerance=0.1), 5.0, 5.0, np.random.default_rng(0)
    )
    assert variant.metadata == {"tolerance": 0.1, "variant": "paraphrase", "delta": 0}
    assert variant.question in TEXTS["paraphrases"]


def test_half_of_the_changed_pictures_have_other_words():
    vary = of_users(changes=("blur",))
    questions = [
        vary(user_item(), 5.0, 6.0, np.random.default_rng(seed))[0].question
        for seed in range(200)
    ]
    assert 70 < questions.count("Why?") < 130 and set(questions) == {
        *("Why?", "So?", "Well?")
    }


def test_what_is_missing_is_counted_and_said_in_the_difficulty():
    vary, rng = of_users(), np.random.default_rng(0)
    bare = dataclasses.replace(user_item(), metadata={})
    variant, difficulty = vary(bare, 8.0, 4.0, rng)
    assert (variant.question, difficulty) == ("Why?", 8.0)
    assert vary.counts == {"no_steps": 1, "no_paraphrases": 1, "original": 1}
    few = user_item(steps=["One."])
    assert vary(few, 8.0, 1.0, rng)[1] == 6.0
    blind = dataclasses.replace(user_item(), images=())
    assert vary(blind, 5.0, 7.0, rng)[1] == 5.0 and vary.counts["no_pictures"] == 1


def test_changes_that_are_not_allowed_are_not_made():
    vary = of_built_in(changes=("rotate", "gaussian"))
    (item,) = (procedural.Procedural(0, 1, mixture={("table", 2): 1})[0],)
    for seed in range(20):
        variant, difficulty = vary(item, 1.0, 9.0, np.random.default_rng(seed))
        what = variant.metadata["variant"]
        assert "turned" in what and "gaussian" not in what and difficulty == 5.0
    digit = procedural.Procedural(0, 1, mixture={("written", 0): 1})[0]
    for seed in range(20):
        assert "turned" not in vary(digit, 5.0, 7.0, np.random.default_rng(seed))[0].uid


def test_a_question_that_no_picture_holds_is_not_written():
    vary = of_users(changes=("write", "blur"))
    long = dataclasses.replace(
        user_item(), question="Why? " * 300, metadata={"steps": []}
    )
    for seed in range(10):
        variant, difficulty = vary(long, 5.0, 7.0, np.random.default_rng(seed))
        assert variant.question == long.question and difficulty == 7.0
    assert vary.counts["no_room"] > 0


def test_a_variant_that_is_no_prompt_gives_way_to_the_item():
    vary = of_users(fits=lambda item: "steps help" not in item.question)
    variant, difficulty = vary(user_item(), 8.0, 4.0, np.random.default_rng(0))
    assert (variant.question, difficulty) == ("Why?", 8.0)
    assert vary.counts == {"too_long": 1, "original": 1}


def test_a_generator_repeats():
    item = user_item()
    one, other = (of_users()(item, 5.0, 9.0, np.random.default_rng(7)) for _ in "ab")
    assert one[0].uid == other[0].uid and one[0].question == other[0].question
    np.testing.assert_array_equal(*(np.asarray(x[0].images[0]) for x in (one, other)))


def test_an_upside_down_photo_is_set_upright_first():
    """What a camera noted of its position is applied before a turn is."""
    picture = Image.fromarray(
        np.arange(112 * 112 * 3).reshape(112, 112, 3).astype("u1")
    )
    exif = Image.Exif()
    exif[0x0112] = 3  # stored upside down
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    item = dataclasses.replace(user_item(), images=(Image.open(file),))
    vary = of_users(changes=("rotate",))
    variant, _ = vary(item, 5.0, 6.0, np.random.default_rng(0))
    degrees = int(variant.metadata["variant"].split()[-1])
    upright = np.asarray(picture)[::-1, ::-1]
    expected = np.rot90(upright, degrees // 90)
    np.testing.assert_array_equal(np.asarray(variant.images[0]), expected)


# ------------------------------------------------------------------------------ texts
def blank(question="Why?", num_images=1, **metadata):
    return Item("a:3", question, (None,) * num_images, "1", "int", metadata)


def test_the_lists_of_a_users_row_are_the_texts():
    found = variants.from_metadata(blank(paraphrases=[" So? ", ""], steps=["1 + 1."]))
    assert found == variants.Texts(paraphrases=("So?",), steps=("1 + 1.",))
    assert variants.from_metadata(blank(steps=None)) == variants.Texts()


@pytest.mark.parametrize("name", ["paraphrases", "steps"])
@pytest.mark.parametrize("value", ["one text", [1, 2]])
def test_what_is_no_list_of_texts_is_an_error_that_names_the_row(name, value):
    with pytest.raises(ValueError, match=rf"a:3: {name}=.*make_variants"):
        variants.from_metadata(blank(**{name: value}))


@pytest.mark.parametrize(
    ("question", "num_images", "paraphrase", "good"),
    [
        ("Why?", 1, "So?", True),
        ("<image>Why?", 1, "So?", True),  # a lone image comes first
        ("<image>Why?", 1, "So <image>?", True),
        ("Why?", 1, "<image>So?", False),
        ("Is <image> or <image> red?", 2, "Which is red, <image> or <image>?", True),
        ("Is <image> or <image> red?", 2, "Which is red?", False),
        ("Why <image>?", 2, "So?", False),
    ],
)
def test_a_paraphrase_shows_the_images_where_the_question_does(
    question, num_images, paraphrase, good
):
    found = variants.usable(blank(question, num_images), (paraphrase,))
    assert found == ([paraphrase] if good else [])


# ------------------------------------------------------------------------------ hints
def test_the_more_easier_the_more_steps():
    of_five = [variants.num_hints(-k, 5) for k in range(1, 9)]
    assert of_five == [1, 1, 2, 2, 3, 3, 5, 5]
    assert [variants.num_hints(-k, 2) for k in range(1, 9)] == [1, 1, *[2] * 6]


def test_steps_that_are_not_there_make_nothing_easier():
    assert [variants.hint_delta(-k, 4) for k in range(1, 9)] == [*range(-1, -9, -1)]
    assert [variants.hint_delta(-k, 3) for k in (1, 5, 6, 7, 8)] == [-1, -5, -6, -6, -6]
    assert [variants.hint_delta(-k, 1) for k in (1, 2, 8)] == [-1, -2, -2]


def test_hints_stand_behind_the_question():
    text = variants.hinted("Why?", ["First.", "Then."])
    assert text.startswith("Why?\n") and text.endswith(": First. Then.")


# ------------------------------------------------------------------------------ the check
def test_missing_texts_are_counted():
    rows = [
        blank(paraphrases=["So?"], steps=["1."]),
        blank(paraphrases=["<image><image>"], steps=["1."]),
        blank(paraphrases=["So?", "Well?"]),
    ]
    lacking = variants.count_lacking(rows, variants.from_metadata)
    assert lacking == {"paraphrases": 1, "steps": 1, "unusable_paraphrases": 1}


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"steps": ["1."]}, "paraphrases"), ({"paraphrases": ["So?"]}, "steps")],
)
def test_data_without_any_is_an_error_that_says_how_to_make_them(metadata, name):
    rows = [blank(**metadata)] * 3
    message = f"none of 3 training items has usable '{name}'.*experiments.make_variants"
    with pytest.raises(ValueError, match=message):
        variants.count_lacking(rows, variants.from_metadata)
