// RUN: not plait-opt %s --dist-assign-shardings=problem=%t.json 2>&1 | FileCheck %s
// RUN: not ls %t.json

// Where tp has one rank nothing is chosen.
// CHECK: error: has no sharding problem to write: tp has one rank
dist.mesh @mesh ["dp"] = [2]
func.func @loss(%x: tensor<64x8xi32>, %y: tensor<64x8xi32>) {
  return
}
