// RUN: plait-opt %s --plait-configure=global-batch=4 --pipe-schedule --plan-place-buffers | FileCheck %s

// Which sums are those of replicas: what is added of one is added behind the next one,
// and data that it adds up keeps its bytes until then.

dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 2, 2, 2]
nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}, {}]>
nn.parameter @v : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}, {}]>
nn.parameter @u : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"ep", "dp"}, {}]>
nn.parameter @t : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"tp"}, {}]>

func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} { return }
func.func @backward_0() attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// In between, ranks of ep add up what experts make of tokens, which is no gradient. The
// bytes of %a are not free before the next sum of replicas, and those of what ep adds up
// are at once.
// CHECK-LABEL: func.func @layer_between(
// CHECK: %[[A:.*]] = nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 0>]
// CHECK-NEXT: %[[RA:.*]] = dist.reduce_scatter %[[A]] on @mesh["dp"]
// CHECK-NEXT: nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 256>]
// CHECK-NEXT: dist.reduce_scatter {{.*}} on @mesh["ep"] {{.*}}plan.places = [#plan.place<slot 2, 512>]
// CHECK-NEXT: nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 256>]
// CHECK-NEXT: dist.reduce_scatter {{.*}} on @mesh["dp"]
// CHECK-NEXT: nn.accumulate %[[RA]] to @w
func.func @layer_between(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) {
  %a = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %ra = dist.reduce_scatter %a on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %ra to @w gradient : tensor<4x8xf32>
  %t = nn.matmul %y, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %rt = dist.reduce_scatter %t on @mesh["ep"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  %b = nn.matmul %rt, %rt "ba,bc->ac" : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %rb = dist.reduce_scatter %b on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %rb to @v gradient : tensor<4x8xf32>
  return
}

// A sum over ep of which a sum over dp is stored, and one that a cast widens, are both
// of replicas.
// CHECK-LABEL: func.func @chain(
// CHECK: %[[RA:.*]] = dist.reduce_scatter {{.*}} on @mesh["dp"]
// CHECK-NEXT: nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 256>]
// CHECK-NEXT: %[[RB:.*]] = dist.reduce_scatter {{.*}} on @mesh["ep"]
// CHECK-NEXT: nn.accumulate %[[RA]] to @w
// CHECK-NEXT: %[[RC:.*]] = dist.reduce_scatter %[[RB]] on @mesh["dp"]
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: %[[H:.*]] = nn.cast
// CHECK-NEXT: %[[RH:.*]] = dist.reduce_scatter %[[H]] on @mesh["dp"]
// CHECK-NEXT: nn.accumulate %[[RC]] to @u
// CHECK-NEXT: nn.cast %[[RH]]
func.func @chain(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) {
  %a = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %ra = dist.reduce_scatter %a on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %ra to @w gradient : tensor<4x8xf32>
  %b = nn.matmul %y, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %rb = dist.reduce_scatter %b on @mesh["ep"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  %rc = dist.reduce_scatter %rb on @mesh["dp"] sum dim 0 : tensor<4x8xf32> -> tensor<2x8xf32>
  nn.accumulate %rc to @u gradient : tensor<2x8xf32>
  %c = nn.matmul %x, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = nn.cast %c : tensor<8x8xf32> -> tensor<8x8xbf16>
  %rh = dist.reduce_scatter %h on @mesh["dp"] sum dim 0 : tensor<8x8xbf16> -> tensor<4x8xbf16>
  %f = nn.cast %rh : tensor<4x8xbf16> -> tensor<4x8xf32>
  nn.accumulate %f to @v gradient : tensor<4x8xf32>
  return
}

// Ranks of tp are no replicas.
// CHECK-LABEL: func.func @tensor(
// CHECK: nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 0>]
// CHECK-NEXT: %[[RA:.*]] = dist.reduce_scatter {{.*}} on @mesh["tp"]
// CHECK-NEXT: nn.accumulate %[[RA]] to @t
// CHECK-NEXT: nn.matmul {{.*}}plan.places = [#plan.place<slot 2, 0>]
func.func @tensor(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) {
  %a = nn.matmul %x, %y "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %ra = dist.reduce_scatter %a on @mesh["tp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %ra to @t gradient : tensor<4x8xf32>
  %b = nn.matmul %y, %x "ba,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %rb = dist.reduce_scatter %b on @mesh["dp"] sum dim 0 : tensor<8x8xf32> -> tensor<4x8xf32>
  nn.accumulate %rb to @w gradient : tensor<4x8xf32>
  return
}
