// RUN: plait-opt %s --verify-roundtrip | FileCheck %s

dist.mesh @mesh ["pp", "tp"] = [2, 2]

// CHECK-LABEL: plan.function @steps slots ["x", "workspace"] bytes [64, 1024] {
plan.function @steps slots ["x", "workspace"] bytes [64, 1024] {
  // CHECK-NEXT: plan.gemm m 2 n 4 k 3 of f32 a <slot 0, 0, 24> strides [3, 1] b <@"w value", 0, 48> strides [4, 1] c <slot 1, 0, 32> strides [4] of f32
  plan.gemm m 2 n 4 k 3 of f32 a <slot 0, 0, 24> strides [3, 1] b <@"w value", 0, 48> strides [4, 1] c <slot 1, 0, 32> strides [4] of f32
  // CHECK-NEXT: plan.gemm m 2 n 4 k 3 batch [2] of bf16 a <slot 0, 0, 24> strides [3, 1, 6] b <@w, 0, 24> strides [1, 3, 0] c <slot 1, 0, 64> strides [4, 8] of f32 accumulate add_unless_first
  plan.gemm m 2 n 4 k 3 batch [2] of bf16 a <slot 0, 0, 24> strides [3, 1, 6] b <@w, 0, 24> strides [1, 3, 0] c <slot 1, 0, 64> strides [4, 8] of f32 accumulate add_unless_first
  // CHECK-NEXT: plan.gemm m 2 n 4 k 3 of f32 a <slot 0, 0, 24> strides [3, 1] b <@w, 0, 48> strides [4, 1] c <slot 1, 0, 32> strides [4] of f32 epilogue bias_gelu bias <@b, 0, 16> gelu_input <slot 1, 64, 32>
  plan.gemm m 2 n 4 k 3 of f32 a <slot 0, 0, 24> strides [3, 1] b <@w, 0, 48> strides [4, 1] c <slot 1, 0, 32> strides [4] of f32 epilogue bias_gelu bias <@b, 0, 16> gelu_input <slot 1, 64, 32>
  // CHECK-NEXT: plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 8 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 64> scale 5.000000e-01 window 3 begin <"tp" * 4>
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 8 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 64> scale 5.000000e-01 window 3 begin <"tp" * 4>
  // CHECK-NEXT: plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 gradients [#plan.memory<slot 1, 640, 128>, #plan.memory<slot 1, 768, 128>, #plan.memory<@dk, 0, 128>, #plan.memory<@dv, 0, 128>] dropout <@keys, 0, 4> probability 1.000000e-01 site 2 group_begin <"tp" * 2> deterministic
  plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 gradients [#plan.memory<slot 1, 640, 128>, #plan.memory<slot 1, 768, 128>, #plan.memory<@dk, 0, 128>, #plan.memory<@dv, 0, 128>] dropout <@keys, 0, 4> probability 1.000000e-01 site 2 group_begin <"tp" * 2> deterministic
  // CHECK-NEXT: plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 window 2 bidirectional
  plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 window 2 bidirectional
  // CHECK-NEXT: plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 soft_cap 5.000000e+01 sinks <@sinks, 0, 8>
  plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 soft_cap 50.0 sinks <@sinks, 0, 8>
  // CHECK-NEXT: plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 starts <@starts, 0, 16>
  plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 starts <@starts, 0, 16>
  // CHECK-NEXT: plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <@"w value", 0, 48> ids <slot 0, 16, 16> c <slot 1, 0, 32> of f32 begin <"tp" * 3> limit 5
  plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <@"w value", 0, 48> ids <slot 0, 16, 16> c <slot 1, 0, 32> of f32 begin <"tp" * 3> limit 5
  // CHECK-NEXT: plan.grouped_gemm rows 4 repeat 1 experts 3 k 2 n 2 transposed makes_matrices of bf16 a <slot 0, 0, 16> b <slot 0, 16, 16> ids <slot 0, 32, 16> c <@"w gradient", 0, 48> of f32 accumulate add_unless_first
  plan.grouped_gemm rows 4 repeat 1 experts 3 k 2 n 2 transposed makes_matrices of bf16 a <slot 0, 0, 16> b <slot 0, 16, 16> ids <slot 0, 32, 16> c <@"w gradient", 0, 48> of f32 accumulate add_unless_first
  // CHECK-NEXT: plan.collective all_reduce reduction max on "pp" members [0, 1] of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.collective all_reduce reduction max on "pp" members [0, 1] of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  // CHECK-NEXT: plan.collective all_to_all on "tp" of bf16 outer 2 middle 3 chunk 4 splits_inner <slot 1, 0, 96> -> <slot 1, 128, 96>
  plan.collective all_to_all on "tp" of bf16 outer 2 middle 3 chunk 4 splits_inner <slot 1, 0, 96> -> <slot 1, 128, 96>
  // CHECK-NEXT: plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 3 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
  plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 3 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
  // CHECK-NEXT: plan.copy from_host <@"w moment1", 0, 64> -> <slot 1, 0, 64>
  plan.copy from_host <@"w moment1", 0, 64> -> <slot 1, 0, 64>
  // CHECK-NEXT: plan.copy to_host <slot 1, 0, 64> -> <slot 0, 0, 64>
  plan.copy to_host <slot 1, 0, 64> -> <slot 0, 0, 64>
}
