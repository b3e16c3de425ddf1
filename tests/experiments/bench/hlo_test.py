"""What is read from a compiled program's text, by hand."""

from experiments.bench import hlo

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
    # 3 rounds. A gather of 8 x 16 bfloat16 sends 3/4 of 256 bytes, a reduce-scatter of as many the
    # same, the longer branch 2 x 1/2 of 400; 5 rounds of an exchange of 8 float32 among 4.
    expected = {"all-gather": 3 * 192, "reduce-scatter": 3 * 192, "all-reduce": 3 * 400}
    assert hlo.sent(PROGRAM, 4) == expected | {"all-to-all": 5 * 24}


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
    assert hlo.sent(ASYNC, 4) == {"all-gather": 5 * 2 * 192}


# A step of decoding in a loop without a known end: a product, a copy of 4 MB, four layers of two
# operations, and a branch whose longer side has one.
TEXT = """
%layer (x: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %n = s32[] get-tuple-element(%p), index=0
  %h = f32[8]{0} get-tuple-element(%p), index=1
  %dot = f32[8]{0} custom-call(%h), custom_call_target="gemm"
  %slice_fusion = f32[1024,1024]{1,0} fusion(%h), kind=kLoop, calls=%sliced
  ROOT %out = (s32[], f32[8]{0}) tuple(%n, %dot)
}

%sliced (y: f32[8]) -> f32[1024,1024] {
  %y = f32[8]{0} parameter(0)
  %cut = f32[1,1024,1024]{2,1,0} dynamic-slice(%y)
  ROOT %flat = f32[1024,1024]{1,0} bitcast(%cut)
}

%at_end (x: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]{0}) parameter(0)
  ROOT %done = pred[] custom-call(%c), custom_call_target="done"
}

%yes (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%a, %a)
}

%no (b: f32[8]) -> f32[8] {
  ROOT %b = f32[8]{0} parameter(0)
}

%step (x: (s32[], f32[8])) -> (s32[], f32[8]) {
  %q = (s32[], f32[8]{0}) parameter(0)
  %while.1 = (s32[], f32[8]{0}) while(%q), condition=%at_end, body=%layer, backend_config={"known_trip_count":{"n":"4"}}
  %g = f32[8]{0} get-tuple-element(%while.1), index=1
  %copied = f32[1048576]{0} copy(%g)
  %which = pred[] compare(%g, %g), direction=LT
  %branch = f32[8]{0} conditional(%which, %g, %g), true_computation=%yes, false_computation=%no
  ROOT %r = (s32[], f32[8]{0}) tuple(%g, %branch)
}

ENTRY %main (z: f32[8]) -> (s32[], f32[8]) {
  %z = f32[8]{0} parameter(0)
  %embed = f32[8]{0} call(%z), to_apply=%yes
  %t = (s32[], f32[8]{0}) tuple(%z, %embed)
  ROOT %while.2 = (s32[], f32[8]{0}) while(%t), condition=%at_end, body=%step
}
"""


def test_what_is_launched_and_copied_by_hand():
    step = hlo.launched(TEXT, of_step=True)
    # Two in each of the 4 layers and one in each check of their end, a copy, a comparison, a branch.
    assert step == (4 * (2 + 1) + 1 + 1 + 1, 5 * 4 * 2**20)
    # The embedding before, the check of the outer end.
    assert hlo.launched(TEXT)[0] == 1 + step[0] + 1
    assert hlo.launched("ENTRY %main (x: f32[]) -> f32[] {\n}", of_step=True) == (0, 0)
