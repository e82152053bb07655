// RUN: plait-opt %s --plan-lower-to-steps | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v3"/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plan-lower-to-steps | FileCheck %s --check-prefix=CPU

// On a GPU the gradients of weights that multiply one matrix are one step, where the
// last of them was; on a processor, whose cores share each of them, nothing changes.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["tp"] = [2]

// CPU-LABEL: plan.function @shared
// CPU-NOT: batch
// CPU: plan.program

// What comes first need not lie first. The step is named after what does.
// CHECK-LABEL: plan.function @shared
// CHECK-NEXT: plan.gemm m 8 n 4 k 2 of f32
// CHECK-NEXT: plan.gemm m 4 n 4 k 2 batch [3] of f32 a <slot 0, 0, 32> strides [1, 4, 0] b <slot 0, 64, 96> strides [4, 1, 8] c <slot 1, 0, 192> strides [4, 16] of f32 accumulate add_unless_first {plait.origin = "q"}
// CHECK-NEXT: }
plan.function @shared slots ["x", "gradients"] bytes [512, 512] {
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 128, 32> strides [4, 1] c <slot 1, 128, 64> strides [4] of f32 accumulate add_unless_first {plait.origin = "v"}
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32 accumulate add_unless_first {plait.origin = "q"}
  // Another shape.
  plan.gemm m 8 n 4 k 2 of f32 a <slot 0, 256, 64> strides [1, 8] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 256, 128> strides [4] of f32 accumulate add_unless_first
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 96, 32> strides [4, 1] c <slot 1, 64, 64> strides [4] of f32 accumulate add_unless_first {plait.origin = "k"}
}

// The right operand may be the one in common.
// CHECK-LABEL: plan.function @right
// CHECK-NEXT: plan.gemm m 4 n 4 k 2 batch [2] of f32 a <slot 0, 0, 64> strides [1, 4, 8] b <slot 0, 64, 32> strides [4, 1, 0] c <slot 1, 0, 128> strides [4, 16] of f32
// CHECK-NEXT: }
plan.function @right slots ["x", "gradients"] bytes [512, 512] {
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 32, 32> strides [1, 4] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 64, 64> strides [4] of f32
}

// Those of which all but one thing fits.
// CHECK-LABEL: plan.function @apart
// CHECK-NOT: batch
// CHECK: }
plan.function @apart slots ["x", "gradients"] bytes [512, 1024] {
  // A gap in what is made.
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 96, 32> strides [4, 1] c <slot 1, 128, 64> strides [4] of f32
  // One adds to what is there.
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 128, 32> strides [4, 1] c <slot 1, 192, 64> strides [4] of f32 accumulate add
  // A gap in what is read.
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 192, 32> strides [4, 1] c <slot 1, 256, 64> strides [4] of f32 accumulate add
  // Nothing in common.
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 32, 32> strides [1, 4] b <slot 0, 224, 32> strides [4, 1] c <slot 1, 320, 64> strides [4] of f32 accumulate add
  // Rows that lie otherwise.
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 32, 32> strides [2, 1] b <slot 0, 256, 32> strides [4, 1] c <slot 1, 384, 64> strides [4] of f32 accumulate add
}

// What lies between reads the result of the first, or writes what it reads.
// CHECK-LABEL: plan.function @between
// CHECK-NOT: batch
// CHECK: }
plan.function @between slots ["x", "gradients"] bytes [512, 512] {
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 64, 32> strides [4, 1] c <slot 1, 0, 64> strides [4] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 16 <slot 1, 0, 64> -> <slot 1, 0, 64>
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 96, 32> strides [4, 1] c <slot 1, 64, 64> strides [4] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 8 <slot 0, 96, 32> -> <slot 0, 96, 32>
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 0, 128, 32> strides [4, 1] c <slot 1, 128, 64> strides [4] of f32
}

// The second multiplies what the first has made.
// CHECK-LABEL: plan.function @chain
// CHECK-NOT: batch
// CHECK: }
plan.function @chain slots ["x", "gradients"] bytes [512, 512] {
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 1, 0, 32> strides [4, 1] c <slot 1, 32, 64> strides [4] of f32
  plan.gemm m 4 n 4 k 2 of f32 a <slot 0, 0, 32> strides [1, 4] b <slot 1, 32, 32> strides [4, 1] c <slot 1, 96, 64> strides [4] of f32
}

// Each of these fills a GPU for some waves.
// CHECK-LABEL: plan.function @large
// CHECK-NOT: batch
// CHECK: }
plan.function @large slots ["x", "gradients"] bytes [65536, 134217728] {
  plan.gemm m 4096 n 4096 k 1 of f32 a <slot 0, 0, 16384> strides [1, 1] b <slot 0, 16384, 16384> strides [4096, 1] c <slot 1, 0, 67108864> strides [4096] of f32
  plan.gemm m 4096 n 4096 k 1 of f32 a <slot 0, 0, 16384> strides [1, 1] b <slot 0, 32768, 16384> strides [4096, 1] c <slot 1, 67108864, 67108864> strides [4096] of f32
}

plan.program @rank0 rank 0 bytes 134348800 {
  plan.buffer @x activations at 0 bytes 512 live [0, 5]
  plan.buffer @gradients workspace at 512 bytes 1024 live [0, 5]
  plan.buffer @y activations at 1536 bytes 65536 live [0, 5]
  plan.buffer @large workspace at 67072 bytes 134217728 live [0, 5]
  plan.buffer @less workspace at 134284800 bytes 512 live [0, 5]
  plan.action forward stage 0 microbatch 0 call @shared [@x, @less]
  plan.action backward stage 0 microbatch 0 call @right [@x, @less]
  plan.action backward_input stage 0 microbatch 0 call @apart [@x, @gradients]
  plan.action backward_weight stage 0 microbatch 0 call @between [@x, @less]
  plan.action optimizer call @chain [@x, @less]
  plan.action reduce call @large [@y, @large]
}
}
