"""The pool against a plain loop: order and errors."""

import time

import pytest

from vade_jax import types
from vade_jax.data import loading


@pytest.mark.parametrize("num_threads", [1, 3])
def test_results_are_in_order_and_threads_change_nothing(num_threads):
    def slow_when_small(x):
        time.sleep(0.002 * (5 - x % 5))
        return x * x

    with loading.threads(num_threads) as in_threads:
        assert [*in_threads(slow_when_small, range(23))] == [x * x for x in range(23)]
        assert [*in_threads(slow_when_small, [])] == []


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_error_is_of_the_first_item(num_threads):
    def fail(item):
        time.sleep(0.02 * (item.uid == "b"))  # d fails before it
        if item.uid in "bd":
            raise ValueError(f"broken {item.uid}")

    items = [types.Item(uid, "q", (), "1", "int") for uid in "abcd"]
    with loading.threads(num_threads) as in_threads:
        with pytest.raises(ValueError, match="broken b"):
            list(in_threads(fail, items))
        assert [*in_threads(lambda x: x.uid, items)] == list("abcd")  # it goes on
