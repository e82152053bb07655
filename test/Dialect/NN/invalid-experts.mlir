// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// grouped_matmul
//===----------------------------------------------------------------------===//

func.func @c1_dims(%x: tensor<2x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{spec "tsh,efh->tf" gives the first operand 3 dimensions, but it has 2}}
  %0 = nn.grouped_matmul %x, %w, %i "tsh,efh->tf" : (tensor<2x4xf32>, tensor<3x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c1_twice(%x: tensor<2x4xf32>, %w: tensor<4x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{spec "th,hfh->tf" has 'h' twice in one tensor, or it is no letter}}
  %0 = nn.grouped_matmul %x, %w, %i "th,hfh->tf" : (tensor<2x4xf32>, tensor<4x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c2(%x: tensor<2x5xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{has extents 5 and 4 for 'h'}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" : (tensor<2x5xf32>, tensor<3x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c3_no_experts(%x: tensor<2x4xf32>, %w: tensor<6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{spec "th,fh->tf" has no matrices of experts, expected three letters in the second operand or in the result}}
  %0 = nn.grouped_matmul %x, %w, %i "th,fh->tf" : (tensor<2x4xf32>, tensor<6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

// The choice is no dimension of a matrix.
func.func @c3_inner(%x: tensor<2x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2x4xi32>) {
  // expected-error @+1 {{spec "tc,efc->tcf" has no matrices of experts}}
  %0 = nn.grouped_matmul %x, %w, %i "tc,efc->tcf" : (tensor<2x4xf32>, tensor<3x6x4xf32>, tensor<2x4xi32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @c3_gradient(%x: tensor<2x4xf32>, %y: tensor<2x6xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{spec "th,tf->efg" has no matrices of experts}}
  %0 = nn.grouped_matmul %x, %y, %i "th,tf->efg" : (tensor<2x4xf32>, tensor<2x6xf32>, tensor<2xi32>) -> tensor<3x6x4xf32>
  return
}

// -----

func.func @c4(%x: tensor<8x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2x8xi32>) {
  // expected-error @+1 {{spec "sh,efh->bsf" has rows 's' in the first operand, expected 'bs' or some first ones of them}}
  %0 = nn.grouped_matmul %x, %w, %i "sh,efh->bsf" : (tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<2x8xi32>) -> tensor<2x8x6xf32>
  return
}

// -----

func.func @c5(%x: tensor<2x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<3xi32>) {
  // expected-error @+1 {{has ids 'tensor<3xi32>' for rows of 'tensor<2x6xf32>'}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" : (tensor<2x4xf32>, tensor<3x6x4xf32>, tensor<3xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c6_operands(%x: tensor<2x4xbf16>, %w: tensor<3x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{all of {lhs, rhs} have same element type}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" : (tensor<2x4xbf16>, tensor<3x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c6_result(%x: tensor<2x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{has result 'tensor<2x6xbf16>', expected elements of f32 or of}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" : (tensor<2x4xf32>, tensor<3x6x4xf32>, tensor<2xi32>) -> tensor<2x6xbf16>
  return
}

// -----

func.func @c7_limit(%x: tensor<2x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{has limit 7, expected 0, or a positive one with begin}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" {limit = 7 : i64} : (tensor<2x4xf32>, tensor<3x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c7_order(%x: tensor<2x4xf32>, %w: tensor<4x6x4xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{has #nn.begin<of 4 zigzag 4>, expected elements in their own order}}
  %0 = nn.grouped_matmul %x, %w, %i "th,efh->tf" {begin = #nn.begin<of 4 zigzag 4>} : (tensor<2x4xf32>, tensor<4x6x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// route
//===----------------------------------------------------------------------===//

func.func @c1_rank(%x: tensor<f32>) {
  // expected-error @+1 {{has logits of rank 0, expected at least 1}}
  %0, %1 = nn.route %x choices 1 scores softmax : (tensor<f32>) -> (tensor<1xf32>, tensor<1xi32>)
  return
}

// -----

func.func @c1_result(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has result 'tensor<2x3xi32>' for logits 'tensor<2x4xf32>' and 2 choices}}
  %0, %1 = nn.route %x choices 2 scores softmax : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x3xi32>)
  return
}

// -----

func.func @c2(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has 5 choices of 4 experts, expected 1 to 4}}
  %0, %1 = nn.route %x choices 5 scores sigmoid : (tensor<2x4xf32>) -> (tensor<2x5xf32>, tensor<2x5xi32>)
  return
}

// -----

func.func @c2_none(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has 0 choices of 4 experts, expected 1 to 4}}
  %0, %1 = nn.route %x choices 0 scores softmax : (tensor<2x4xf32>) -> (tensor<2x0xf32>, tensor<2x0xi32>)
  return
}

// -----

func.func @c3(%x: tensor<2x4xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{has bias 'tensor<3xf32>' for logits 'tensor<2x4xf32>'}}
  %0, %1 = nn.route %x bias %b choices 2 scores sigmoid : (tensor<2x4xf32>, tensor<3xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

func.func @c4(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has scaled 0.000000e+00, which is not positive}}
  %0, %1 = nn.route %x choices 2 scores sigmoid normalized scaled 0.0 : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

func.func @c5_divisor(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has 3 groups of 8 experts, expected a divisor with two experts a group or more}}
  %0, %1 = nn.route %x choices 2 scores sigmoid groups 1 of 3 : (tensor<2x8xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

func.func @c5_alone(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has 8 groups of 8 experts, expected a divisor with two experts a group or more}}
  %0, %1 = nn.route %x choices 2 scores sigmoid groups 2 of 8 : (tensor<2x8xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

func.func @c5_kept(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{keeps 3 of 2 groups}}
  %0, %1 = nn.route %x choices 2 scores sigmoid groups 3 of 2 : (tensor<2x8xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

func.func @c5_choices(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has 5 choices of the 4 experts of 2 groups}}
  %0, %1 = nn.route %x choices 5 scores sigmoid groups 2 of 4 : (tensor<2x8xf32>) -> (tensor<2x5xf32>, tensor<2x5xi32>)
  return
}

// -----

func.func @c5_one_number(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has one number of groups, expected two or none}}
  %0, %1 = "nn.route"(%x) {choices = 2 : i64, scores = #nn<scores sigmoid>, groups = 4 : i64} : (tensor<2x8xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// greater, convert
//===----------------------------------------------------------------------===//

func.func @c1_greater(%x: tensor<2x4xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{all of {lhs, rhs} have same type}}
  %0 = "nn.greater"(%x, %y) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_convert_shape(%x: tensor<2xi32>) {
  // expected-error @+1 {{requires the same shape for all operands and results}}
  %0 = "nn.convert"(%x) : (tensor<2xi32>) -> tensor<3xf32>
  return
}

// -----

func.func @c1_convert(%x: tensor<2xi32>) {
  // expected-error @+1 {{converts 'i32' to 'bf16', expected i32 and f32, or the reverse}}
  %0 = nn.convert %x : tensor<2xi32> -> tensor<2xbf16>
  return
}
