"""The selector in verl's own default trainer, agent loops and rewards; only the model is made up."""

import collections
import importlib.util
import json
import time
from unittest import mock

import pytest

from tests.plugins import verl_dataset_test as parts
from tests.plugins.trl_trainer_test import policy
from vade_jax.plugins import choosing
from vade_jax.selector import Selector

pytestmark = [
    pytest.mark.plugins,
    pytest.mark.skipif(not importlib.util.find_spec("verl"), reason="needs verl"),
]
B, G = parts.B, parts.G
DOCUMENTED = """
data.custom_cls.path=pkg://vade_jax.plugins.verl_dataset data.custom_cls.name=SelectingDataset
data.dataloader_num_workers=0
+data.selector.num_rollouts=${actor_rollout_ref.rollout.n} +data.selector.id_column=id
trainer.v1.sampler.custom_sampler.path=pkg://vade_jax.plugins.verl_replay
trainer.v1.sampler.custom_sampler.name=SelectingReplayBuffer
"""
SIZES = f"""
data.train_batch_size={B} data.max_prompt_length=16 data.max_response_length=8
actor_rollout_ref.rollout.n={G} actor_rollout_ref.rollout.name=vllm
actor_rollout_ref.rollout.agent.num_workers=2 reward.num_workers=1
actor_rollout_ref.actor.ppo_mini_batch_size={B} actor_rollout_ref.actor.use_dynamic_bsz=True
trainer.n_gpus_per_node=1
algorithm.adv_estimator=grpo algorithm.rollout_correction.bypass_mode=True
trainer.critic_warmup=99 trainer.total_training_steps=4 trainer.save_freq=2
trainer.val_before_train=True trainer.logger=[] trainer.device=cpu
"""
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return 0.9 * (len(solution_str.split()) % 2) + 0.1  # 0.1 for format
"""
CHAT = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def compose(folder, *more):
    """Returns verl's own configuration with the lines of docs/plugins.md, and the sizes of a test."""
    import hydra

    files = f"""
    data.train_files={folder}/train.jsonl data.val_files={folder}/val.jsonl
    actor_rollout_ref.model.path={folder}/model trainer.default_local_dir={folder}
    reward.custom_reward_function.path={folder}/reward.py
    """
    lines = f"{DOCUMENTED} {SIZES} {files}".split()
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", [*lines, *more])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verl")
    parts.write(folder / "train.jsonl", parts.IDS)
    parts.write(folder / "val.jsonl", ["v0", "v1"])
    (folder / "reward.py").write_text(REWARD)
    model, tokenizer = policy()
    tokenizer.chat_template = CHAT
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    return folder


def make_client():
    """Returns what answers at random where verl asks an LLM server."""
    import random

    from verl.workers.rollout.replica import TokenOutput

    class Client:
        async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs):
            length = random.randint(1, 6)
            steps = {"min_global_steps": 0, "max_global_steps": 0}
            return TokenOutput(
                token_ids=[random.randint(3, 60) for _ in range(length)],
                log_probs=[-1.0] * length,
                extra_fields=steps,
            )

    return Client()


@pytest.fixture(scope="module")
def workers(folder):
    """Returns verl's reward worker and two agent loops, each a process of its own, in a Ray of their own."""
    import ray
    import transfer_queue
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop import RewardLoopManager
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ

    # more than a small machine has: the queue's actors would wait for each other's processor
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    storage = {"SimpleStorage": {"num_data_storage_units": 1}}
    transfer_queue.init(OmegaConf.create({"backend": storage}))
    config = prepared(compose(folder))
    rewards = RewardLoopManager(config)
    agents = AgentLoopManagerTQ.create(
        config=config,
        llm_client=make_client(),
        reward_loop_worker_handles=rewards.reward_loop_worker_handles,
    )
    yield rewards, agents
    transfer_queue.close()
    ray.shutdown()


def prepared(config):
    """Returns the configuration as verl's `main` hands it on, after its own checks."""
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import migrate_legacy_reward_impl
    from verl.utils.config import validate_config

    validate_config(config, use_reference_policy=False, use_critic=False)
    config = migrate_legacy_reward_impl(config)
    OmegaConf.resolve(config)
    return config


def fit(config, workers):
    """Runs verl's training; the workers that hold the weights do nothing."""
    from verl.trainer.ppo.v1 import get_trainer_cls

    rewards, agents = workers

    class Weightless(get_trainer_cls(config.trainer.v1.trainer_mode)):
        def _setup(self):
            self._init_tokenizer()
            self._init_dataloader()
            self._init_dump_executor()
            self.actor_rollout_wg = mock.Mock(_dispatch_info={"actor": [0]})
            self.checkpoint_manager = mock.Mock()
            self.resource_pool_manager = mock.Mock(get_n_gpus=lambda: 1)
            self.reward_loop_manager = rewards
            self._load_checkpoint()

    trainer = Weightless(prepared(config))
    trainer.init()
    trainer.fit(agents)
    drain()
    return trainer.train_dataset.stream


def drain():
    """Waits for the answers to what was chosen ahead and never trained on, and drops them."""
    import transfer_queue

    def left():
        return transfer_queue.kv_list(partition_id="train").get("train", {})

    while {tag.get("status") for tag in left().values()} & {"pending", "running"}:
        time.sleep(0.1)
    if left():
        transfer_queue.kv_clear(partition_id="train", keys=list(left()))


def follow(stream, folder, steps, ahead):
    """Checks verl's own record of its steps against our own loop's choice for the same rewards."""
    for step in steps:
        while len(stream.out) < B + ahead:
            next(stream)
        verdicts = collections.defaultdict(list)
        for line in (folder / f"{step}.jsonl").read_text().splitlines():
            answer = json.loads(line)
            verdicts[answer["gts"]].append(answer["score"] > 0.5)
        assert verdicts.keys() <= stream.out.keys()
        assert [len(x) for x in verdicts.values()] == [G] * B
        for name, right in verdicts.items():
            stream.answer(name, right)


@pytest.mark.parametrize(("mode", "ahead"), [("sync", 0), ("colocate_async", B)])
def test_verl_trains_on_what_the_selector_chooses_and_resumes(folder, workers, mode, ahead):
    def run(name, *more):
        lines = f"""
        trainer.v1.trainer_mode={mode}
        trainer.default_local_dir={folder}/{mode} trainer.rollout_data_dir={folder}/{mode}/{name}
        """
        return fit(compose(folder, *lines.split(), *more), workers)

    trained = run("whole")
    stream = choosing.Stream(Selector(parts.IDS, num_rollouts=G), B)
    follow(stream, folder / mode / "whole", (1, 2), ahead)
    assert len(stream.out) == ahead
    saved = stream.state_dict()
    follow(stream, folder / mode / "whole", (3, 4), ahead)
    parts.assert_same_state(trained.selector, stream.selector)

    saved_by_verl = f"trainer.resume_from_path={folder}/{mode}/global_step_2"
    trained = run("again", "trainer.resume_mode=resume_path", saved_by_verl)
    stream.load_state_dict(saved | {"out": []})
    stream.out |= dict.fromkeys(saved["out"], 0)  # verl restores their answers
    follow(stream, folder / mode / "again", (3, 4), ahead)
    parts.assert_same_state(trained.selector, stream.selector)
