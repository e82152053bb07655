// RUN: plait-opt %s --pipe-split-phases | FileCheck %s

nn.parameter @w : tensor<4xf32> init<mean = 0.0, std = 0.02>

// What the backward pass needs crosses under one name, result of the one and
// argument of the other: %res as a residual, the input and the output under the
// names they have. It crosses once, however often it is used, and gradients
// appear in the backward function only.
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {pipe.value = "in0"})
// CHECK-SAME: -> (tensor<4xf32> {pipe.value = "out0"}, tensor<4xf32> {pipe.value = "res0"})
// CHECK-SAME: attributes {pipe.phase = "forward", pipe.stage = 1 : i64}
// CHECK: %[[A:.*]] = nn.tanh %[[X]]
// CHECK: %[[OUT:.*]] = nn.exp %[[A]]
// CHECK-NOT: nn.mul
// CHECK: return %[[OUT]], %[[A]] :
// CHECK-LABEL: func.func @backward_1(
// CHECK-SAME: %[[DOUT:[^:]*]]: tensor<4xf32> {pipe.value = "dout0"},
// CHECK-SAME: %[[OUT:[^:]*]]: tensor<4xf32> {pipe.value = "out0"},
// CHECK-SAME: %[[A:[^:]*]]: tensor<4xf32> {pipe.value = "res0"},
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {pipe.value = "in0"})
// CHECK-SAME: -> (tensor<4xf32> {pipe.value = "din0"})
// CHECK-SAME: attributes {pipe.phase = "backward", pipe.stage = 1 : i64}
// CHECK: %[[W:.*]] = nn.read @w value : tensor<4xf32>
// CHECK: %[[B:.*]] = nn.mul %[[DOUT]], %[[OUT]] : tensor<4xf32>
// CHECK: %[[C:.*]] = nn.mul %[[B]], %[[A]]
// CHECK: %[[D:.*]] = nn.mul %[[C]], %[[A]]
// CHECK: nn.accumulate %[[D]] to @w gradient : tensor<4xf32>
// CHECK: %[[E:.*]] = nn.mul %[[C]], %[[X]]
// CHECK: %[[F:.*]] = nn.mul %[[E]], %[[W]]
// CHECK: return %[[F]] : tensor<4xf32>
func.func @joint_1(%x: tensor<4xf32> {pipe.value = "in0"}, %dout: tensor<4xf32> {pipe.value = "dout0"}) -> (tensor<4xf32> {pipe.value = "out0"}, tensor<4xf32> {pipe.value = "din0"}) attributes {pipe.phase = "joint", pipe.stage = 1 : i64} {
  %res = nn.tanh %x : tensor<4xf32>
  %out = nn.exp %res : tensor<4xf32>
  %w = nn.read @w value {nn.backward} : tensor<4xf32>
  %b = nn.mul %dout, %out {nn.backward} : tensor<4xf32>
  %c = nn.mul %b, %res {nn.backward} : tensor<4xf32>
  %d = nn.mul %c, %res {nn.backward} : tensor<4xf32>
  nn.accumulate %d to @w gradient {nn.backward} : tensor<4xf32>
  %e = nn.mul %c, %x {nn.backward} : tensor<4xf32>
  %f = nn.mul %e, %w {nn.backward} : tensor<4xf32>
  return %out, %f : tensor<4xf32>, tensor<4xf32>
}

// A gradient that is handed through without an op.
// CHECK-LABEL: func.func @forward_2(
// CHECK-SAME: -> (tensor<4xf32> {pipe.value = "out0"})
// CHECK-LABEL: func.func @backward_2(
// CHECK-SAME: %[[DOUT:[^:]*]]: tensor<4xf32> {pipe.value = "dout0"}) -> (tensor<4xf32> {pipe.value = "din0"})
// CHECK-NEXT: return %[[DOUT]]
func.func @joint_2(%x: tensor<4xf32> {pipe.value = "in0"}, %dout: tensor<4xf32> {pipe.value = "dout0"}) -> (tensor<4xf32> {pipe.value = "out0"}, tensor<4xf32> {pipe.value = "din0"}) attributes {pipe.phase = "joint", pipe.stage = 2 : i64} {
  return %x, %dout : tensor<4xf32>, tensor<4xf32>
}

// Other functions stay.
// CHECK-LABEL: func.func @other(
// CHECK: nn.exp {{.*}} {nn.backward}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.exp %x {nn.backward} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
