// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s
// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives --remarks-filter='plan-split.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: Function=through{{.*}}in 2 chunks, in a chain of 10 steps
// REMARK-NOT: Function=one_sequence{{.*}}chain of 10 steps
// REMARK-NOT: Function=dropout{{.*}}chain of 10 steps

// Two layers of a gather, the matmul of queries, keys and values (one tensor here), attention,
// another matmul and the scatter of its sums, of two sequences.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">,
  plait.cluster = #plait.cluster<name = "h100:1x2", device = "H100 SXM", nodes = 1, devices_per_node = 2, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64,
    rates = #plait.rates<gemm_flops = 1.0e+15 : f64, memory_bandwidth = 3.0e+12 : f64, links = [#plait.link<axis = "tp", latency = 0.0 : f64, bandwidth = 2.0e+11 : f64>], gemm_units = 132>>} {
dist.mesh @mesh ["tp"] = [2]

// Each sequence goes through both layers by itself: what one exchanges is beside what the
// other computes.
// CHECK-LABEL: plan.function @through
// CHECK-NEXT: plan.collective all_gather {{.*}} outer 1 {{.*}} <slot 0, 0, 8388608> -> <slot 0, 16777216, 16777216>
// CHECK-NEXT: plan.gemm m 2048 n 2048 {{.*}} a <slot 0, 16777216, 16777216>
// CHECK-NEXT: plan.collective all_gather {{.*}} <slot 0, 8388608, 8388608> -> <slot 0, 33554432, 16777216>
// CHECK-NEXT: plan.attention batch 1 {{.*}} q <slot 0, 50331648, 8388608> k <slot 0, 50331648, 8388608> v <slot 0, 50331648, 8388608> out <slot 0, 67108864, 8388608> stats <slot 0, 83886080, 131072>
// CHECK-NEXT: plan.gemm m 2048 n 4096 {{.*}} a <slot 0, 67108864, 8388608>
// CHECK-NEXT: plan.collective reduce_scatter {{.*}} <slot 0, 84148224, 16777216> -> <slot 0, 117702656, 8388608>
// CHECK-NEXT: plan.gemm m 2048 n 2048 {{.*}} a <slot 0, 33554432, 16777216>
// CHECK-NEXT: plan.attention batch 1 {{.*}} q <slot 0, 58720256, 8388608> k <slot 0, 58720256, 8388608> v <slot 0, 58720256, 8388608> out <slot 0, 75497472, 8388608> stats <slot 0, 84017152, 131072>
// CHECK-NEXT: plan.gemm m 2048 n 4096 {{.*}} a <slot 0, 75497472, 8388608>
// CHECK-NEXT: plan.collective all_gather {{.*}} <slot 0, 117702656, 8388608> -> <slot 0, 134479872, 16777216>
// CHECK-NEXT: plan.collective reduce_scatter {{.*}} <slot 0, 100925440, 16777216> -> <slot 0, 126091264, 8388608>
plan.function @through does <forward, 0> slots ["workspace"] bytes [285736960] {
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 0, 16777216> -> <slot 0, 16777216, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 16777216, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 50331648, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 50331648, 16777216> k <slot 0, 50331648, 16777216> v <slot 0, 50331648, 16777216> out <slot 0, 67108864, 16777216> stats <slot 0, 83886080, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 67108864, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 84148224, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 84148224, 33554432> -> <slot 0, 117702656, 16777216>
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 117702656, 16777216> -> <slot 0, 134479872, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 134479872, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 168034304, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 168034304, 16777216> k <slot 0, 168034304, 16777216> v <slot 0, 168034304, 16777216> out <slot 0, 184811520, 16777216> stats <slot 0, 201588736, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 184811520, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 201850880, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 201850880, 33554432> -> <slot 0, 235405312, 16777216>
}

// Of one sequence attention is whole, and pieces go no further.
// CHECK-LABEL: plan.function @one_sequence
// CHECK: plan.gemm m 2048
// CHECK: plan.attention batch 1 {{.*}} out <slot 0, 67108864, 16777216>
// CHECK: plan.attention batch 1 {{.*}} out <slot 0, 184811520, 16777216>
plan.function @one_sequence does <forward, 0> slots ["workspace"] bytes [285736960] {
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 0, 16777216> -> <slot 0, 16777216, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 16777216, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 50331648, 16777216> strides [2048] of bf16
  plan.attention batch 1 heads 16 kv_heads 16 queries 4096 keys 4096 head_size 128 of bf16 q <slot 0, 50331648, 16777216> k <slot 0, 50331648, 16777216> v <slot 0, 50331648, 16777216> out <slot 0, 67108864, 16777216> stats <slot 0, 83886080, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 67108864, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 84148224, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 84148224, 33554432> -> <slot 0, 117702656, 16777216>
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 117702656, 16777216> -> <slot 0, 134479872, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 134479872, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 168034304, 16777216> strides [2048] of bf16
  plan.attention batch 1 heads 16 kv_heads 16 queries 4096 keys 4096 head_size 128 of bf16 q <slot 0, 168034304, 16777216> k <slot 0, 168034304, 16777216> v <slot 0, 168034304, 16777216> out <slot 0, 184811520, 16777216> stats <slot 0, 201588736, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 184811520, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 201850880, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 201850880, 33554432> -> <slot 0, 235405312, 16777216>
}

// Masks of dropout count the sequences of a micro-batch.
// CHECK-LABEL: plan.function @dropout
// CHECK: plan.gemm m 2048
// CHECK: plan.attention batch 2
// CHECK: plan.attention batch 2
plan.function @dropout does <forward, 0> slots ["workspace"] bytes [285736960] {
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 0, 16777216> -> <slot 0, 16777216, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 16777216, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 50331648, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 50331648, 16777216> k <slot 0, 50331648, 16777216> v <slot 0, 50331648, 16777216> out <slot 0, 67108864, 16777216> stats <slot 0, 83886080, 262144> scale 8.838835e-02 dropout <slot 0, 0, 8> probability 1.000000e-01 site 2
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 67108864, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 84148224, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 84148224, 33554432> -> <slot 0, 117702656, 16777216>
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 117702656, 16777216> -> <slot 0, 134479872, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 134479872, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 168034304, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 168034304, 16777216> k <slot 0, 168034304, 16777216> v <slot 0, 168034304, 16777216> out <slot 0, 184811520, 16777216> stats <slot 0, 201588736, 262144> scale 8.838835e-02 dropout <slot 0, 0, 8> probability 1.000000e-01 site 2
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 184811520, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 201850880, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 201850880, 33554432> -> <slot 0, 235405312, 16777216>
}

// The second layer's gather of the first sequence writes over what the first layer's scatter
// of the second one reads: here it stays behind that.
// CHECK-LABEL: plan.function @over_an_operand
// CHECK: plan.attention batch 1
// CHECK: plan.collective reduce_scatter {{.*}} <slot 0, 100925440, 16777216> ->
// CHECK-NEXT: plan.collective all_gather {{.*}} -> <slot 0, 100925440, 16777216>
plan.function @over_an_operand does <forward, 0> slots ["workspace"] bytes [285736960] {
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 0, 16777216> -> <slot 0, 16777216, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 16777216, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 50331648, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 50331648, 16777216> k <slot 0, 50331648, 16777216> v <slot 0, 50331648, 16777216> out <slot 0, 67108864, 16777216> stats <slot 0, 83886080, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 67108864, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 84148224, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 84148224, 33554432> -> <slot 0, 134479872, 16777216>
  plan.collective all_gather on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 134479872, 16777216> -> <slot 0, 100925440, 33554432>
  plan.gemm m 4096 n 2048 k 4096 of bf16 a <slot 0, 100925440, 33554432> strides [4096, 1] b <slot 0, 268959744, 16777216> strides [2048, 1] c <slot 0, 184811520, 16777216> strides [2048] of bf16
  plan.attention batch 2 heads 16 kv_heads 16 queries 2048 keys 2048 head_size 128 of bf16 q <slot 0, 184811520, 16777216> k <slot 0, 184811520, 16777216> v <slot 0, 184811520, 16777216> out <slot 0, 201588736, 16777216> stats <slot 0, 218365952, 262144> scale 8.838835e-02
  plan.gemm m 4096 n 4096 k 2048 of bf16 a <slot 0, 201588736, 16777216> strides [2048, 1] b <slot 0, 268959744, 16777216> strides [4096, 1] c <slot 0, 218628096, 33554432> strides [4096] of bf16
  plan.collective reduce_scatter reduction sum on "tp" of bf16 outer 2 middle 1 chunk 4194304 <slot 0, 218628096, 33554432> -> <slot 0, 252182528, 16777216>
}

plan.program @rank0 rank 0 bytes 285736960 {
  plan.buffer @workspace workspace at 0 bytes 285736960 live [0, 3]
  plan.action forward stage 0 microbatch 0 call @through [@workspace]
  plan.action forward stage 0 microbatch 0 call @one_sequence [@workspace]
  plan.action forward stage 0 microbatch 0 call @dropout [@workspace]
  plan.action forward stage 0 microbatch 0 call @over_an_operand [@workspace]
}
}
