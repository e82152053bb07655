// RUN: plait-opt %s -split-input-file -verify-diagnostics

func.func @c1_parts(%g: tensor<8x4xf32>) {
  // expected-error @+1 {{has parts 'tensor<2x4x8xf32>' of a sum 'tensor<8x4xf32>', expected the same shape, or one dimension in front}}
  %0 = nn.parts %g over "dp" : tensor<8x4xf32> -> tensor<2x4x8xf32>
  return
}

// -----

func.func @c2_parts(%g: tensor<8x4xf32>) {
  // expected-error @+1 {{has 2 parts of what is alone}}
  %0 = nn.parts %g over "dp" alone : tensor<8x4xf32> -> tensor<2x8x4xf32>
  return
}

// -----

func.func @c1_unite(%g: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has parts 'tensor<2x8x4xf32>' of a sum 'tensor<2x8xf32>'}}
  %0 = nn.unite %g over "dp" : tensor<2x8x4xf32> -> tensor<2x8xf32>
  return
}

// -----

func.func @c1_chunk_reduce(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has chunks of 0 elements, expected at least 1}}
  %0 = nn.chunk_reduce max %x block 0 : tensor<2x8x4xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @c2_chunk_reduce(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has 'tensor<2x3xf32>' for 'tensor<2x8x4xf32>', expected a number for each chunk of 16 elements}}
  %0 = nn.chunk_reduce max %x block 16 : tensor<2x8x4xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @c2_chunk_reduce_replicas(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{expected a number for each chunk of 16 elements}}
  %0 = nn.chunk_reduce max %x block 16 : tensor<2x8x4xf32> -> tensor<1x2xf32>
  return
}

// -----

func.func @c1_chunk_spread(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{has chunks of -1 elements, expected at least 1}}
  %0 = nn.chunk_spread %x block -1 : tensor<2x2xf32> -> tensor<2x8x4xf32>
  return
}

// -----

func.func @c2_chunk_spread(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{has 'tensor<2x2xf32>' for 'tensor<2x8x4xf32>', expected a number for each chunk of 8 elements}}
  %0 = nn.chunk_spread %x block 8 : tensor<2x2xf32> -> tensor<2x8x4xf32>
  return
}

// -----

func.func @c1_slice(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{takes part 4 of 4 of 'tensor<2x8xf32>'}}
  %0 = nn.slice %x part 4 of 4 : tensor<2x8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @c1_slice_uneven(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{takes part 0 of 3 of 'tensor<2x8xf32>'}}
  %0 = nn.slice %x part 0 of 3 : tensor<2x8xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @c2_slice(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has result 'tensor<2x4xf32>', expected 2 elements of each row}}
  %0 = nn.slice %x part 0 of 4 : tensor<2x8xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_pack_bits(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has integers of 12 bits, expected 1, 2, 4, 8 or 16}}
  %0 = nn.pack_bits %x, %x bits 12 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @c2_pack_bits(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has 2 inputs, expected 4}}
  %0 = nn.pack_bits %x, %x bits 8 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @c1_unpack_bits(%x: tensor<2x8xi32>) {
  // expected-error @+1 {{has integers of 0 bits, expected 1, 2, 4, 8 or 16}}
  %0 = nn.unpack_bits %x bits 0 : tensor<2x8xi32> -> tensor<2x8xf32>
  return
}

// -----

func.func @c2_unpack_bits(%x: tensor<2x8xi32>) {
  // expected-error @+1 {{makes 'tensor<2x16xf32>' of 'tensor<2x8xi32>', expected 4 elements for each word}}
  %0 = nn.unpack_bits %x bits 8 : tensor<2x8xi32> -> tensor<2x16xf32>
  return
}

// -----

func.func @c1_occupied(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has tensors of array<i64: 40, 0> elements, expected at least 1 each}}
  %0 = nn.occupied %x elements [40, 0] : tensor<4x32xf32>
  return
}

// -----

func.func @c1_occupied_none(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{elements, expected at least 1 each}}
  %0 = nn.occupied %x elements [] : tensor<4x32xf32>
  return
}

// -----

func.func @c2_occupied(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has 'tensor<4x32xf32>' for tensors of array<i64: 65, 33> elements}}
  %0 = nn.occupied %x elements [65, 33] : tensor<4x32xf32>
  return
}

// -----

func.func @c2_occupied_rank(%x: tensor<32xf32>) {
  // expected-error @+1 {{has 'tensor<32xf32>', expected rows or parts}}
  %0 = nn.occupied %x elements [32] : tensor<32xf32>
  return
}

// -----

func.func @c1_keep_top(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has chunks of 0 elements of 'tensor<4x32xf32>', expected at least 1}}
  %0 = nn.keep_top %x keep 1 block 0 : tensor<4x32xf32>
  return
}

// -----

func.func @c2_keep_top(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{keeps 0 elements of a chunk, expected 1 to 32}}
  %0 = nn.keep_top %x keep 0 block 32 : tensor<4x32xf32>
  return
}

// -----

func.func @c2_keep_top_all(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{keeps 33 elements of a chunk, expected 1 to 32}}
  %0 = nn.keep_top %x keep 33 block 32 : tensor<4x32xf32>
  return
}

// -----

func.func @c1_compact(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has 'tensor<4x33xf32>' of 'tensor<4x32xf32>', expected as many rows, and no more columns}}
  %0 = nn.compact %x where %x : tensor<4x32xf32> -> tensor<4x33xf32>
  return
}

// -----

func.func @c1_expand(%x: tensor<4x32xf32>, %m: tensor<3x32xf32>) {
  // expected-error @+1 {{has 'tensor<4x32xf32>' of 'tensor<3x32xf32>', expected as many rows, and no more columns}}
  %0 = nn.expand %x where %m : tensor<4x32xf32> -> tensor<3x32xf32>
  return
}

// -----

func.func @c1_find(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has columns 'tensor<3x2xf32>' of 'tensor<4x32xf32>', expected as many rows}}
  %0 = nn.find %x : tensor<4x32xf32> -> tensor<3x2xf32>
  return
}

// -----

func.func @c1_mark(%x: tensor<4x32xf32>) {
  // expected-error @+1 {{has columns 'tensor<4x32xf32>' of 'tensor<3x64xf32>', expected as many rows}}
  %0 = nn.mark %x : tensor<4x32xf32> -> tensor<3x64xf32>
  return
}
