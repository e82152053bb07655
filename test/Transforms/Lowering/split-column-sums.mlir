// RUN: plait-opt %s --plan-form-clusters | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v3"/' %s > %t.mlir
// RUN: plait-opt %t.mlir --plan-form-clusters | FileCheck %s --check-prefix=CPU

module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  // The gradients of a norm: on a GPU one kernel adds up the rows of each sequence,
  // and another the sequences. Neither writes what is added up. Processors have one.
  // CHECK-LABEL: func.func @norm(
  // CHECK-NEXT: %[[P:.*]]:2 = plan.cluster(%{{.*}}, %{{.*}}) : (tensor<4x64x8xbf16>, tensor<4x64x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: nn.cast
  // CHECK: nn.reduce sum {{.*}} dims [1]
  // CHECK: nn.reduce sum {{.*}} dims [1]
  // CHECK: %[[S:.*]]:2 = plan.cluster(%[[P]]#0, %[[P]]#1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: nn.reduce sum {{.*}} dims [0]
  // CHECK: nn.reduce sum {{.*}} dims [0]
  // CHECK: return %[[S]]#0, %[[S]]#1
  // CPU-LABEL: func.func @norm(
  // CPU-NEXT: %[[S:.*]]:2 = plan.cluster({{.*}}) : (tensor<4x64x8xbf16>, tensor<4x64x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  // CPU: return %[[S]]#0, %[[S]]#1
  func.func @norm(%dy: tensor<4x64x8xbf16>, %n: tensor<4x64x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = nn.cast %dy : tensor<4x64x8xbf16> -> tensor<4x64x8xf32>
    %1 = nn.mul %0, %n : tensor<4x64x8xf32>
    %2 = nn.reduce sum %1 dims [0, 1] {nn.layer = 0 : i64} : tensor<4x64x8xf32> -> tensor<8xf32>
    %3 = nn.reduce sum %0 dims [0, 1] {nn.layer = 0 : i64} : tensor<4x64x8xf32> -> tensor<8xf32>
    return %2, %3 : tensor<8xf32>, tensor<8xf32>
  }

  // Of a bias by heads. What is accumulated is so by the second kernel.
  // CHECK-LABEL: func.func @heads(
  // CHECK: plan.cluster(%{{.*}}) : (tensor<2x128x3x16xf32>) -> tensor<2x3x16xf32> {
  // CHECK: plan.cluster(%{{.*}}) : (tensor<2x3x16xf32>) -> tensor<3x16xf32> {
  func.func @heads(%x: tensor<2x128x3x16xf32>) -> tensor<3x16xf32> {
    %0 = nn.reduce sum %x dims [0, 1] : tensor<2x128x3x16xf32> -> tensor<3x16xf32>
    return %0 : tensor<3x16xf32>
  }

  // One kernel is enough for few rows, for a single sequence, and for more columns
  // than there are threads for. A maximum stays one, and so do sums that are rounded.
  // CHECK-LABEL: func.func @whole(
  // CHECK-COUNT-5: dims [0, 1]
  func.func @whole(%few: tensor<4x63x8xf32>, %one: tensor<1x512x8xf32>, %wide: tensor<4x64x18944xf32>,
                   %x: tensor<4x64x8xf32>, %half: tensor<4x64x8xbf16>)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<18944xf32>, tensor<8xf32>, tensor<8xbf16>) {
    %0 = nn.reduce sum %few dims [0, 1] : tensor<4x63x8xf32> -> tensor<8xf32>
    %1 = nn.reduce sum %one dims [0, 1] : tensor<1x512x8xf32> -> tensor<8xf32>
    %2 = nn.reduce sum %wide dims [0, 1] : tensor<4x64x18944xf32> -> tensor<18944xf32>
    %3 = nn.reduce max %x dims [0, 1] : tensor<4x64x8xf32> -> tensor<8xf32>
    %4 = nn.reduce sum %half dims [0, 1] : tensor<4x64x8xbf16> -> tensor<8xbf16>
    return %0, %1, %2, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<18944xf32>, tensor<8xf32>, tensor<8xbf16>
  }
}
