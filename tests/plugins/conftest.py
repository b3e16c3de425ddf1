"""What verl's tests share: a Ray of their own and verl's queue in it."""

import pytest


@pytest.fixture(scope="session")
def queue():
    import ray
    import transfer_queue
    from omegaconf import OmegaConf

    # more than a small machine has: the queue's actors would wait for each other's processor
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    storage = {"SimpleStorage": {"num_data_storage_units": 1}}
    transfer_queue.init(OmegaConf.create({"backend": storage}))
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()
