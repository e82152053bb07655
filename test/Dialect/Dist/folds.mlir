// RUN: plait-opt %s --canonicalize | FileCheck %s

#split = #dist.sharding<@mesh, [{"tp"}]>
#whole = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]

// CHECK-LABEL: func @same(
// CHECK-SAME: %[[X:.*]]: tensor<8xf32,
func.func @same(%x: tensor<8xf32, #split>) -> tensor<8xf32, #split> {
  %0 = dist.reshard %x : tensor<8xf32, #split> -> tensor<8xf32, #split>
  // CHECK-NEXT: return %[[X]]
  return %0 : tensor<8xf32, #split>
}

// CHECK-LABEL: func @other(
func.func @other(%x: tensor<8xf32, #split>) -> tensor<8xf32, #whole> {
  // CHECK-NEXT: dist.reshard
  %0 = dist.reshard %x : tensor<8xf32, #split> -> tensor<8xf32, #whole>
  return %0 : tensor<8xf32, #whole>
}
