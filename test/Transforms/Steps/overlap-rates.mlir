// RUN: plait-opt %s --plan-overlap-collectives | FileCheck %s --check-prefix=FAST
// RUN: sed 's/bandwidth = 4.0e+09/bandwidth = 1.0e+09/' %s > %t.slow.mlir
// RUN: plait-opt %t.slow.mlir --plan-overlap-collectives | FileCheck %s --check-prefix=SLOW
// RUN: sed 's/latency = 0.0/latency = 1.0e-08/' %s > %t.late.mlir
// RUN: plait-opt %t.late.mlir --plan-overlap-collectives | FileCheck %s --check-prefix=SLOW

// A sum of 16 bytes, of which each of two ranks sends 16: for 4 nanoseconds, in
// which the device does 4 operations of a GEMM, less than one GEMM of 8. Over links
// a quarter as fast, or with a latency of 10 nanoseconds, it takes two GEMMs.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">,
  plait.cluster = #plait.cluster<name = "two", device = "d", nodes = 1, devices_per_node = 2, memory = 100, reserved = 1, peak_flops = 1.0e+09 : f64,
    rates = <gemm_flops = 1.0e+09 : f64, memory_bandwidth = 1.0e+09 : f64, links = [
      #plait.link<axis = "tp", latency = 0.0 : f64, bandwidth = 4.0e+09 : f64>]>>} {
dist.mesh @mesh ["tp"] = [2]

// FAST-LABEL: plan.function @sum slots
// FAST-NEXT: plan.collective
// FAST-NEXT: plan.gemm
// FAST-NEXT: plan.kernel
// FAST: plan.gemm
// SLOW-LABEL: plan.function @sum slots
// SLOW-NEXT: plan.collective
// SLOW-NEXT: plan.gemm
// SLOW-NEXT: plan.gemm
// SLOW-NEXT: plan.kernel
plan.function @sum slots ["sum", "x", "out", "workspace"] bytes [16, 16, 16, 0] {
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
  plan.gemm m 1 n 4 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 64, 16> strides [4] of f32
}

plan.program @rank0 rank 0 bytes 512 {
  plan.buffer @sum workspace at 0 bytes 16 live [0, 0]
  plan.buffer @x workspace at 128 bytes 16 live [0, 0]
  plan.buffer @out workspace at 192 bytes 16 live [0, 0]
  plan.buffer @w workspace at 320 bytes 16 live [0, 0]
  plan.buffer @free workspace at 384 bytes 128 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @sum [@sum, @x, @out, @out]
}
}
