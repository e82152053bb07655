// RUN: plait-opt %s -split-input-file -verify-diagnostics

func.func @c1_chunk(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{cuts dimension 2 of 'tensor<2x8xf32>'}}
  %0 = nn.chunk %x dim 2 part 0 of 2 : tensor<2x8xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_chunk_negative(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{cuts dimension -1 of 'tensor<2x8xf32>'}}
  %0 = nn.chunk %x dim -1 part 0 of 2 : tensor<2x8xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c2_chunk(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{takes part 4 of 4 of 'tensor<2x8xf32>' along dimension 1}}
  %0 = nn.chunk %x dim 1 part 4 of 4 : tensor<2x8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @c2_chunk_uneven(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{takes part 0 of 3 of 'tensor<2x8xf32>' along dimension 1}}
  %0 = nn.chunk %x dim 1 part 0 of 3 : tensor<2x8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @c3_chunk(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has result 'tensor<2x8xf32>', expected 'tensor<2x4xf32>'}}
  %0 = nn.chunk %x dim 1 part 0 of 2 : tensor<2x8xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @c3_chunk_type(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has result 'tensor<2x4xbf16>', expected 'tensor<2x4xf32>'}}
  %0 = nn.chunk %x dim 1 part 0 of 2 : tensor<2x8xf32> -> tensor<2x4xbf16>
  return
}

// -----

func.func @c1_concat() {
  // expected-error @+1 {{has no operand}}
  %0 = nn.concat dim 0 : () -> tensor<4x3xf32>
  return
}

// -----

func.func @c2_concat(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{joins dimension 1 of 'tensor<2x6xf32>', expected one with extents of 1 in front of it}}
  %0 = nn.concat %x, %x dim 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c2_concat_dim(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{joins dimension 2 of 'tensor<4x3xf32>'}}
  %0 = nn.concat %x, %x dim 2 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @c3_concat_uneven(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{has 2 operands for 'tensor<5x3xf32>' along dimension 0}}
  %0 = nn.concat %x, %x dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<5x3xf32>
  return
}

// -----

func.func @c3_concat(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{has operand 'tensor<2x3xf32>', expected 'tensor<3x3xf32>'}}
  %0 = nn.concat %x, %x dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<6x3xf32>
  return
}
