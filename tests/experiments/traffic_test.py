"""What is read from a compiled program's text, by hand."""

import pytest

from experiments.bench import targets, traffic

PROGRAM = """HloModule jit_step, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%all-reduce-scatter.1 (input: bf16[8,16]) -> bf16[2,16] {
  %input = bf16[8,16]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.9 = bf16[8,16]{1,0:T(8,128)(2,1)} all-reduce(%input), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %slice = bf16[2,16]{1,0} dynamic-slice(%all-reduce.9, %zero), dynamic_slice_sizes={2,16}
}

%short (x: f32[4]) -> f32[4] {
  ROOT %all-reduce.1 = f32[4]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%add
}

%long (x: f32[4]) -> f32[4] {
  ROOT %all-reduce.2 = f32[100]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%add
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %gather-start = (bf16[2,16]{1,0}, bf16[8,16]{1,0}) all-gather-start(%w), replica_groups=[1,4]<=[4], dimensions={0}, metadata={op_name="jit(step)/gather"}
  %gather-done = bf16[8,16]{1,0} all-gather-done(%gather-start)
  %fusion.3 = bf16[2,16]{1,0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
  %branch = f32[4]{0} conditional(%i, %x, %x), branch_computations={%short, %long}
  %copy.1 = f32[3,8,16]{2,1,0} copy(%stack)
  %copy.2 = bf16[3,8,64]{2,1,0} copy(%loop_broadcast_fusion.7), metadata={scheduling_name="copy.2"}
  ROOT %out = (s32[], f32[4]) tuple(%i, %branch)
}

%condition (p: (s32[], f32[4])) -> pred[] {
  %limit = s32[] constant(3)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

%known (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %exchange = (f32[8]{0}) all-to-all(%x), replica_groups=mesh['data'=2,'fsdp'=4] {'fsdp'}
  ROOT %out = (s32[], f32[4]) tuple(%i, %y)
}

ENTRY %main (w: bf16[2,16]) -> f32[4] {
  %w = bf16[2,16]{1,0} parameter(0)
  %loop = (s32[], f32[4]) while(%t), condition=%condition, body=%body
  %other = (s32[], f32[4]) while(%t), condition=%condition, body=%known, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %done = f32[4]{0} get-tuple-element(%loop), index=1
}
"""


def test_bytes_of_every_kind_times_the_loops_around_it():
    found = traffic.total(traffic.collectives(PROGRAM, 4))
    # 3 rounds. A gather of 8 x 16 bfloat16 sends 3/4 of 256 bytes, a reduce-scatter of as many the
    # same, the longer branch 2 x 1/2 of 400; 5 rounds of an exchange of 8 float32 among 4.
    expected = {"all-gather": 3 * 192, "reduce-scatter": 3 * 192, "all-reduce": 3 * 400}
    assert found == expected | {"all-to-all": 5 * 24}


def test_what_a_collective_is():
    gather = next(x for x in traffic.collectives(PROGRAM, 4) if x.kind == "all-gather")
    assert gather == traffic.Collective(
        "all-gather", "bf16", (8, 16), 4, 192, 3, "jit(step)/gather", ""
    )


# A TPU's gather that goes on while a kernel multiplies, and a custom call with lines of metadata.
ASYNC = """
%start (x: bf16[2,16]) -> (bf16[2,16], bf16[8,16]) {
  %all-gather.1 = bf16[8,16]{1,0} all-gather(%x), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT %call = (bf16[2,16]{1,0}, bf16[8,16]{1,0}) custom-call(%all-gather.1), custom_call_target="AsyncCollectiveStart"
}

%while_multiplying (x: bf16[2,16]) -> bf16[8,16] {
  ROOT %all-gather.2 = bf16[8,16]{1,0} all-gather(%x), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}
}

%body (x: bf16[2,16]) -> bf16[8,16] {
  %kernel = bf16[8,16]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{}"
}}, metadata={op_name="jit(step)/kernel"}
  %begin = (bf16[2,16]{1,0}, bf16[8,16]{1,0}) fusion(%x), kind=kCustom, calls=%start
  %more = bf16[8,16]{1,0} fusion(%x), kind=kOutput, calls=%while_multiplying
  ROOT %another = bf16[8,16]{1,0} all-gather(%x), channel_id=8, replica_groups={{0,1,2,3}}, dimensions={0}
}

ENTRY %main (x: bf16[2,16]) -> bf16[8,16] {
  ROOT %loop = bf16[8,16]{1,0} while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""


def test_what_a_tpu_sends_in_parts_is_counted_once():
    assert traffic.total(traffic.collectives(ASYNC, 4)) == {"all-gather": 5 * 2 * 192}


def test_copies_of_stacks():
    assert traffic.copies(PROGRAM, {3}, 1000) == [("f32[3,8,16]", 1536)]
    assert not traffic.copies(PROGRAM, {3}, 2000) and not traffic.copies(PROGRAM, {4}, 1000)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("b200", 1, "--target='b200': one of h200, h100, a100-80g, l4, v5p, v6e, v5e"),
        ("v5p", 3, "--target=v5p --devices=3: a slice has 1, 4, 8, 16, 32, 64 chips"),
        ("h100", 9, "--devices=9: GPUs come 8 to a host"),
    ],
)
def test_devices_that_do_not_exist(name, count, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        targets.devices(name, count)


@pytest.mark.parametrize(("name", "extra"), [("v5e", "tpu"), ("h200", "cuda")])
def test_a_compiler_that_is_not_installed_is_named(monkeypatch, name, extra):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=rf"not installed: pip install -e '.\[{extra}\]'"):
        targets.devices(name, 4)
