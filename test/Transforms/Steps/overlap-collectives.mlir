// RUN: plait-opt %s --plan-overlap-collectives | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v4"/' %s > %t.mlir
// RUN: plait-opt %t.mlir -o %t.before && plait-opt %t.mlir --plan-overlap-collectives | cmp - %t.before
// RUN: plait-opt %s --plan-overlap-collectives --remarks-filter='plan-overlap.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: needs_nothing{{.*}}1 GEMMs overlapped with this collective
// REMARK: needs_the_sum{{.*}}more FLOPs would be needed to hide this collective

// Each function sums over tp, runs a kernel that needs the sum, and then a GEMM,
// which comes before the kernel if it may. The functions are called for two
// microbatches. On processors, nothing moves.

module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
dist.mesh @mesh ["tp"] = [2]

// Nothing of what the GEMM uses is the sum's.
// CHECK-LABEL: plan.function @needs_nothing slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm
// CHECK-NEXT: plan.kernel
plan.function @needs_nothing slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32
}

// It reads the sum.
// CHECK-LABEL: plan.function @needs_the_sum slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @needs_the_sum slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <slot 0, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32
}

// It writes where the kernel between them reads.
// CHECK-LABEL: plan.function @overwrites slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @overwrites slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <slot 1, 0, 16> strides [4] of f32
}

// It reads what the kernel reads.
// CHECK-LABEL: plan.function @reads_too slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm
// CHECK-NEXT: plan.kernel
plan.function @reads_too slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <slot 1, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32
}

// It reads what the kernel writes.
// CHECK-LABEL: plan.function @reads_the_kernels slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @reads_the_kernels slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <slot 2, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32
}

// What epilogues read and write counts, too: here it is nobody else's.
// CHECK-LABEL: plan.function @epilogue slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm
// CHECK-NEXT: plan.kernel
plan.function @epilogue slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32 epilogue bias_gelu bias <@w, 0, 16> gelu_input <@free, 64, 16>
}

// The bias is the sum.
// CHECK-LABEL: plan.function @bias slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @bias slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32 epilogue bias bias <slot 0, 0, 16>
}

// GELU's input is written where the kernel reads.
// CHECK-LABEL: plan.function @writes_gelus_input slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @writes_gelus_input slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32 epilogue gelu gelu_input <slot 1, 0, 16>
}

// GELU's input is read where the kernel reads.
// CHECK-LABEL: plan.function @reads_gelus_input slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm
// CHECK-NEXT: plan.kernel
plan.function @reads_gelus_input slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 16> strides [4] of f32 epilogue gelu_gradient gelu_input <slot 1, 0, 16>
}

// What the second microbatch binds to slot 0 is named by the GEMM directly.
// CHECK-LABEL: plan.function @arena slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @arena slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@sum1, 0, 16> strides [4] of f32
}

// Slot 3 is bound to bytes of its own.
// CHECK-LABEL: plan.function @another_slot slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm
// CHECK-NEXT: plan.kernel
plan.function @another_slot slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <slot 3, 0, 16> strides [4] of f32
}

// In the second microbatch slot 3 is bound to what is bound to slot 0.
// CHECK-LABEL: plan.function @same_slot slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @same_slot slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <slot 3, 0, 16> strides [4] of f32
}

// Slot 3 is, in the second microbatch, what the GEMM's operand names directly.
// CHECK-LABEL: plan.function @slot_and_arena slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.gemm
plan.function @slot_and_arena slots ["sum", "x", "out", "more", "workspace"] bytes [16, 16, 16, 16, 0] {
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
  plan.kernel [#plan.memory<slot 0, 0, 16>, #plan.memory<slot 1, 0, 16>] -> [#plan.memory<slot 2, 0, 16>] flops 4 traffic 48 {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    %z = plan.cluster(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %s = nn.add %a, %b : tensor<4xf32>
      plan.yield %s : tensor<4xf32>
    }
    plan.yield %z : tensor<4xf32>
  }
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@sum1, 0, 16> strides [4, 1] c <slot 3, 0, 16> strides [4] of f32
}

plan.program @rank0 rank 0 bytes 512 {
  plan.buffer @sum0 workspace at 0 bytes 16 live [0, 25]
  plan.buffer @sum1 workspace at 64 bytes 16 live [0, 25]
  plan.buffer @x workspace at 128 bytes 16 live [0, 25]
  plan.buffer @out workspace at 192 bytes 16 live [0, 25]
  plan.buffer @more workspace at 256 bytes 16 live [0, 25]
  plan.buffer @w workspace at 320 bytes 16 live [0, 25]
  plan.buffer @free workspace at 384 bytes 128 live [0, 25]
  plan.action forward stage 0 microbatch 0 call @needs_nothing [@sum0, @x, @out, @more, @more]
  plan.action forward stage 0 microbatch 1 call @needs_nothing [@sum1, @x, @out, @more, @more]
  plan.action forward stage 1 microbatch 0 call @needs_the_sum [@sum0, @x, @out, @more, @more]
  plan.action forward stage 1 microbatch 1 call @needs_the_sum [@sum1, @x, @out, @more, @more]
  plan.action forward stage 2 microbatch 0 call @overwrites [@sum0, @x, @out, @more, @more]
  plan.action forward stage 2 microbatch 1 call @overwrites [@sum1, @x, @out, @more, @more]
  plan.action forward stage 3 microbatch 0 call @reads_too [@sum0, @x, @out, @more, @more]
  plan.action forward stage 3 microbatch 1 call @reads_too [@sum1, @x, @out, @more, @more]
  plan.action forward stage 4 microbatch 0 call @reads_the_kernels [@sum0, @x, @out, @more, @more]
  plan.action forward stage 4 microbatch 1 call @reads_the_kernels [@sum1, @x, @out, @more, @more]
  plan.action forward stage 5 microbatch 0 call @epilogue [@sum0, @x, @out, @more, @more]
  plan.action forward stage 5 microbatch 1 call @epilogue [@sum1, @x, @out, @more, @more]
  plan.action forward stage 6 microbatch 0 call @bias [@sum0, @x, @out, @more, @more]
  plan.action forward stage 6 microbatch 1 call @bias [@sum1, @x, @out, @more, @more]
  plan.action forward stage 7 microbatch 0 call @writes_gelus_input [@sum0, @x, @out, @more, @more]
  plan.action forward stage 7 microbatch 1 call @writes_gelus_input [@sum1, @x, @out, @more, @more]
  plan.action forward stage 8 microbatch 0 call @reads_gelus_input [@sum0, @x, @out, @more, @more]
  plan.action forward stage 8 microbatch 1 call @reads_gelus_input [@sum1, @x, @out, @more, @more]
  plan.action forward stage 9 microbatch 0 call @arena [@sum0, @x, @out, @more, @more]
  plan.action forward stage 9 microbatch 1 call @arena [@sum1, @x, @out, @more, @more]
  plan.action forward stage 10 microbatch 0 call @another_slot [@sum0, @x, @out, @more, @more]
  plan.action forward stage 10 microbatch 1 call @another_slot [@sum1, @x, @out, @more, @more]
  plan.action forward stage 11 microbatch 0 call @same_slot [@sum0, @x, @out, @more, @more]
  plan.action forward stage 11 microbatch 1 call @same_slot [@sum1, @x, @out, @sum1, @more]
  plan.action forward stage 12 microbatch 0 call @slot_and_arena [@sum0, @x, @out, @more, @more]
  plan.action forward stage 12 microbatch 1 call @slot_and_arena [@sum1, @x, @out, @sum1, @more]
}
}
