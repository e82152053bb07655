// RUN: plait-opt %s --plait-configure=optimizer=muon --nn-assign-matrices | FileCheck %s
// RUN: plait-opt %s --nn-assign-matrices | FileCheck %s --check-prefix=NONE
// RUN: plait-opt %s --plait-configure=optimizer=muon --nn-assign-matrices --nn-assign-matrices | FileCheck %s

// An optimizer that updates elements asks for none.
// NONE-NOT: matrix [

// Read by a lookup, and by the matmul that makes the logits, with or without a bias:
// no matrix, tied or not.
// CHECK: nn.parameter @table
// CHECK-NOT: matrix [
// CHECK: nn.parameter @head
// CHECK-NOT: matrix [
nn.parameter @table : tensor<16x8xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @head : tensor<16x8xf32> init<mean = 0.0, std = 0.02> decay
// Dimensions that are summed over, at either end.
// CHECK: nn.parameter @first {{.*}} matrix [0]
// CHECK: nn.parameter @last {{.*}} matrix [1]
// CHECK: nn.parameter @heads {{.*}} matrix [0]
// CHECK: nn.parameter @joined {{.*}} matrix [0, 1]
nn.parameter @first : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @last : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @heads : tensor<8x2x3xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @joined : tensor<2x3x8xf32> init<mean = 0.0, std = 0.02> decay
// In the middle; twice, over different dimensions; with a dimension that is not
// summed over and is in both operands; a bias.
// CHECK: nn.parameter @middle
// CHECK-NOT: matrix [
nn.parameter @middle : tensor<2x8x4xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @both : tensor<8x8xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @stack : tensor<8x8x8xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @bias : tensor<8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @offset : tensor<16xf32> init<mean = 0.0, std = 0.02>

func.func @loss(%ids: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<16x8xf32>
  %x = nn.embedding %table, %ids : (tensor<16x8xf32>, tensor<2x8xi32>) -> tensor<2x8x8xf32>
  %first = nn.read @first value : tensor<8x4xf32>
  %a = nn.matmul %x, %first "bsh,hf->bsf" : (tensor<2x8x8xf32>, tensor<8x4xf32>) -> tensor<2x8x4xf32>
  %last = nn.read @last value : tensor<8x4xf32>
  %b = nn.matmul %last, %a "hf,bsf->bsh" : (tensor<8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x8xf32>
  %heads = nn.read @heads value : tensor<8x2x3xf32>
  %c = nn.matmul %b, %heads "bsh,hij->bsij" : (tensor<2x8x8xf32>, tensor<8x2x3xf32>) -> tensor<2x8x2x3xf32>
  %joined = nn.read @joined value : tensor<2x3x8xf32>
  %d = nn.matmul %c, %joined "bsij,ijh->bsh" : (tensor<2x8x2x3xf32>, tensor<2x3x8xf32>) -> tensor<2x8x8xf32>
  %middle = nn.read @middle value : tensor<2x8x4xf32>
  %e = nn.matmul %d, %middle "bsh,ihj->bsij" : (tensor<2x8x8xf32>, tensor<2x8x4xf32>) -> tensor<2x8x2x4xf32>
  %f = nn.reduce sum %e dims [2, 3] : tensor<2x8x2x4xf32> -> tensor<2x8xf32>
  %g = nn.broadcast %f dims [0, 1] : tensor<2x8xf32> -> tensor<2x8x8xf32>
  %both = nn.read @both value : tensor<8x8xf32>
  %h = nn.matmul %g, %both "bsh,hf->bsf" : (tensor<2x8x8xf32>, tensor<8x8xf32>) -> tensor<2x8x8xf32>
  %i = nn.matmul %h, %both "bsh,fh->bsf" : (tensor<2x8x8xf32>, tensor<8x8xf32>) -> tensor<2x8x8xf32>
  %stack = nn.read @stack value : tensor<8x8x8xf32>
  %j = nn.matmul %i, %stack "bsh,shf->bsf" : (tensor<2x8x8xf32>, tensor<8x8x8xf32>) -> tensor<2x8x8xf32>
  %bias = nn.read @bias value : tensor<8xf32>
  %k = nn.broadcast %bias dims [2] : tensor<8xf32> -> tensor<2x8x8xf32>
  %l = nn.add %j, %k : tensor<2x8x8xf32>
  %head = nn.read @head value : tensor<16x8xf32>
  %m = nn.matmul %l, %head "bsh,vh->bsv" : (tensor<2x8x8xf32>, tensor<16x8xf32>) -> tensor<2x8x16xf32>
  %offset = nn.read @offset value : tensor<16xf32>
  %all = nn.broadcast %offset dims [2] : tensor<16xf32> -> tensor<2x8x16xf32>
  %moved = nn.add %m, %all : tensor<2x8x16xf32>
  %n = nn.scale %moved by 0.5 : tensor<2x8x16xf32>
  %loss:2 = nn.softmax_cross_entropy %n, %targets ignore -1 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
  return %loss#0, %loss#1 : tensor<f32>, tensor<f32>
}
