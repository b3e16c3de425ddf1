"""Sections: what other code does with one."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from vade_jax import fields, settings


@dataclasses.dataclass(frozen=True)
class Some(fields.Section):
    options: Mapping[str, Any] = fields.mapping(a=1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_section_with_mappings_is_pickled_and_copied(copied):
    run = settings.Run(selector=settings.Selector(options={"decay_rest": 0.9}))
    assert copied(run) == run
    assert copied(Some()) == Some() == Some(options={"a": 1}) != Some(options={})


def test_dataclasses_asdict_takes_a_section():
    assert dataclasses.asdict(Some()) == Some().to_dict() == {"options": {"a": 1}}
    assert dataclasses.asdict(settings.Run())["selector"]["options"] == {}
