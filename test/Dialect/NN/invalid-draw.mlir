// RUN: plait-opt %s -split-input-file -verify-diagnostics

func.func @c1_none(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has tensors of}}
  %u = nn.draw %x at %s block 32 seed 0 elements [] keys [] runs [] begins [] : tensor<8x32xf32>
  return
}

// -----

func.func @c1_keys(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has keys array<i64: 1, 2>, runs array<i64: 3> and begins [unit], expected one of each for 1 tensors}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70] keys [1, 2] runs [3] begins [unit] : tensor<8x32xf32>
  return
}

// -----

func.func @c1_key(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has keys array<i64: 4294967296>}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70] keys [4294967296] runs [3] begins [unit] : tensor<8x32xf32>
  return
}

// -----

func.func @c1_run(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{runs array<i64: 0>}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70] keys [1] runs [0] begins [unit] : tensor<8x32xf32>
  return
}

// -----

func.func @c2(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has 'tensor<8x32xf32>' for tensors of}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70, 200] keys [1, 2] runs [3, 7] begins [unit, unit] : tensor<8x32xf32>
  return
}

// -----

func.func @c3_kind(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has a run of 3 chunks that begins at 4}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70] keys [1] runs [3] begins [4] : tensor<8x32xf32>
  return
}

// -----

func.func @c3_extent(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has a run of 3 chunks that begins at}}
  %u = nn.draw %x at %s block 32 seed 0 elements [70] keys [1] runs [3] begins [#nn.begin<"tp" * 3>] : tensor<8x32xf32>
  return
}

// -----

func.func @c4(%x: tensor<8x32xf32>, %s: tensor<8x32xf32>) {
  // expected-error @+1 {{has chunks of 0 elements, expected at least 1}}
  %u = nn.draw %x at %s block 0 seed 0 elements [70] keys [1] runs [3] begins [unit] : tensor<8x32xf32>
  return
}
