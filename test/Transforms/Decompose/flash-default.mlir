// Where the user says nothing, processors compute attention in one step if every one of
// the module's has 256 keys or more.
// RUN: plait-opt %s --split-input-file --nn-decompose | FileCheck %s

// CHECK-LABEL: func.func @long(
// CHECK: nn.attention
func.func @long(%q: tensor<1x256x2x1x8xf32>, %k: tensor<1x256x2x8xf32>) -> tensor<1x256x2x1x8xf32> {
  %out, %lse = nn.attention %q, %k, %k scale 0.5 : (tensor<1x256x2x1x8xf32>, tensor<1x256x2x8xf32>, tensor<1x256x2x8xf32>) -> (tensor<1x256x2x1x8xf32>, tensor<1x2x1x256xf32>)
  return %out : tensor<1x256x2x1x8xf32>
}

// -----

// CHECK-LABEL: func.func @short(
// CHECK-NOT: nn.attention
// CHECK: return
func.func @short(%q: tensor<1x255x2x1x8xf32>, %k: tensor<1x255x2x8xf32>) -> tensor<1x255x2x1x8xf32> {
  %out, %lse = nn.attention %q, %k, %k scale 0.5 : (tensor<1x255x2x1x8xf32>, tensor<1x255x2x8xf32>, tensor<1x255x2x8xf32>) -> (tensor<1x255x2x1x8xf32>, tensor<1x2x1x255xf32>)
  return %out : tensor<1x255x2x1x8xf32>
}

// -----

// A plan has one kind of attention.
// CHECK-LABEL: func.func @both(
// CHECK-NOT: nn.attention
// CHECK: return
func.func @both(%q: tensor<1x256x2x1x8xf32>, %k: tensor<1x256x2x8xf32>, %r: tensor<1x255x2x1x8xf32>, %s: tensor<1x255x2x8xf32>) -> (tensor<1x256x2x1x8xf32>, tensor<1x255x2x1x8xf32>) {
  %out, %lse = nn.attention %q, %k, %k scale 0.5 : (tensor<1x256x2x1x8xf32>, tensor<1x256x2x8xf32>, tensor<1x256x2x8xf32>) -> (tensor<1x256x2x1x8xf32>, tensor<1x2x1x256xf32>)
  %other, %m = nn.attention %r, %s, %s scale 0.5 : (tensor<1x255x2x1x8xf32>, tensor<1x255x2x8xf32>, tensor<1x255x2x8xf32>) -> (tensor<1x255x2x1x8xf32>, tensor<1x2x1x255xf32>)
  return %out, %other : tensor<1x256x2x1x8xf32>, tensor<1x255x2x1x8xf32>
}
