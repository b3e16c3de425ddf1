"""What is said of values that not every item has."""

import numpy as np
import pytest

from vade_jax.samplers import per_item


@pytest.mark.parametrize("values", [["a", None, "b", None], np.array([0, np.nan, 2, 2])])
def test_a_missing_value_of_an_item_is_named(values):
    with pytest.raises(ValueError, match="category of item 1 is "):
        per_item.check_per_item("sec", "category", values, 4)


def test_a_number_and_a_text_are_two_categories():
    category_I, count = per_item.categories("sec", [2, "1", 1, "2", 1], 5)
    assert category_I.tolist() == [1, 2, 0, 3, 0] and count == 4
    category_I, count = per_item.categories("sec", np.array(["b", "a", "b"]), 3)
    assert category_I.tolist() == [1, 0, 1] and count == 2


def test_arrays_over_the_items_are_known_by_their_names():
    names = ("alpha_I", "feature_ID", "base.count_I3", "weight_D", "likelihood_K", "cov_DD")
    assert [per_item.is_per_item(name) for name in names] == [True, True, True, False, False, False]
