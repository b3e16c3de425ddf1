"""Qwen2.5-VL, Qwen3-VL, Qwen3.5 and their text models: configs, modules and weights; the names for others."""

from vade_jax.models.qwen.attention import Cache as Cache
from vade_jax.models.qwen.config import Config as Config
from vade_jax.models.qwen.model import Model as Model
from vade_jax.models.qwen.model import abstract as abstract
from vade_jax.models.qwen.model import graph as graph
from vade_jax.models.qwen.model import init as init
from vade_jax.models.qwen.model import merge as merge
from vade_jax.models.qwen.model import split as split
from vade_jax.models.qwen.presets import PRESETS as PRESETS
