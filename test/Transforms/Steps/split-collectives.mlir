// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s
// RUN: plait-opt %s --plan-split-collectives | FileCheck %s --check-prefix=WHOLE
// RUN: sed 's/cpu, name = "x86-64-v3"/cuda, name = "sm_90", cubin = "sm_90"/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s --check-prefix=SMALL
// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives --remarks-filter='plan-split.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: Function=sum{{.*}}in 2 chunks, each during a chunk of the matmul in front of it
// REMARK: Function=gather{{.*}}in 2 chunks, each during a chunk of the matmul behind it
// REMARK: Function=over_an_operand{{.*}}pieces of it and of the matmul in front of it use the same bytes

// Sums and gathers of 4 rows of 16 elements over tp, whose matmuls are cut with them.
// Without pieces nothing is; on GPUs nothing that takes less than the latency of one
// piece more.
module attributes {plait.target = #plait.target<cpu, name = "x86-64-v3">} {
dist.mesh @mesh ["tp"] = [2]

// WHOLE: plan.function @sum
// WHOLE: plan.gemm m 4
// WHOLE-NEXT: plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 64
// SMALL: plan.function @sum
// SMALL: plan.gemm m 4

// CHECK-LABEL: plan.function @sum
// CHECK-NEXT: plan.gemm m 2 n 16 k 1 of f32 a <slot 0, 512, 8> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 128> strides [16] of f32
// CHECK-NEXT: plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 32 <slot 0, 0, 128> -> <slot 0, 0, 128>
// CHECK-NEXT: plan.gemm m 2 n 16 k 1 of f32 a <slot 0, 520, 8> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 128, 128> strides [16] of f32
// CHECK-NEXT: plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 32 <slot 0, 128, 128> -> <slot 0, 128, 128>
// CHECK-NEXT: }
plan.function @sum slots ["workspace"] bytes [1024] {
  plan.gemm m 4 n 16 k 1 of f32 a <slot 0, 512, 16> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 256> strides [16] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 64 <slot 0, 0, 256> -> <slot 0, 0, 256>
}

// A scatter is cut between its outer blocks; what comes between it and its matmul stays
// in front of both.
// CHECK-LABEL: plan.function @scatter
// CHECK-NEXT: plan.copy
// CHECK-NEXT: plan.gemm m 2 {{.*}} c <slot 0, 0, 128>
// CHECK-NEXT: plan.collective reduce_scatter reduction sum on "tp" of f32 outer 1 middle 1 chunk 16 <slot 0, 0, 128> -> <slot 0, 256, 64>
// CHECK-NEXT: plan.gemm m 2 {{.*}} c <slot 0, 128, 128>
// CHECK-NEXT: plan.collective reduce_scatter reduction sum on "tp" of f32 outer 1 middle 1 chunk 16 <slot 0, 128, 128> -> <slot 0, 320, 64>
plan.function @scatter slots ["workspace"] bytes [1024] {
  plan.gemm m 4 n 16 k 1 of f32 a <slot 0, 512, 16> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 256> strides [16] of f32
  plan.copy to_host <slot 0, 768, 64> -> <@host, 0, 64>
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 16 <slot 0, 0, 256> -> <slot 0, 256, 128>
}

// The matmul behind a gather reads a piece of it, by rows or by columns of what it
// multiplies.
// CHECK-LABEL: plan.function @gather
// CHECK-NEXT: plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 16 <slot 0, 256, 64> -> <slot 0, 0, 128>
// CHECK-NEXT: plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 16 <slot 0, 320, 64> -> <slot 0, 128, 128>
// CHECK-NEXT: plan.gemm m 2 n 1 k 16 of f32 a <slot 0, 0, 128> strides [16, 1] b <slot 0, 640, 64> strides [1, 1] c <slot 0, 512, 8> strides [1] of f32
// CHECK-NEXT: plan.gemm m 2 n 1 k 16 of f32 a <slot 0, 128, 128> strides [16, 1] b <slot 0, 640, 64> strides [1, 1] c <slot 0, 520, 8> strides [1] of f32
// CHECK-NEXT: plan.gemm m 4
plan.function @gather slots ["workspace"] bytes [1024] {
  plan.collective all_gather on "tp" of f32 outer 2 middle 1 chunk 16 <slot 0, 256, 128> -> <slot 0, 0, 256>
  plan.gemm m 4 n 1 k 16 of f32 a <slot 0, 0, 256> strides [16, 1] b <slot 0, 640, 64> strides [1, 1] c <slot 0, 512, 16> strides [1] of f32
  plan.gemm m 4 n 1 k 16 of f32 a <slot 0, 0, 256> strides [16, 1] b <slot 0, 640, 64> strides [1, 1] c <slot 0, 576, 16> strides [1] of f32
}

// One outer block has no border to cut at.
// CHECK-LABEL: plan.function @one_block
// CHECK: plan.gemm m 4
plan.function @one_block slots ["workspace"] bytes [1024] {
  plan.gemm m 4 n 16 k 1 of f32 a <slot 0, 512, 16> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 256> strides [16] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 1 middle 1 chunk 32 <slot 0, 0, 256> -> <slot 0, 256, 128>
}

// The first piece would write over rows that the second piece of the matmul reads.
// CHECK-LABEL: plan.function @over_an_operand
// CHECK: plan.gemm m 4
plan.function @over_an_operand slots ["workspace"] bytes [1024] {
  plan.gemm m 4 n 16 k 1 of f32 a <slot 0, 256, 16> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 256> strides [16] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 16 <slot 0, 0, 256> -> <slot 0, 256, 128>
}

// The matmul makes only a part of what is summed up, or is followed by another.
// CHECK-LABEL: plan.function @a_part
// CHECK: plan.gemm m 2
// CHECK-NOT: plan.gemm
plan.function @a_part slots ["workspace"] bytes [1024] {
  plan.gemm m 2 n 16 k 1 of f32 a <slot 0, 512, 8> strides [1, 1] b <slot 0, 640, 64> strides [16, 1] c <slot 0, 0, 128> strides [16] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 64 <slot 0, 0, 256> -> <slot 0, 0, 256>
}

plan.program @rank0 rank 0 bytes 1024 host_bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 1024 live [0, 5]
  plan.buffer @host optimizer host at 0 bytes 64 live [0, 5]
  plan.action forward stage 0 microbatch 0 call @sum [@workspace]
  plan.action forward stage 0 microbatch 0 call @scatter [@workspace]
  plan.action forward stage 0 microbatch 0 call @gather [@workspace]
  plan.action forward stage 0 microbatch 0 call @one_block [@workspace]
  plan.action forward stage 0 microbatch 0 call @over_an_operand [@workspace]
  plan.action forward stage 0 microbatch 0 call @a_part [@workspace]
}
}
