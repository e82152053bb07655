// RUN: plait-opt %s --plait-configure="offload=activations global-batch=4" --plan-insert-moves --pipe-schedule --plan-place-buffers | FileCheck %s

// What streams read beside the work that follows is not written over by it.

dist.mesh @mesh ["pp", "dp", "ep", "tp"] = [1, 2, 2, 1]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
nn.parameter @t : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @u : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"ep", "dp"}, {}]>
nn.parameter @v : tensor<8x8xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"ep", "dp"}, {}]>

// A copy may be late: what it reads stays up to the second next one.
// CHECK-LABEL: func.func @forward_0(
// CHECK: nn.matmul {{.*}}plan.places = [#plan.place<slot 4, 0>]
// CHECK: nn.matmul {{.*}}plan.places = [#plan.place<slot 4, 1024>]
// CHECK: nn.matmul {{.*}}plan.places = [#plan.place<slot 4, 2048>]
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}, tensor<16x16xf32> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = nn.matmul %a, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %c = nn.matmul %b, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %a, %b, %c : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

func.func @backward_0(%a: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %b: tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}, %c: tensor<16x16xf32> {pipe.port = #pipe.port<residual 2>}) attributes {pipe.function = #pipe.function<backward, 0>} { return }
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} { return }
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} { return }

// What is gathered over one axis lies elsewhere than what was gathered before, which is
// on its way over the other one.
// CHECK-LABEL: func.func @gathers(
// CHECK: dist.all_gather {{.*}} on @mesh["dp"] {{.*}}plan.places = [#plan.place<slot 0, [[U:[0-9]+]]>]
// CHECK-NEXT: dist.all_gather {{.*}} on @mesh["ep"]
// CHECK-NOT: #plan.place<slot 0, [[U]]>
// CHECK: nn.matmul
func.func @gathers() {
  %u = nn.read @u value : tensor<2x8xf32>
  %ud = dist.all_gather %u on @mesh["dp"] dim 0 : tensor<2x8xf32> -> tensor<4x8xf32>
  %ue = dist.all_gather %ud on @mesh["ep"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %v = nn.read @v value : tensor<2x8xf32>
  %vd = dist.all_gather %v on @mesh["dp"] dim 0 : tensor<2x8xf32> -> tensor<4x8xf32>
  %ve = dist.all_gather %vd on @mesh["ep"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %c = nn.matmul %ue, %ve "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  nn.accumulate %c to @t gradient : tensor<8x8xf32>
  return
}
