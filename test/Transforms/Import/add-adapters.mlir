// RUN: plait-opt %s '--nn-add-adapters=rank=2 alpha=8' -split-input-file | FileCheck %s
// RUN: plait-opt %s '--nn-add-adapters=rank=2 alpha=8 targets=all-linear' -split-input-file | FileCheck %s

// Two layers of a block have adapters: of [out, in] and of [in, out], as matrices lie.
// What is outside of the block is frozen, and so are the matrices.
// CHECK-LABEL: plait.model = {lora_alpha = 8.000000e+00 : f64
// CHECK-DAG: nn.parameter @h.0.up.lora_A.weight : tensor<2x8xf32> init<mean = 0.000000e+00 : f64, std = 0.20412414523193154 : f64> decay file<name = "base_model.model.h.0.up.lora_A.weight", shape = [2, 8], begin = [0, 0], box = [2, 8]>
// CHECK-DAG: nn.parameter @h.0.up.lora_B.weight : tensor<16x2xf32> init<mean = 0.000000e+00 : f64, std = 0.000000e+00 : f64> decay file<name = "base_model.model.h.0.up.lora_B.weight", shape = [16, 2], begin = [0, 0], box = [16, 2]>
// CHECK-DAG: nn.parameter @h.0.down.lora_A.weight : tensor<2x16xf32>
// CHECK-DAG: nn.parameter @h.0.down.lora_B.weight : tensor<8x2xf32>
// CHECK-NOT: nn.parameter @head.lora
// CHECK: %[[UP:.*]] = nn.read @h.0.up.weight value {nn.layer = 0 : i64}
// CHECK: %[[FROZEN:.*]] = nn.stop_gradient %[[UP]] {nn.layer = 0 : i64}
// CHECK: %[[Y:.*]] = nn.matmul %[[X:.*]], %[[FROZEN]] "sh,fh->sf" {nn.layer = 0 : i64}
// CHECK: %[[A:.*]] = nn.read @h.0.up.lora_A.weight value {nn.layer = 0 : i64}
// CHECK: %[[LOW:.*]] = nn.matmul %[[X]], %[[A]] "sh,ah->sa" {nn.layer = 0 : i64}
// CHECK: %[[SCALED:.*]] = nn.scale %[[LOW]] by 4.000000e+00 {nn.layer = 0 : i64}
// CHECK: %[[B:.*]] = nn.read @h.0.up.lora_B.weight value {nn.layer = 0 : i64}
// CHECK: %[[MORE:.*]] = nn.matmul %[[SCALED]], %[[B]] "sa,fa->sf" {nn.layer = 0 : i64}
// CHECK: %[[SUM:.*]] = nn.add %[[Y]], %[[MORE]] {nn.layer = 0 : i64}
// CHECK: nn.silu %[[SUM]]
// CHECK: nn.read @h.0.down.weight
// CHECK: nn.matmul %{{.*}}, %{{.*}} "sf,fh->sh"
// CHECK: "sf,af->sa"
// CHECK: "sa,ha->sh"
// CHECK: %[[HEAD:.*]] = nn.read @head.weight
// CHECK: %[[STOPPED:.*]] = nn.stop_gradient %[[HEAD]]
// CHECK: nn.matmul %{{.*}}, %[[STOPPED]] "sh,vh->sv"
module attributes {plait.model = {name = "mlp"}} {
  nn.parameter @h.0.up.weight : tensor<16x8xf32> init<mean = 0.0, std = 0.02> decay
  nn.parameter @h.0.down.weight : tensor<16x8xf32> init<mean = 0.0, std = 0.02> decay
  nn.parameter @head.weight : tensor<32x8xf32> init<mean = 0.0, std = 0.02> decay
  func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x32xf32> {
    %up = nn.read @h.0.up.weight value {nn.layer = 0} : tensor<16x8xf32>
    %0 = nn.matmul %x, %up "sh,fh->sf" {nn.layer = 0} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
    %1 = nn.silu %0 {nn.layer = 0} : tensor<4x16xf32>
    %down = nn.read @h.0.down.weight value {nn.layer = 0} : tensor<16x8xf32>
    %2 = nn.matmul %1, %down "sf,fh->sh" {nn.layer = 0} : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
    %head = nn.read @head.weight value : tensor<32x8xf32>
    %3 = nn.matmul %2, %head "sh,vh->sv" : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
    return %3 : tensor<4x32xf32>
  }
}

// -----

// Parts of one tensor, here queries of two heads and keys of one, share A. What experts
// are chosen by has no adapter.
// CHECK-LABEL: module
// CHECK-NOT: router.lora
// CHECK-COUNT-1: nn.parameter @h.0.qk.lora_A.weight : tensor<2x8xf32>
// CHECK: nn.parameter @h.0.qk.lora_B.weight.q : tensor<2x3x2xf32> {{.*}} file<name = "base_model.model.h.0.qk.lora_B.weight", shape = [9, 2], begin = [0, 0], box = [6, 2]>
// CHECK: nn.parameter @h.0.qk.lora_B.weight.k : tensor<3x2xf32> {{.*}} file<name = "base_model.model.h.0.qk.lora_B.weight", shape = [9, 2], begin = [6, 0], box = [3, 2]>
// CHECK: %[[LOW:.*]] = nn.scale
// CHECK: nn.matmul %[[LOW]], %{{.*}} "bsa,gda->bsgd"
// CHECK-NOT: nn.scale
// CHECK: nn.matmul %[[LOW]], %{{.*}} "bsa,da->bsd"
module {
  nn.parameter @h.0.qk.weight.q : tensor<2x3x8xf32> init<mean = 0.0, std = 0.02> file<name = "h.0.qk.weight", shape = [9, 8], begin = [0, 0], box = [6, 8]>
  nn.parameter @h.0.qk.weight.k : tensor<3x8xf32> init<mean = 0.0, std = 0.02> file<name = "h.0.qk.weight", shape = [9, 8], begin = [6, 0], box = [3, 8]>
  nn.parameter @h.0.router.weight : tensor<4x8xf32> init<mean = 0.0, std = 0.02>
  func.func @loss(%x: tensor<2x4x8xf32>) -> (tensor<2x4x2x3xf32>, tensor<2x4x3xf32>, tensor<2x4x2xf32>) {
    %r = nn.read @h.0.router.weight value {nn.layer = 0} : tensor<4x8xf32>
    %logits = nn.matmul %x, %r "bsh,eh->bse" {nn.layer = 0} : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x4xf32>
    %w, %ids = nn.route %logits choices 2 scores softmax {nn.layer = 0} : (tensor<2x4x4xf32>) -> (tensor<2x4x2xf32>, tensor<2x4x2xi32>)
    %q = nn.read @h.0.qk.weight.q value {nn.layer = 0} : tensor<2x3x8xf32>
    %0 = nn.matmul %x, %q "bsh,gdh->bsgd" {nn.layer = 0} : (tensor<2x4x8xf32>, tensor<2x3x8xf32>) -> tensor<2x4x2x3xf32>
    %k = nn.read @h.0.qk.weight.k value {nn.layer = 0} : tensor<3x8xf32>
    %1 = nn.matmul %x, %k "bsh,dh->bsd" {nn.layer = 0} : (tensor<2x4x8xf32>, tensor<3x8xf32>) -> tensor<2x4x3xf32>
    return %0, %1, %w : tensor<2x4x2x3xf32>, tensor<2x4x3xf32>, tensor<2x4x2xf32>
  }
}
