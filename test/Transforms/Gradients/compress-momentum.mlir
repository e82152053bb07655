// RUN: plait-opt %s --plait-configure=compress=onebit-adam:32 --nn-pack-parameters \
// RUN:   --nn-build-optimizer | FileCheck %s

// What replicas send is momentum: of each an n-th of the old one, of so many tokens. A
// number is summed as it is, and then has a momentum.

#b = #dist.sharding<@mesh, [{}]>
#db = #dist.sharding<@mesh, [{}], partial = {"dp"}>
#n = #dist.sharding<@mesh, []>
#dn = #dist.sharding<@mesh, [], partial = {"dp"}>
dist.mesh @mesh ["dp"] = [4]
nn.parameter @w : tensor<128xf32> init<mean = 0.0, std = 0.02> decay sharding #b
nn.parameter @number : tensor<f32> init<mean = 0.0, std = 0.02> sharding #n
nn.accumulator @loss_sum : tensor<f32>
nn.accumulator @token_count : tensor<f32>
func.func @forward_0(%loss: tensor<f32, #dn> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  nn.accumulate %loss to @loss_sum value : tensor<f32, #dn>
  nn.accumulate %loss to @token_count value : tensor<f32, #dn>
  return
}
func.func @backward_0(%dw: tensor<128xf32, #db> {pipe.port = #pipe.port<residual 0>}, %dn: tensor<f32, #dn> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  nn.accumulate %dw to @w gradient : tensor<128xf32, #db>
  nn.accumulate %dn to @number gradient : tensor<f32, #dn>
  return
}

// CHECK-LABEL: func.func @reduce_0()
// CHECK: %[[LOCAL:.*]] = nn.read @token_count value
// CHECK: %[[COUNT:.*]] = dist.all_reduce %[[LOCAL]] on @mesh["dp"]
// CHECK: %[[BETA:.*]] = nn.step_scalar "Beta1"
// CHECK: %[[NEG:.*]] = nn.neg %[[BETA]]
// CHECK: %[[REST:.*]] = nn.shift %[[NEG]] by 1.0
// CHECK: %[[KEEP:.*]] = nn.mul %[[BETA]], %[[COUNT]]
// CHECK: %[[E:.*]] = nn.read @[[W:.*]] error : tensor<4x32xf32>
// CHECK: %[[G:.*]] = nn.read @[[W]] gradient
// CHECK: %[[RS:.*]] = nn.broadcast %[[REST]]
// CHECK: %[[OWN:.*]] = nn.mul %[[G]], %[[RS]]
// CHECK: %[[M:.*]] = nn.read @[[W]] moment1
// CHECK: %[[KS:.*]] = nn.broadcast %[[KEEP]]
// CHECK: %[[ALL:.*]] = nn.mul %[[M]], %[[KS]]
// CHECK: %[[PART:.*]] = nn.scale %[[ALL]] by 2.5{{.*}}e-01
// CHECK: %[[X:.*]] = nn.add %[[OWN]], %[[PART]]
// CHECK: %[[SENT:.*]] = nn.add %[[X]], %[[E]]
// CHECK: nn.parts %[[SENT]] over "dp"
// CHECK: dist.all_gather {{.*}}tensor<1x4x1xi32>
// CHECK: dist.all_gather {{.*}}tensor<1x4xf32>
// CHECK-NOT: all_gather
// CHECK-DAG: nn.read @number moment1
// CHECK: return

// Corrections of a bias are not read.
// CHECK-LABEL: func.func @optimizer_0()
// CHECK-NOT: BiasCorrection
// CHECK-NOT: Beta
// CHECK: nn.read @[[W]] moment2
// CHECK-NOT: to {{.*}} moment2
// CHECK: return
