// RUN: plait-opt %s --nn-pack-parameters --nn-build-optimizer -split-input-file | FileCheck %s

// Groups of replicas have a copy of the state each. Gradients are scattered within a
// group first, so that a part of them is summed over the groups.
#w = #dist.sharding<@mesh, [{}, {}]>
#dw = #dist.sharding<@mesh, [{}, {}], partial = {"replicate", "dp"}>
#s = #dist.sharding<@mesh, []>
module attributes {plait.configuration = #plait.configuration<zero = 1>} {
  dist.mesh @mesh ["replicate", "dp"] = [2, 4]
  nn.parameter @w : tensor<8x64xf32> init<mean = 0.0, std = 0.02> sharding #w
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
    %one = nn.fill 1.0 : tensor<f32, #s>
    nn.accumulate %one to @loss_sum value : tensor<f32, #s>
    nn.accumulate %one to @token_count value : tensor<f32, #s>
    return
  }
  func.func @backward_0(%dw: tensor<8x64xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x64xf32, #dw>
    return
  }
}

// CHECK: nn.pack @[[PACK:.*]] rank 0 [@w] at [0] divided on @mesh["dp"] : tensor<4x128xf32>
// CHECK-LABEL: func.func @reduce_0()
// CHECK: %[[WHOLE:.*]] = nn.read @[[PACK]] gradient : tensor<4x128xf32>
// CHECK-NEXT: %[[OWN:.*]] = dist.reduce_scatter %[[WHOLE]] on @mesh["dp"] sum dim 0 : tensor<4x128xf32> -> tensor<1x128xf32>
// CHECK: %[[READ:.*]] = nn.read @[[PACK]] reduced : tensor<1x128xf32>
// CHECK-NEXT: dist.all_reduce %[[READ]] on @mesh["replicate"] sum : tensor<1x128xf32>
// CHECK: return

// -----

// With ZeRO 2 and 3 they are scattered after each microbatch, and what is left is
// summed once.
#part = #dist.sharding<@mesh, [{"dp"}, {}]>
#dw = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"replicate"}>
#s = #dist.sharding<@mesh, []>
module attributes {plait.configuration = #plait.configuration<zero = 3>} {
  dist.mesh @mesh ["replicate", "dp"] = [2, 4]
  nn.parameter @w : tensor<8x64xf32> init<mean = 0.0, std = 0.02> sharding #part
  nn.accumulator @loss_sum : tensor<f32>
  nn.accumulator @token_count : tensor<f32>
  func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
    %one = nn.fill 1.0 : tensor<f32, #s>
    nn.accumulate %one to @loss_sum value : tensor<f32, #s>
    nn.accumulate %one to @token_count value : tensor<f32, #s>
    return
  }
  func.func @backward_0(%dw: tensor<8x64xf32, #dw> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
    nn.accumulate %dw to @w gradient : tensor<8x64xf32, #dw>
    return
  }
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK-NOT: dist.{{.*}}@mesh["dp"]
// CHECK: dist.all_reduce {{.*}} on @mesh["replicate"] sum : tensor<{{2x64|1x128}}xf32>
// CHECK: return
