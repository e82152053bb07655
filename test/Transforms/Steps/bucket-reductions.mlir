// RUN: plait-opt %s -split-input-file --plan-bucket-reductions=bucket=256 | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v4"/' %s > %t.mlir
// RUN: plait-opt %t.mlir -split-input-file -o %t.before
// RUN: plait-opt %t.mlir -split-input-file --plan-bucket-reductions=bucket=256 | cmp - %t.before
// RUN: sed 's/"tp"/"dp"/g' %t.mlir > %t.replicas.mlir
// RUN: plait-opt %t.replicas.mlir -split-input-file --plan-bucket-reductions=bucket=256 | FileCheck %s
// RUN: not plait-opt %s -split-input-file --plan-bucket-reductions=bucket=-1 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: error: bucket is -1, expected 0 or more elements

// A backward pass writes the quarters of 1,024 gradients in the order of the case,
// and a reduction sums them up in buckets of 256 elements. On processors
// so do replicas, and nothing else changes.

// What is written first is reduced first.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @order slots
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 3072, 1024> -> <@gradients, 3072, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 1024, 1024> -> <@gradients, 1024, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 2048, 1024> -> <@gradients, 2048, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 0, 1024> -> <@gradients, 0, 1024>
// CHECK-NEXT: }
plan.function @order slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @order [@workspace]
}
}

// -----

// The last write of a bucket counts.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @last_write slots
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 0, 1024> -> <@gradients, 0, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 2048, 1024> -> <@gradients, 2048, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 1024, 1024> -> <@gradients, 1024, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 3072, 1024> -> <@gradients, 3072, 1024>
// CHECK-NEXT: }
plan.function @last_write slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @last_write [@workspace]
}
}

// -----

// Less than two buckets is not cut.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @small slots
// CHECK-NEXT: plan.collective {{.*}} chunk 511 <@gradients, 0, 2044> -> <@gradients, 0, 2044>
// CHECK-NEXT: }
plan.function @small slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 511 <@gradients, 0, 2044> -> <@gradients, 0, 2044>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @small [@workspace]
}
}

// -----

// Buckets are multiples of 64 elements.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @aligned slots
// CHECK-NEXT: plan.collective {{.*}} chunk 232 <@gradients, 3072, 928> -> <@gradients, 3072, 928>
// CHECK-NEXT: plan.collective {{.*}} chunk 384 <@gradients, 1536, 1536> -> <@gradients, 1536, 1536>
// CHECK-NEXT: plan.collective {{.*}} chunk 384 <@gradients, 0, 1536> -> <@gradients, 0, 1536>
// CHECK-NEXT: }
plan.function @aligned slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 1000 <@gradients, 0, 4000> -> <@gradients, 0, 4000>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @aligned [@workspace]
}
}

// -----

// The buckets of neighbours are sorted together.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @neighbours slots
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 3072, 1024> -> <@gradients, 3072, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 1024, 1024> -> <@gradients, 1024, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 2048, 1024> -> <@gradients, 2048, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 0, 1024> -> <@gradients, 0, 1024>
// CHECK-NEXT: }
plan.function @neighbours slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 512 <@gradients, 0, 2048> -> <@gradients, 0, 2048>
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 512 <@gradients, 2048, 2048> -> <@gradients, 2048, 2048>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @neighbours [@workspace]
}
}

// -----

// Both stages take part in sums over pp, and each may write in another order.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @pipeline slots
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 1024, 1024> -> <@gradients, 1024, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 0, 1024> -> <@gradients, 0, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 2048, 1024> -> <@gradients, 2048, 1024>
// CHECK-NEXT: plan.collective {{.*}} chunk 256 <@gradients, 3072, 1024> -> <@gradients, 3072, 1024>
// CHECK-NEXT: }
plan.function @pipeline slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 512 <@gradients, 0, 2048> -> <@gradients, 0, 2048>
  plan.collective all_reduce reduction sum on "pp" of f32 outer 1 middle 1 chunk 256 <@gradients, 2048, 1024> -> <@gradients, 2048, 1024>
  plan.collective all_reduce reduction sum on "pp" of f32 outer 1 middle 1 chunk 256 <@gradients, 3072, 1024> -> <@gradients, 3072, 1024>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @pipeline [@workspace]
}
}

// -----

// Only sums are cut.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @maximum slots
// CHECK-NEXT: plan.collective {{.*}} chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
// CHECK-NEXT: }
plan.function @maximum slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction max on "tp" of f32 outer 1 middle 1 chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action reduce call @maximum [@workspace]
}
}

// -----

// Only what a reduce action calls is cut.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["pp", "tp"] = [2, 2]
plan.function @backward_0 slots ["workspace"] bytes [0] {
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 3072, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 2048, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 1024, 1024> strides [256] of f32
  plan.gemm m 1 n 256 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 1024> strides [256, 1] c <@gradients, 0, 1024> strides [256] of f32
}
// CHECK-LABEL: plan.function @forward slots
// CHECK-NEXT: plan.collective {{.*}} chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
// CHECK-NEXT: }
plan.function @forward slots ["workspace"] bytes [0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 1024 <@gradients, 0, 4096> -> <@gradients, 0, 4096>
}
plan.program @rank0 rank 0 bytes 8192 {
  plan.buffer @gradients gradients at 0 bytes 4096 live [0, 1]
  plan.buffer @w parameters at 4096 bytes 1024 live [0, 1]
  plan.buffer @workspace workspace at 5120 bytes 0 live [0, 1]
  plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
  plan.action forward stage 0 microbatch 0 call @forward [@workspace]
}
}
