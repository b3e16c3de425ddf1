"""Repairs vLLM's CPU build for Qwen2.5-VL, in every process that has this folder on PYTHONPATH.

1. It comes with torchvision, torchaudio and torchcodec built for CUDA, whose C++ libraries cannot
   load beside CPU torch. `import torchvision` then ends with "operator torchvision::nms does not
   exist", and with it Qwen2.5-VL's processor, which needs no such operator; the other two end with
   an OSError, and with them transformers and vLLM, which do without them. Just before transformers
   or torchvision is imported, the operators are declared, without code, and the other two packages
   are hidden as if they were not installed. What can load is left alone.
2. It packs the head's weights for its own matrix product. A head that is tied to the embedding is
   not packed again when weights are reloaded in place: logits would stay those of the old head. The
   head is multiplied from the weights themselves instead.
"""

import importlib.abc
import importlib.machinery
import pathlib
import sys

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
SCHEMAS = (f"nms{_BOXES}", f"qnms{_BOXES}")
_HIDDEN = {
    "torchaudio": "lib/_torchaudio*.so",
    "torchcodec": "libtorchcodec_image.so",
}
_HEAD = "vllm.model_executor.layers.vocab_parallel_embedding"


class Repair(importlib.abc.MetaPathFinder):
    """Repairs once, when one of the packages is looked for."""

    done = False
    library = None  # the declarations live as long as this object

    def find_spec(self, fullname, path, target=None):
        if fullname in ("torchvision", "transformers") and not self.done:
            self.done = True
            if _broken("torchvision", "_C.so"):
                self.library = _declare()
            for package, library in _HIDDEN.items():
                if _broken(package, library):
                    sys.modules[package] = None
        if fullname == _HEAD:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            spec.loader = _ThenUnpack(spec.loader)
            return spec
        return None


class _ThenUnpack(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self._loader.exec_module(module)
        _unpack(module)


def _unpack(module):
    from torch.nn import functional

    def process_weights_after_loading(self, layer):
        layer.cpu_linear = functional.linear

    method = module.UnquantizedEmbeddingMethod
    method.process_weights_after_loading = process_weights_after_loading


def _broken(package, pattern):
    """Returns whether a package is installed with a library that does not load."""
    found = importlib.machinery.PathFinder.find_spec(package)
    if found is None:
        return False
    import torch

    try:
        for library in pathlib.Path(found.origin).parent.glob(pattern):
            torch.ops.load_library(library)
    except OSError:
        return True
    return False


def _declare():
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    return library


def install():
    """Once a process, however often this file is run in it."""
    if not any(type(finder).__name__ == "Repair" for finder in sys.meta_path):
        sys.meta_path.insert(0, Repair())
        if _HEAD in sys.modules:
            _unpack(sys.modules[_HEAD])


install()
