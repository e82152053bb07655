// RUN: plait-opt %s --nn-count-model-flops | FileCheck %s

// Four matmuls of 2^61 operations, and two gradients of each: more than 64 bits
// count. A microbatch of a large model on many ranks has as many.
// CHECK: module attributes {plait.model_flops = 2.767{{[0-9]*}}E+19 : f64}
func.func @loss(%x: tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32> {
  %0 = nn.matmul %x, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %1 = nn.matmul %0, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %2 = nn.matmul %1, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  %3 = nn.matmul %2, %x "ij,jk->ik" : (tensor<1048576x1048576xf32>, tensor<1048576x1048576xf32>) -> tensor<1048576x1048576xf32>
  return %3 : tensor<1048576x1048576xf32>
}
