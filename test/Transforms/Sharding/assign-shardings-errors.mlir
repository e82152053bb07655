// RUN: plait-opt %s --dist-assign-shardings -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh or no function @loss to shard}}
module {
  func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @+1 {{has no mesh or no function @loss to shard}}
module {
  dist.mesh @mesh ["tp"] = [2]
  func.func @lost(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["dp"] = [3]
// expected-error @+1 {{dp=3 does not divide the batch of 64 sequences}}
func.func @loss(%x: tensor<64x8xi32>, %y: tensor<64x8xi32>) {
  return
}

// -----

dist.mesh @mesh ["cp"] = [3]
// expected-error @+1 {{cp=3 does not divide the sequence of 8 positions; nearest are 6 and 9}}
func.func @loss(%x: tensor<64x8xi32>, %y: tensor<64x8xi32>) {
  return
}

// -----

// Fewer positions than ranks.
dist.mesh @mesh ["cp"] = [16]
// expected-error @+1 {{cp=16 does not divide the sequence of 8 positions; nearest are 16}}
func.func @loss(%x: tensor<64x8xi32>, %y: tensor<64x8xi32>) {
  return
}

// -----

// The matmul is of a table with itself the other way round.
dist.mesh @mesh ["dp", "cp"] = [2, 2]
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{"cp" cannot split dimension 1 of the tokens: the model's ops move it together with dimension 0, which "dp" splits}}
func.func @loss(%x: tensor<4x4xi32>, %y: tensor<4x4xi32>) -> tensor<4x4xf32> {
  %a = nn.valid %x ignore -100 : tensor<4x4xi32> -> tensor<4x4xf32>
  %w = nn.read @w value : tensor<4x4xf32>
  %p = nn.matmul %a, %w "bs,sb->bs" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = nn.matmul %a, %w "bs,bs->bs" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %p : tensor<4x4xf32>
}

// -----

//===----------------------------------------------------------------------===//
// Heads are never padded
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [4]
func.func @loss(%q: tensor<2x8x6x1x4xf32>, %k: tensor<2x8x6x4xf32>) {
  // expected-error @+1 {{tp=4 does not divide the 6 key/value heads of nn.attention; possible are 1, 2, 3, 6}}
  %o:2 = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x6x1x4xf32>, tensor<2x8x6x4xf32>, tensor<2x8x6x4xf32>) -> (tensor<2x8x6x1x4xf32>, tensor<2x6x1x8xf32>)
  return
}

// -----

// Eight query heads, four for each key and value head: eight ranks would share
// them by twos.
dist.mesh @mesh ["dp", "tp"] = [2, 8]
func.func @loss(%q: tensor<2x8x2x4x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{tp=8 does not divide the 2 key/value heads or 4 query heads of each of nn.attention; possible are 1, 2, 4}}
  %o:2 = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x4x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x4x4xf32>, tensor<2x2x4x8xf32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// Shardings that are given and cannot be kept
//===----------------------------------------------------------------------===//

// The matmul sums over the tokens' own dimension, which tp leaves alone.
dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{cannot be split along dimension 0 over tp=2, as its sharding says}}
nn.parameter @w : tensor<256x256xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"tp"}, {}]>
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %w = nn.read @w value : tensor<256x256xf32>
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %0 : tensor<64x256xf32>
}

// -----

// More blocks than elements.
dist.mesh @mesh ["tp"] = [8]
// expected-error @+1 {{cannot be split along dimension 1 over tp=8, as its sharding says}}
nn.parameter @w : tensor<256x4xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {"tp"}]>
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x4xf32> {
  %w = nn.read @w value : tensor<256x4xf32>
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x4xf32>) -> tensor<64x4xf32>
  return %0 : tensor<64x4xf32>
}

// -----

// Ranks of pp hold different layers.
dist.mesh @mesh ["pp", "tp"] = [2, 2]
// expected-error @+1 {{has a sharding over axis "pp", along which ranks hold other layers}}
nn.parameter @w : tensor<256x256xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {"pp"}]>
func.func @loss(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %w = nn.read @w value : tensor<256x256xf32>
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %0 : tensor<64x256xf32>
}

// -----

// The scale could be split alone, but the norm needs it whole, and blocks of 128
// and 127 elements cannot be gathered.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<16x255xf32> init<mean = 0.0, std = 0.02>
nn.parameter @scale : tensor<255xf32> init<mean = 1.0, std = 0.0> sharding #dist.sharding<@mesh, [{"tp"}]>
// expected-error @+1 {{the shardings given for parameters cannot be met on axis "tp"}}
func.func @loss(%ids: tensor<64xi32>) -> tensor<64x255xf32> {
  %table = nn.read @table value : tensor<16x255xf32>
  %x = nn.embedding %table, %ids : (tensor<16x255xf32>, tensor<64xi32>) -> tensor<64x255xf32>
  %scale = nn.read @scale value : tensor<255xf32>
  %y:2 = nn.rms_norm %x, %scale epsilon 1.0e-05 : (tensor<64x255xf32>, tensor<255xf32>) -> (tensor<64x255xf32>, tensor<64xf32>)
  return %y#0 : tensor<64x255xf32>
}

// -----

// What accumulates over the microbatches has no value while they are computed.
dist.mesh @mesh ["tp"] = [2]
nn.accumulator @seen : tensor<f32>
func.func @loss(%x: tensor<64x256xi32>) -> tensor<f32> {
  // expected-error @+1 {{reads @seen, which is no parameter}}
  %seen = nn.read @seen value : tensor<f32>
  return %seen : tensor<f32>
}

// -----

// Dropout's masks go by groups, so that query heads of one stay together.
module attributes {plait.configuration = #plait.configuration<context_parallel = heads>} {
  dist.mesh @mesh ["dp", "cp"] = [1, 2]
  func.func @loss(%q: tensor<2x8x1x4x4xf32>, %k: tensor<2x8x1x4xf32>, %keys: tensor<2xi32> {nn.keys}) -> tensor<2x8x1x4x4xf32> {
    // expected-error @+1 {{cp=2 does not divide the 1 key/value heads of nn.attention; possible are 1, or `context-parallel` gather}}
    %o, %lse = nn.attention %q, %k, %k scale 0.5 dropout %keys probability 0.1 site 0 : (tensor<2x8x1x4x4xf32>, tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>, tensor<2xi32>) -> (tensor<2x8x1x4x4xf32>, tensor<2x1x4x8xf32>)
    return %o : tensor<2x8x1x4x4xf32>
  }
}
