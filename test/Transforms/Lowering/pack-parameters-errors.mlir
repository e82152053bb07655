// RUN: plait-opt %s -split-input-file -verify-diagnostics

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has 1 offsets for 2 members}}
nn.pack @pack rank 0 [@a, @b] at [0] : tensor<1x64xf32>

// -----

// expected-error @+1 {{'nn.pack' op has 0 offsets for 0 members}}
nn.pack @pack rank 0 [] at [] : tensor<1x64xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has a member at element 16, which is not a multiple of 32}}
nn.pack @pack rank 0 [@a] at [16] : tensor<1x64xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has a member at element -32, which is not a multiple of 32}}
nn.pack @pack rank 0 [@a] at [-32] : tensor<1x64xf32>

// -----

nn.accumulator @sum : tensor<f32>
// expected-error @+1 {{'nn.pack' op has member @sum, which is no parameter}}
nn.pack @pack rank 0 [@sum] at [0] : tensor<1x64xf32>

// -----

// Another stage may pack it once more.
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.pack @first rank 0 [@a] at [0] : tensor<1x64xf32>
nn.pack @other rank 1 [@a] at [0] : tensor<1x64xf32>
// expected-error @+1 {{'nn.pack' op has member @a, which is packed twice for rank 2}}
nn.pack @twice rank 2 [@a, @a] at [0, 32] : tensor<1x64xf32>

// -----

nn.parameter @a : tensor<33xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has 32 elements for member @a, which has 33}}
nn.pack @pack rank 0 [@a, @b] at [0, 32] : tensor<1x64xf32>

// -----

// Of a parameter that is split, one rank's block.
dist.mesh @mesh ["pp", "tp"] = [1, 2]
nn.parameter @a : tensor<64xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"tp"}]>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has 0 elements for member @b, which has 4}}
nn.pack @pack rank 0 [@a, @b] at [0, 32] : tensor<1x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.pack @pack rank 0 [@a] at [0] : tensor<1x32xf32>
func.func @read() -> tensor<1x32xf32> {
  // expected-error @+1 {{'nn.read' op has type 'tensor<1x32xf32>', but the compute of @pack is 'tensor<1x32xbf16>'}}
  %0 = nn.read @pack compute : tensor<1x32xf32>
  return %0 : tensor<1x32xf32>
}

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op is divided on @other, which is no mesh}}
nn.pack @pack rank 0 [@a] at [0] divided on @other["dp"] : tensor<2x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op is divided over axes ["dp"] but names no mesh}}
"nn.pack"() <{axes = ["dp"], members = [@a], offsets = array<i64: 0>, rank = 0 : i64, sym_name = "pack", type = tensor<2x32xf32>}> : () -> ()

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op is divided over axis "tp", which @mesh does not have}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["tp"] : tensor<2x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op is divided over axis "dp" twice}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp", "dp"] : tensor<4x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op is divided over no axis}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh[] : tensor<2x32xf32>

// -----

dist.mesh @mesh ["pp", "dp", "cp"] = [1, 2, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has 2 rows, which 4 ranks cannot divide evenly}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["cp", "dp"] : tensor<2x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has 3 rows, which 2 ranks cannot divide evenly}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] : tensor<3x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}]>
// expected-error @+1 {{'nn.pack' op is divided over axis "dp", which splits member @a}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] : tensor<2x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has master values but is not divided}}
nn.pack @pack rank 0 [@a] at [0] master : tensor<1x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has sums of rows but is not divided}}
nn.pack @pack rank 0 [@a] at [0] sums : tensor<1x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has sums of rows but divides master values}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] master sums : tensor<2x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has blocks of 1 members but divides no values}}
nn.pack @pack rank 0 [@a] at [0] blocks : tensor<1x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has blocks of 1 members but divides no values}}
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] sums blocks : tensor<2x32xf32>

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>
// expected-error @+1 {{'nn.pack' op has blocks of 2 members, expected one}}
nn.pack @pack rank 0 [@a, @b] at [0, 32] divided on @mesh["dp"] blocks : tensor<2x32xf32>

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.pack @pack rank 0 [@a] at [0] : tensor<1x32xf32>
func.func @read() {
  // expected-error @+1 {{'nn.read' op names @pack, which has no reduced}}
  %0 = nn.read @pack reduced : tensor<1x32xf32>
  return
}

// -----

nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
func.func @read() {
  // expected-error @+1 {{'nn.read' op names @a, which has no reduced}}
  %0 = nn.read @a reduced : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh ["pp", "dp"] = [1, 2]
nn.parameter @a : tensor<4xf32> init<mean = 0.0, std = 0.02>
nn.pack @pack rank 0 [@a] at [0] divided on @mesh["dp"] : tensor<2x32xf32>
func.func @read() {
  // expected-error @+1 {{'nn.read' op has type 'tensor<2x32xf32>', but the moment1 of @pack is 'tensor<1x32xf32>'}}
  %0 = nn.read @pack moment1 : tensor<2x32xf32>
  return
}
