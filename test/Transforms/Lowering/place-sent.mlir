// RUN: plait-opt %s --plan-place-buffers | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v3"/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plan-place-buffers | FileCheck %s --check-prefix=CPU

// GPUs compute %b while %a is on its way, of which %r is needed behind it: it does not
// take the bytes of %a. A processor waits for the sum in any case.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  pipe.schedule @schedule "by hand" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0"]
  dist.mesh @mesh ["pp", "dp", "tp"] = [1, 1, 2]
  nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
  nn.parameter @v : tensor<8x16xf32> init<mean = 0.0, std = 0.02>
  func.func @forward_0() -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    %w = nn.read @w value : tensor<16x16xf32>
    %r = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %r : tensor<16x16xf32>
  }
  func.func @backward_0(%x: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    // CHECK: nn.matmul {{.*}}plan.places = [#plan.place<slot 1, [[A:[0-9]+]]>]
    // CHECK-NEXT: dist.reduce_scatter
    // CHECK-NOT: #plan.place<slot 1, [[A]]>
    // CHECK: nn.matmul
    // CHECK-NEXT: nn.matmul
    // CPU: nn.matmul {{.*}}plan.places = [#plan.place<slot 1, [[A:[0-9]+]]>]
    // CPU-NEXT: dist.reduce_scatter
    // CPU-NEXT: nn.matmul {{.*}}plan.places = [#plan.place<slot 1, [[A]]>]
    %a = nn.matmul %x, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %r = dist.reduce_scatter %a on @mesh["tp"] sum dim 0 : tensor<16x16xf32> -> tensor<8x16xf32>
    %b = nn.matmul %x, %x "ab,cb->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %g = nn.matmul %b, %x "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    nn.accumulate %g to @w gradient : tensor<16x16xf32>
    nn.accumulate %r to @v gradient : tensor<8x16xf32>
    return
  }
  func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
    return
  }
  func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
    return
  }
}
