// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives | FileCheck %s
// RUN: plait-opt %s --plait-configure=tp-comm-overlap=2 --plan-split-collectives --remarks-filter='plan-split.*' -o %t.out 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: Function=forward{{.*}}in 2 chunks, in a chain of 5 steps
// REMARK: Function=backward{{.*}}in 2 chunks, each during a chunk of the matmul in front of it
// REMARK-NOT: Function=over_an_operand{{.*}}chain

// A matmul, the scatter of its sums, a kernel that goes row by row, a gather and another
// matmul take the exchanges' 0.34 ms and 0.27 ms of matmuls, of which little is hidden where
// each collective is cut by itself: the kernel waits for all of one, and the other for it.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">,
  plait.cluster = #plait.cluster<name = "h100:1x2", device = "H100 SXM", nodes = 1, devices_per_node = 2, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64,
    rates = #plait.rates<gemm_flops = 1.0e+15 : f64, memory_bandwidth = 3.0e+12 : f64, links = [#plait.link<axis = "tp", latency = 0.0 : f64, bandwidth = 2.0e+11 : f64>], gemm_units = 132>>} {
dist.mesh @mesh ["tp"] = [2]

// The pieces of a kernel have a part of its rows each, and all of the weight.
// CHECK-LABEL: plan.function @forward
// CHECK-NEXT: plan.gemm m 2048 {{.*}} a <slot 0, 0, 33554432> {{.*}} c <slot 0, 134217728, 33554432>
// CHECK-NEXT: plan.gemm m 2048 {{.*}} a <slot 0, 33554432, 33554432> {{.*}} c <slot 0, 167772160, 33554432>
// CHECK-NEXT: plan.collective reduce_scatter reduction sum on "tp" of f32 outer 1 middle 1 chunk 4194304 <slot 0, 134217728, 33554432> -> <slot 0, 201326592, 16777216>
// CHECK-NEXT: plan.collective reduce_scatter {{.*}} <slot 0, 167772160, 33554432> -> <slot 0, 218103808, 16777216>
// CHECK-NEXT: plan.kernel [#plan.memory<slot 0, 201326592, 16777216>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 234881024, 16777216>] flops {{[0-9]+}} traffic 33570816
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<1x1024x4096xf32>, %{{.*}}: tensor<4096xf32>):
// CHECK: nn.reduce sum {{.*}} dims [2] : tensor<1x1024x4096xf32> -> tensor<1x1024xf32>
// CHECK: plan.kernel [#plan.memory<slot 0, 218103808, 16777216>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 251658240, 16777216>]
// CHECK: plan.collective all_gather {{.*}} outer 1 {{.*}} <slot 0, 234881024, 16777216> -> <slot 0, 268435456, 33554432>
// CHECK-NEXT: plan.collective all_gather {{.*}} <slot 0, 251658240, 16777216> -> <slot 0, 301989888, 33554432>
// CHECK-NEXT: plan.gemm m 2048
// CHECK-NEXT: plan.gemm m 2048
// CHECK-NEXT: }
plan.function @forward does <forward, 0> slots ["workspace"] bytes [402653184] {
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 0, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 134217728, 67108864> strides [4096] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 134217728, 67108864> -> <slot 0, 201326592, 33554432>
  plan.kernel [#plan.memory<slot 0, 201326592, 33554432>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 234881024, 33554432>] flops 16777216 traffic 67125248 {
  ^bb0(%x: tensor<1x2048x4096xf32>, %w: tensor<4096xf32>):
    %y = plan.cluster(%x, %w) : (tensor<1x2048x4096xf32>, tensor<4096xf32>) -> tensor<1x2048x4096xf32> {
    ^bb0(%a: tensor<1x2048x4096xf32>, %b: tensor<4096xf32>):
      %s = nn.reduce sum %a dims [2] : tensor<1x2048x4096xf32> -> tensor<1x2048xf32>
      %t = nn.broadcast %s dims [0, 1] : tensor<1x2048xf32> -> tensor<1x2048x4096xf32>
      %v = nn.broadcast %b dims [2] : tensor<4096xf32> -> tensor<1x2048x4096xf32>
      %r = nn.mul %t, %v : tensor<1x2048x4096xf32>
      plan.yield %r : tensor<1x2048x4096xf32>
    }
    plan.yield %y : tensor<1x2048x4096xf32>
  }
  plan.collective all_gather on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 234881024, 33554432> -> <slot 0, 268435456, 67108864>
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 268435456, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 335544320, 67108864> strides [4096] of f32
}

// Gradients of weights are beside what a backward pass exchanges: its collectives are cut
// by themselves.
// CHECK-LABEL: plan.function @backward
// CHECK: plan.gemm m 2048
// CHECK: plan.gemm m 2048
// CHECK: plan.kernel [#plan.memory<slot 0, 201326592, 33554432>
// CHECK-NOT: plan.kernel
plan.function @backward does <backward, 0> slots ["workspace"] bytes [402653184] {
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 0, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 134217728, 67108864> strides [4096] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 134217728, 67108864> -> <slot 0, 201326592, 33554432>
  plan.kernel [#plan.memory<slot 0, 201326592, 33554432>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 234881024, 33554432>] flops 16777216 traffic 67125248 {
  ^bb0(%x: tensor<1x2048x4096xf32>, %w: tensor<4096xf32>):
    %y = plan.cluster(%x, %w) : (tensor<1x2048x4096xf32>, tensor<4096xf32>) -> tensor<1x2048x4096xf32> {
    ^bb0(%a: tensor<1x2048x4096xf32>, %b: tensor<4096xf32>):
      %s = nn.reduce sum %a dims [2] : tensor<1x2048x4096xf32> -> tensor<1x2048xf32>
      %t = nn.broadcast %s dims [0, 1] : tensor<1x2048xf32> -> tensor<1x2048x4096xf32>
      %v = nn.broadcast %b dims [2] : tensor<4096xf32> -> tensor<1x2048x4096xf32>
      %r = nn.mul %t, %v : tensor<1x2048x4096xf32>
      plan.yield %r : tensor<1x2048x4096xf32>
    }
    plan.yield %y : tensor<1x2048x4096xf32>
  }
  plan.collective all_gather on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 234881024, 33554432> -> <slot 0, 268435456, 67108864>
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 268435456, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 335544320, 67108864> strides [4096] of f32
}

// A sum over rows needs all of them.
// CHECK-LABEL: plan.function @sums_rows
// CHECK: plan.kernel [#plan.memory<slot 0, 201326592, 33554432>
// CHECK-NOT: plan.kernel
plan.function @sums_rows does <forward, 0> slots ["workspace"] bytes [402653184] {
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 0, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 134217728, 67108864> strides [4096] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 134217728, 67108864> -> <slot 0, 201326592, 33554432>
  plan.kernel [#plan.memory<slot 0, 201326592, 33554432>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 234881024, 33554432>] flops 16777216 traffic 67125248 {
  ^bb0(%x: tensor<1x2048x4096xf32>, %w: tensor<4096xf32>):
    %y = plan.cluster(%x, %w) : (tensor<1x2048x4096xf32>, tensor<4096xf32>) -> tensor<1x2048x4096xf32> {
    ^bb0(%a: tensor<1x2048x4096xf32>, %b: tensor<4096xf32>):
      %s = nn.reduce sum %a dims [0, 1] : tensor<1x2048x4096xf32> -> tensor<4096xf32>
      %t = nn.broadcast %s dims [2] : tensor<4096xf32> -> tensor<1x2048x4096xf32>
      %v = nn.broadcast %b dims [2] : tensor<4096xf32> -> tensor<1x2048x4096xf32>
      %r = nn.mul %t, %v : tensor<1x2048x4096xf32>
      plan.yield %r : tensor<1x2048x4096xf32>
    }
    plan.yield %y : tensor<1x2048x4096xf32>
  }
  plan.collective all_gather on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 234881024, 33554432> -> <slot 0, 268435456, 67108864>
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 268435456, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 335544320, 67108864> strides [4096] of f32
}

// The first piece of the matmul would write over rows that the second one reads: this
// keeps the kernel whole.
// CHECK-LABEL: plan.function @over_an_operand
// CHECK: plan.kernel [#plan.memory<slot 0, 201326592, 33554432>
// CHECK-NOT: plan.kernel
plan.function @over_an_operand does <forward, 0> slots ["workspace"] bytes [402653184] {
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 0, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 33554432, 67108864> strides [4096] of f32
  plan.collective reduce_scatter reduction sum on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 33554432, 67108864> -> <slot 0, 201326592, 33554432>
  plan.kernel [#plan.memory<slot 0, 201326592, 33554432>, #plan.memory<slot 0, 67108864, 16384>] -> [#plan.memory<slot 0, 234881024, 33554432>] flops 16777216 traffic 67125248 {
  ^bb0(%x: tensor<1x2048x4096xf32>, %w: tensor<4096xf32>):
    %y = plan.cluster(%x, %w) : (tensor<1x2048x4096xf32>, tensor<4096xf32>) -> tensor<1x2048x4096xf32> {
    ^bb0(%a: tensor<1x2048x4096xf32>, %b: tensor<4096xf32>):
      %s = nn.reduce sum %a dims [2] : tensor<1x2048x4096xf32> -> tensor<1x2048xf32>
      %t = nn.broadcast %s dims [0, 1] : tensor<1x2048xf32> -> tensor<1x2048x4096xf32>
      %v = nn.broadcast %b dims [2] : tensor<4096xf32> -> tensor<1x2048x4096xf32>
      %r = nn.mul %t, %v : tensor<1x2048x4096xf32>
      plan.yield %r : tensor<1x2048x4096xf32>
    }
    plan.yield %y : tensor<1x2048x4096xf32>
  }
  plan.collective all_gather on "tp" of f32 outer 2 middle 1 chunk 4194304 <slot 0, 234881024, 33554432> -> <slot 0, 268435456, 67108864>
  plan.gemm m 4096 n 4096 k 4096 of f32 a <slot 0, 268435456, 67108864> strides [4096, 1] b <slot 0, 67108864, 67108864> strides [4096, 1] c <slot 0, 335544320, 67108864> strides [4096] of f32
}

plan.program @rank0 rank 0 bytes 402653184 {
  plan.buffer @workspace workspace at 0 bytes 402653184 live [0, 3]
  plan.action forward stage 0 microbatch 0 call @forward [@workspace]
  plan.action backward stage 0 microbatch 0 call @backward [@workspace]
  plan.action forward stage 0 microbatch 0 call @sums_rows [@workspace]
  plan.action forward stage 0 microbatch 0 call @over_an_operand [@workspace]
}
}
