// RUN: plait-opt %s -split-input-file --plan-lower-to-steps | FileCheck %s

dist.mesh @mesh ["tp"] = [2]

// Every op that a device executes is a step, with the bytes that its values have
// been given; what only says where a value lies is gone.
// CHECK-LABEL: plan.function @forward_0 slots ["x", "workspace"] bytes [96, 1024] {
// A table stays an op that knows its numbers.
// CHECK-NEXT: plan.constant <@table, 0, 128> {
// CHECK-NEXT:   nn.rope_table theta 1.000000e+04 : tensor<8x4xf32>
// CHECK: plan.gemm m 4 n 4 k 6 of f32 a <@"w value", 0, 96> strides [6, 1] b <slot 0, 0, 96> strides [1, 6] c <slot 1, 0, 64> strides [4] of f32{{$}}
// A matmul that adds to another one's result is a GEMM that adds to what it left.
// CHECK-NEXT: plan.gemm m 4 n 4 k 6 of f32 a <slot 0, 0, 96> strides [6, 1] b <@"w value", 0, 96> strides [1, 6] c <slot 1, 0, 64> strides [4] of f32 accumulate add{{$}}
// CHECK-NEXT: plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 16 <slot 1, 0, 64> -> <slot 1, 0, 64>
// A kernel reads 64 bytes and writes as many.
// CHECK-NEXT: plan.kernel [#plan.memory<slot 1, 0, 64>] -> [#plan.memory<slot 1, 64, 64>] flops 16 traffic 128
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<4x4xf32>):
// CHECK-NEXT:   %[[Y:.*]] = plan.cluster(%[[X]]) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK: plan.yield %[[Y]]
func.func @forward_0(%x: tensor<4x6xf32> {plan.place = #plan.place<slot 0, 0>}) attributes {plan.slot_bytes = array<i64: 96, 1024>, plan.slot_names = ["x", "workspace"]} {
  %table = nn.rope_table theta 1.0e+04 {plan.places = [#plan.place<@table, 0>]} : tensor<8x4xf32>
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x6xf32>
  %0 = nn.matmul %w, %x "ab,cb->ac" {plan.places = [#plan.place<slot 1, 0>]} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
  %sum = nn.fused_matmul %x, %w "ab,cb->ac" add %0 {plan.places = [#plan.place<slot 1, 0>]} : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = dist.all_reduce %sum on @mesh["tp"] sum {plan.places = [#plan.place<slot 1, 0>]} : tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = plan.cluster(%1) attributes {plan.places = [#plan.place<slot 1, 64>]} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    %s = nn.add %a, %a : tensor<4x4xf32>
    plan.yield %s : tensor<4x4xf32>
  }
  return
}

// Summed letters that do not lie side by side are a GEMM for each value of the
// outer one; all but the first add to the result.
// CHECK-LABEL: plan.function @backward_0
// CHECK-NEXT: plan.gemm m 4 n 4 k 3 of f32 a <@"w value", 0, 48> strides [3, 1] b <slot 0, 0, 48> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32 accumulate add_unless_first
// CHECK-NEXT: plan.gemm m 4 n 4 k 3 of f32 a <@"w value", 48, 48> strides [3, 1] b <slot 0, 48, 48> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32 accumulate add{{$}}
// CHECK-NEXT: }
func.func @backward_0(%x: tensor<2x3x4xf32> {plan.place = #plan.place<slot 0, 0>}) attributes {plan.slot_bytes = array<i64: 96, 1024>, plan.slot_names = ["x", "workspace"]} {
  %w = nn.read @w2 value {plan.places = [#plan.place<@"w value", 0>]} : tensor<2x4x3xf32>
  %y = nn.matmul %w, %x "bac,bcd->ad" {plan.accumulate = 2 : i32, plan.places = [#plan.place<slot 1, 0>]} : (tensor<2x4x3xf32>, tensor<2x3x4xf32>) -> tensor<4x4xf32>
  return
}

// A function that no program calls stays as it is.
// CHECK-LABEL: func.func @other
func.func @other() {
  return
}

nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02>
nn.parameter @w2 : tensor<2x4x3xf32> init<mean = 0.0, std = 0.02>

// On processors libraries take no memory of the arena.
// CHECK: plan.program @rank0 rank 0 bytes 1664
// CHECK-NOT: library workspace
plan.program @rank0 rank 0 bytes 1664 {
  plan.buffer @"w value" parameters at 0 bytes 96 live [0, 1]
  plan.buffer @table constants at 128 bytes 128 live [0, 1]
  plan.buffer @x activations at 256 bytes 96 live [0, 1]
  plan.buffer @workspace workspace at 384 bytes 1024 live [0, 1]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@x, @workspace]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@x, @workspace]
}

// -----

// Rows are the dimension that is longest, here positions rather than the two query
// heads of a key head, which lie closer together in the result. So it is with
// summed ones: a GEMM sums up positions, and there are two for the heads.
// CHECK-LABEL: plan.function @forward_1
// CHECK-NEXT: plan.gemm m 8 n 4 k 8 batch [3, 2] of f32 a <slot 0, 0, 1536> strides [8, 1, 128, 64] b <slot 1, 0, 384> strides [12, 1, 4, 0] c <slot 2, 0, 768> strides [24, 8, 4] of f32{{$}}
// CHECK-NEXT: plan.gemm m 8 n 4 k 8 batch [3] of f32 a <slot 0, 0, 1280> strides [1, 8, 128] b <slot 2, 0, 752> strides [24, 1, 8] c <slot 1, 0, 384> strides [12, 4] of f32
// CHECK-NEXT: plan.gemm m 8 n 4 k 8 batch [3] of f32 a <slot 0, 256, 1280> strides [1, 8, 128] b <slot 2, 16, 752> strides [24, 1, 8] c <slot 1, 0, 384> strides [12, 4] of f32 accumulate add{{$}}
// CHECK-NEXT: }
func.func @forward_1(%p: tensor<1x3x2x8x8xf32> {plan.place = #plan.place<slot 0, 0>}, %v: tensor<1x8x3x4xf32> {plan.place = #plan.place<slot 1, 0>}) attributes {plan.slot_bytes = array<i64: 1536, 384, 768>, plan.slot_names = ["p", "v", "o"]} {
  %o = nn.matmul %p, %v "bgrst,btgd->bsgrd" {plan.places = [#plan.place<slot 2, 0>]} : (tensor<1x3x2x8x8xf32>, tensor<1x8x3x4xf32>) -> tensor<1x8x3x2x4xf32>
  %w = nn.matmul %p, %o "bgrst,bsgrd->btgd" {plan.places = [#plan.place<slot 1, 0>]} : (tensor<1x3x2x8x8xf32>, tensor<1x8x3x2x4xf32>) -> tensor<1x8x3x4xf32>
  return
}

plan.program @rank0 rank 0 bytes 2752 {
  plan.buffer @p activations at 0 bytes 1536 live [0, 0]
  plan.buffer @v activations at 1536 bytes 384 live [0, 0]
  plan.buffer @o activations at 1920 bytes 768 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_1 [@p, @v, @o]
}

// -----

// On GPUs, GEMMs have 8 MiB on sm_80 and 32 MiB on others, behind all else and
// during the whole step.
module attributes {plait.target = #plait.target<cuda, name = "sm_80", cubin = "sm_80">} {
// CHECK: plan.program @rank0 rank 0 bytes 8389120
// CHECK: plan.buffer @"library workspace" workspace at 512 bytes 8388608 live [0, 1]
// CHECK-NEXT: plan.action
plan.program @rank0 rank 0 bytes 320 {
  plan.buffer @x activations at 0 bytes 64 live [0, 1]
  plan.action send stage 0 microbatch 0 peer 1 tensor 0 [@x]
  plan.action wait_send stage 0 microbatch 0 peer 1 tensor 0 [@x]
}
}
