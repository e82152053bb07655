// RUN: plait-opt %s --dist-partition -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh}}
module {
}

// -----

// Collectives move equal blocks.
#sum = #dist.sharding<@mesh, [{}], partial = {"tp"}>
#split = #dist.sharding<@mesh, [{"tp"}]>
dist.mesh @mesh ["tp"] = [2]
func.func @scatter(%x: tensor<7xf32, #sum>) -> tensor<7xf32, #split> {
  // expected-error @+1 {{cannot move 7 elements of dimension 0 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<7xf32, #sum> -> tensor<7xf32, #split>
  return %0 : tensor<7xf32, #split>
}

// -----

#rows = #dist.sharding<@mesh, [{"tp"}, {}]>
#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
dist.mesh @mesh ["tp"] = [2]
func.func @exchange(%x: tensor<7x4xf32, #rows>) -> tensor<7x4xf32, #columns> {
  // expected-error @+1 {{cannot move 7 elements of dimension 0 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<7x4xf32, #rows> -> tensor<7x4xf32, #columns>
  return %0 : tensor<7x4xf32, #columns>
}

// -----

#split = #dist.sharding<@mesh, [{"tp"}]>
#whole = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["tp"] = [2]
func.func @gather(%x: tensor<7xf32, #split>) -> tensor<7xf32, #whole> {
  // expected-error @+1 {{cannot move 7 elements of dimension 0 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<7xf32, #split> -> tensor<7xf32, #whole>
  return %0 : tensor<7xf32, #whole>
}

// -----

// Of 10 elements over 2 x 2 ranks each has 3, of 10 over 2 ranks 5: blocks of the
// first kind lie across borders of the second.
#dp = #dist.sharding<@mesh, [{}, {"dp"}]>
#both = #dist.sharding<@mesh, [{}, {"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @slice_inner(%x: tensor<4x10xf32, #dp>) -> tensor<4x10xf32, #both> {
  // expected-error @+1 {{cannot move 5 elements of dimension 1 in 2 equal blocks: a part of 'tensor<4x10xf32, #dist.sharding<@mesh, [{}, {"dp", "tp"}]>>' over ["dp"]}}
  %0 = dist.reshard %x : tensor<4x10xf32, #dp> -> tensor<4x10xf32, #both>
  return %0 : tensor<4x10xf32, #both>
}

// -----

#dp = #dist.sharding<@mesh, [{"dp"}]>
#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @gather_inner(%x: tensor<10xf32, #both>) -> tensor<10xf32, #dp> {
  // expected-error @+1 {{cannot move 5 elements of dimension 0 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<10xf32, #both> -> tensor<10xf32, #dp>
  return %0 : tensor<10xf32, #dp>
}

// -----

#dp = #dist.sharding<@mesh, [{"dp"}], partial = {"tp"}>
#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @scatter_inner(%x: tensor<10xf32, #dp>) -> tensor<10xf32, #both> {
  // expected-error @+1 {{cannot move 5 elements of dimension 0 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<10xf32, #dp> -> tensor<10xf32, #both>
  return %0 : tensor<10xf32, #both>
}

// -----

// Positions of what is dealt out do not count on from a beginning.
#rounds = #dist.sharding<@mesh, [{}, {2, "tp"}]>
dist.mesh @mesh ["tp"] = [2]
func.func @counts() -> tensor<2x8xi32, #rounds> {
  // expected-error @+1 {{counts along d1, which is distributed in 2 rounds}}
  %0 = nn.iota along 1 : tensor<2x8xi32, #rounds>
  return %0 : tensor<2x8xi32, #rounds>
}
