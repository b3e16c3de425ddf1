"""The operations of a program, counted by hand."""

from experiments.bench import operations

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


def test_operations_by_hand():
    step = operations.of_longest_loop(TEXT)
    # Two in each of the 4 layers and one in each check of their end, a copy, a comparison, a branch.
    assert step.count == 4 * (2 + 1) + 1 + 1 + 1
    assert (step.moves, step.moved) == (5, 5 * 4 * 2**20)
    whole = operations.of(TEXT)
    assert whole.count == 1 + step.count + 1  # the embedding before, the check of the outer end
    assert str(step) == "15 operations, 21 MB copied"


def test_a_program_without_loops_has_no_step():
    assert operations.of_longest_loop("ENTRY %main (x: f32[]) -> f32[] {\n}") == (0, 0, 0.0)
