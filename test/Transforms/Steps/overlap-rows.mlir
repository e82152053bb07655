// RUN: plait-opt %s --plan-overlap-collectives | FileCheck %s
// RUN: sed 's/latency = 1.5e-06/latency = 0.1e-06/' %s > %t.short.mlir
// RUN: plait-opt %t.short.mlir --plan-overlap-collectives | FileCheck %s --check-prefix=SHORT
// RUN: sed 's/1.0e+30 : f64>]/1.0e+30 : f64>], gemm_units = 2/' %s > %t.waves.mlir
// RUN: plait-opt %t.waves.mlir --plan-overlap-collectives | FileCheck %s --check-prefix=WAVES

// A GEMM of 512 rows takes 4 microseconds. A sum of 1.5 microseconds needs 192 of them,
// and another sum behind it needs them too: of whole tiles, 128 or 256, either as good.
// Of one without another sum behind it all move. One whose GELU is fused is not cut, and
// too long for the sum; so are 128 rows for a sum of a tenth of a microsecond. Of two
// tiles at a time, 128 rows would leave one unit idle, and so would the other 384.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">,
  plait.cluster = #plait.cluster<name = "two", device = "d", nodes = 1, devices_per_node = 2, memory = 100, reserved = 1, peak_flops = 1.0e+09 : f64,
    rates = <gemm_flops = 1.024e+09 : f64, memory_bandwidth = 1.0e+09 : f64, links = [
      #plait.link<axis = "tp", latency = 1.5e-06 : f64, bandwidth = 1.0e+30 : f64>]>>} {
dist.mesh @mesh ["tp"] = [2]

// CHECK-LABEL: plan.function @shared slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm m 128 n 4 k 1 of f32 a <@w, 0, 512> strides [1, 1] {{.*}} c <@free, 0, 2048>
// CHECK-NEXT: plan.kernel
// CHECK: plan.collective
// CHECK-NEXT: plan.gemm m 384 n 4 k 1 of f32 a <@w, 512, 1536> strides [1, 1] {{.*}} c <@free, 2048, 6144> {{.*}} accumulate add
// WAVES-LABEL: plan.function @shared slots
// WAVES-NEXT: plan.collective
// WAVES-NEXT: plan.gemm m 256
// WAVES-NEXT: plan.kernel
// WAVES: plan.collective
// WAVES-NEXT: plan.gemm m 256
// SHORT-LABEL: plan.function @shared slots
// SHORT-NEXT: plan.collective
// SHORT-NEXT: plan.kernel
// SHORT: plan.collective
// SHORT-NEXT: plan.gemm m 512
plan.function @shared slots ["sum", "x", "out", "workspace"] bytes [16, 16, 16, 0] {
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
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 2, 0, 16> -> <slot 2, 0, 16>
  plan.gemm m 512 n 4 k 1 of f32 a <@w, 0, 2048> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 8192> strides [4] of f32 accumulate add
}

// CHECK-LABEL: plan.function @gelu slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.kernel
// CHECK: plan.collective
// CHECK-NEXT: plan.gemm m 512
plan.function @gelu slots ["sum", "x", "out", "workspace"] bytes [16, 16, 16, 0] {
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
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 2, 0, 16> -> <slot 2, 0, 16>
  plan.gemm m 512 n 4 k 1 of f32 a <@w, 0, 2048> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 8192> strides [4] of f32 epilogue gelu
}

// CHECK-LABEL: plan.function @alone slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm m 512
// CHECK-NEXT: plan.kernel
plan.function @alone slots ["sum", "x", "out", "workspace"] bytes [16, 16, 16, 0] {
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
  plan.gemm m 512 n 4 k 1 of f32 a <@w, 0, 2048> strides [1, 1] b <@w, 0, 16> strides [4, 1] c <@free, 0, 8192> strides [4] of f32 accumulate add
}

// Of a batch, the same rows of each product.
// CHECK-LABEL: plan.function @batch slots
// CHECK-NEXT: plan.collective
// CHECK-NEXT: plan.gemm m 128 n 4 k 1 batch [2] of f32 a <@w, 0, 512> strides [1, 1, 0] {{.*}} c <@free, 0, 6144> strides [4, 1024]
// CHECK-NEXT: plan.kernel
// CHECK: plan.collective
// CHECK-NEXT: plan.gemm m 128 n 4 k 1 batch [2] of f32 a <@w, 512, 512> strides [1, 1, 0] {{.*}} c <@free, 2048, 6144> strides [4, 1024]
plan.function @batch slots ["sum", "x", "out", "workspace"] bytes [16, 16, 16, 0] {
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
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 2, 0, 16> -> <slot 2, 0, 16>
  plan.gemm m 256 n 4 k 1 batch [2] of f32 a <@w, 0, 1024> strides [1, 1, 0] b <@w, 0, 16> strides [4, 1, 0] c <@free, 0, 8192> strides [4, 1024] of f32 accumulate add
}

plan.program @rank0 rank 0 bytes 12288 {
  plan.buffer @sum workspace at 0 bytes 16 live [0, 2]
  plan.buffer @x workspace at 128 bytes 16 live [0, 2]
  plan.buffer @out workspace at 192 bytes 16 live [0, 2]
  plan.buffer @w workspace at 1024 bytes 2048 live [0, 2]
  plan.buffer @free workspace at 4096 bytes 8192 live [0, 2]
  plan.action forward stage 0 microbatch 0 call @shared [@sum, @x, @out, @out]
  plan.action forward stage 3 microbatch 0 call @gelu [@sum, @x, @out, @out]
  plan.action forward stage 1 microbatch 0 call @alone [@sum, @x, @out, @out]
  plan.action forward stage 2 microbatch 0 call @batch [@sum, @x, @out, @out]
}
}
