"""A policy behind OpenAI's chat API: python -m experiments.serve --checkpoint=DIR."""

from ml_collections import ConfigDict

from configs import arguments, default


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns where the server listens, what a request may ask for and how it is decoded."""
    arguments.parse(arg)
    c = ConfigDict()
    c.host = "127.0.0.1"  # this machine alone; there is no authentication
    c.port = 8000  # 0: any that is free
    c.model_name = ""  # that requests give; empty: the name of the directory
    c.model = ConfigDict(dict(checkpoint="", dtype="auto"))

    c.sampling = ConfigDict()  # where a request does not say
    c.sampling.temperature = 1.0
    c.sampling.top_p = 1.0
    c.sampling.top_k = 0
    c.sampling.max_tokens = 2048

    c.limits = ConfigDict()
    c.limits.max_tokens = 4096  # of an answer
    c.limits.body_mb = 64.0  # of a request, pictures and all
    c.limits.image_megapixels = 64.0  # of a picture before it is resized
    c.limits.timeout_s = 60.0  # of a client that neither sends nor reads

    c.window_ms = 5.0  # a request waits so long for others
    c.programs = 16  # engines whose compiled programs are kept

    run = default.get_config()
    c.data = ConfigDict()
    for name in ("min_pixels", "max_pixels", "max_prompt_length", "length_multiple"):
        c.data[name] = run.data[name]
    c.engine = ConfigDict(dict(prompts_per_call=16))  # answers decoded together
    c.layout, c.mesh = run.layout, run.mesh
    return c
