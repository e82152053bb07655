// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s
// RUN: sed 's/, gemm_units = 132//' %s > %t.mlir
// RUN: plait-opt %t.mlir --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s --check-prefix=UNKNOWN

// On 132 multiprocessors a matmul of 256 x 8448 results is one wave of 132 tiles of
// 128 x 128, and each of two pieces is a wave of 66: they take twice as long, 17.7 us
// more, to hide 5 us. Of 2048 x 8448 results the pieces have whole waves, too. Where
// nobody says how many multiprocessors there are, both are cut.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">,
  plait.cluster = #plait.cluster<name = "h100:1x2", device = "H100 SXM", nodes = 1, devices_per_node = 2, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64,
    rates = #plait.rates<gemm_flops = 1.0e+15 : f64, memory_bandwidth = 3.0e+12 : f64, links = [#plait.link<axis = "tp", latency = 0.0 : f64, bandwidth = 8.65e+11 : f64>], gemm_units = 132>>} {
dist.mesh @mesh ["tp"] = [2]

// CHECK-LABEL: plan.function @one_wave
// CHECK-NEXT: plan.gemm m 256
// CHECK-NEXT: plan.collective
// CHECK-NEXT: }
// UNKNOWN-LABEL: plan.function @one_wave
// UNKNOWN-NEXT: plan.gemm m 128
// UNKNOWN-NEXT: plan.collective
// UNKNOWN-NEXT: plan.gemm m 128
plan.function @one_wave slots ["workspace"] bytes [300000000] {
  plan.gemm m 256 n 8448 k 4096 of f32 a <slot 0, 80000000, 4194304> strides [4096, 1] b <slot 0, 120000000, 138412032> strides [8448, 1] c <slot 0, 0, 8650752> strides [8448] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 2162688 <slot 0, 0, 8650752> -> <slot 0, 0, 8650752>
}

// CHECK-LABEL: plan.function @four_waves
// CHECK-NEXT: plan.gemm m 1024
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm m 1024
// UNKNOWN-LABEL: plan.function @four_waves
// UNKNOWN-NEXT: plan.gemm m 1024
plan.function @four_waves slots ["workspace"] bytes [300000000] {
  plan.gemm m 2048 n 8448 k 4096 of f32 a <slot 0, 80000000, 33554432> strides [4096, 1] b <slot 0, 120000000, 138412032> strides [8448, 1] c <slot 0, 0, 69206016> strides [8448] of f32
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 17301504 <slot 0, 0, 69206016> -> <slot 0, 0, 69206016>
}

plan.program @rank0 rank 0 bytes 300000000 {
  plan.buffer @workspace workspace at 0 bytes 300000000 live [0, 1]
  plan.action forward stage 0 microbatch 0 call @one_wave [@workspace]
  plan.action forward stage 0 microbatch 0 call @four_waves [@workspace]
}
}
