// RUN: plait-opt %s --plan-form-clusters --mlir-print-debuginfo | FileCheck %s

// Functions that are identical but for their parameters and layers become
// copies of the first, with their own names: of parameters, of layers, of places
// in the source.

nn.parameter @a.0 : tensor<8x4xf32> init<mean = 0.0, std = 0.02>
nn.parameter @a.1 : tensor<8x4xf32> init<mean = 0.0, std = 0.02>

// CHECK-LABEL: func.func @forward_0(
// CHECK: %[[A:.*]] = nn.read @a.0 value {nn.layer = 0 : i64}
// CHECK: %[[R:.*]] = plan.cluster(%{{.*}}, %[[A]])
// CHECK: nn.add {{.*}} {nn.layer = 0 : i64} : tensor<8x4xf32> loc(#[[ADD0:.*]])
// CHECK: nn.tanh {{.*}} {nn.layer = 0 : i64}
// CHECK: return %[[R]]
func.func @forward_0(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.read @a.0 value {nn.layer = 0 : i64} : tensor<8x4xf32>
  %1 = nn.add %x, %0 {nn.layer = 0 : i64} : tensor<8x4xf32> loc("add of layer 0")
  %2 = nn.tanh %1 {nn.layer = 0 : i64} : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @forward_1(
// CHECK: %[[A:.*]] = nn.read @a.1 value {nn.layer = 1 : i64}
// CHECK: %[[R:.*]] = plan.cluster(%{{.*}}, %[[A]])
// CHECK: nn.add {{.*}} {nn.layer = 1 : i64} : tensor<8x4xf32> loc(#[[ADD1:.*]])
// CHECK: nn.tanh {{.*}} {nn.layer = 1 : i64}
// CHECK: return %[[R]]
func.func @forward_1(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.read @a.1 value {nn.layer = 1 : i64} : tensor<8x4xf32>
  %1 = nn.add %x, %0 {nn.layer = 1 : i64} : tensor<8x4xf32> loc("add of layer 1")
  %2 = nn.tanh %1 {nn.layer = 1 : i64} : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// Not these: one adds the parameter, the other one multiplies by it; one reads
// two parameters, the other one twice the same.
// CHECK-LABEL: func.func @forward_2(
// CHECK: nn.mul
func.func @forward_2(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.read @a.1 value {nn.layer = 1 : i64} : tensor<8x4xf32>
  %1 = nn.mul %x, %0 {nn.layer = 1 : i64} : tensor<8x4xf32>
  %2 = nn.tanh %1 {nn.layer = 1 : i64} : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @two(
// CHECK: nn.read @a.0
// CHECK: nn.read @a.1
func.func @two(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.read @a.0 value : tensor<8x4xf32>
  %1 = nn.read @a.1 value : tensor<8x4xf32>
  %2 = nn.add %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @one(
// CHECK-NOT: nn.read @a.0
// CHECK: return
func.func @one(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.read @a.1 value : tensor<8x4xf32>
  %1 = nn.read @a.1 value : tensor<8x4xf32>
  %2 = nn.add %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// CHECK-DAG: #[[ADD0]] = loc("add of layer 0")
// CHECK-DAG: #[[ADD1]] = loc("add of layer 1")
