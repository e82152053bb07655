// RUN: plait-opt %s --nn-build-optimizer | FileCheck %s

// What replicas have updated in parts is gathered behind the updates of as much
// as a GPU gathers at once: 1 MiB of a rank's own. @large has more, and waits for
// none; what comes before it keeps its place.
#v = #dist.sharding<@mesh, [{}]>
#d = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#dp = #dist.sharding<@mesh, [{"dp"}]>
#loss = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp"] = [2]
nn.parameter @a : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.parameter @b : tensor<16xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.parameter @large : tensor<524290xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.parameter @c : tensor<524288xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.parameter @d : tensor<8xf32> init<mean = 0.0, std = 0.02> sharding #v state #dp
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #loss> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #loss>
  nn.accumulate %loss to @token_count value : tensor<f32, #loss>
  return
}
func.func @backward_0(%a: tensor<8xf32, #d> {pipe.port = #pipe.port<residual 0>}, %b: tensor<16xf32, #d> {pipe.port = #pipe.port<residual 1>}, %large: tensor<524290xf32, #d> {pipe.port = #pipe.port<residual 2>}, %c: tensor<524288xf32, #d> {pipe.port = #pipe.port<residual 3>}, %d: tensor<8xf32, #d> {pipe.port = #pipe.port<residual 4>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %a to @a gradient : tensor<8xf32, #d>
  nn.accumulate %b to @b gradient : tensor<16xf32, #d>
  nn.accumulate %large to @large gradient : tensor<524290xf32, #d>
  nn.accumulate %c to @c gradient : tensor<524288xf32, #d>
  nn.accumulate %d to @d gradient : tensor<8xf32, #d>
  return
}

// CHECK-LABEL: func.func @optimizer_0()
// CHECK: nn.write {{.*}} to @a moment1 : tensor<4xf32>
// CHECK-NOT: dist.all_gather
// CHECK: nn.write {{.*}} to @b moment2 : tensor<8xf32>
// CHECK-NOT: nn.write
// CHECK: %[[A:.*]] = dist.all_gather {{.*}} -> tensor<8xf32>
// CHECK-NEXT: nn.write %[[A]] to @a value
// CHECK-NEXT: %[[B:.*]] = dist.all_gather {{.*}} -> tensor<16xf32>
// CHECK-NEXT: nn.write %[[B]] to @b value
// CHECK-NEXT: %[[LARGE:.*]] = dist.all_gather {{.*}} -> tensor<524290xf32>
// CHECK-NEXT: nn.write %[[LARGE]] to @large value
// CHECK: nn.write {{.*}} to @large moment2
// 1 MiB is not above it, with one number more it is.
// CHECK-NOT: dist.all_gather
// CHECK: nn.write {{.*}} to @c moment2
// CHECK: %[[C:.*]] = dist.all_gather {{.*}} -> tensor<524288xf32>
// CHECK-NEXT: nn.write %[[C]] to @c value
// CHECK: nn.write {{.*}} to @d moment2
// CHECK: %[[D:.*]] = dist.all_gather {{.*}} -> tensor<8xf32>
// CHECK-NEXT: nn.write %[[D]] to @d value
// CHECK-NEXT: return
