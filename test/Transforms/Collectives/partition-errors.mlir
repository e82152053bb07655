// RUN: plait-opt %s --dist-partition -split-input-file -verify-diagnostics

// expected-error @+1 {{has no mesh}}
module {
}

// -----

// An index of a block over two axes is unknown to kernels and masks: each kind of
// value that may be split so.
#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @index() -> tensor<8xi32, #both> {
  // expected-error @+1 {{cannot partition 'tensor<8xi32, #dist.sharding<@mesh, [{"dp", "tp"}]>>': dimension 0 is split over ["dp", "tp"], expected at most one axis of more than one rank}}
  %0 = nn.iota along 0 : tensor<8xi32, #both>
  return %0 : tensor<8xi32, #both>
}

// -----

#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
#one = #dist.sharding<@mesh, [{"dp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @target(%x: tensor<7xf32, #one>) -> tensor<7xf32, #both> {
  // expected-error @+1 {{dimension 0 is split over ["dp", "tp"]}}
  %0 = dist.reshard %x : tensor<7xf32, #one> -> tensor<7xf32, #both>
  return %0 : tensor<7xf32, #both>
}

// -----

#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
// expected-error @+1 {{dimension 0 is split over ["dp", "tp"]}}
func.func @argument(%x: tensor<8xf32, #both>) {
  return
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
func.func @exchange(%x: tensor<4x7xf32, #rows>) -> tensor<4x7xf32, #columns> {
  // expected-error @+1 {{cannot move 7 elements of dimension 1 in 2 equal blocks}}
  %0 = dist.reshard %x : tensor<4x7xf32, #rows> -> tensor<4x7xf32, #columns>
  return %0 : tensor<4x7xf32, #columns>
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

// A slice of a block over dp is not a block over tp.
#dp = #dist.sharding<@mesh, [{"dp"}]>
#tp = #dist.sharding<@mesh, [{"tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @one_for_the_other(%x: tensor<8xf32, #dp>) -> tensor<8xf32, #tp> {
  // expected-error @+1 {{cannot move axis "tp" of dimension 0 past the other axes that split it}}
  %0 = dist.reshard %x : tensor<8xf32, #dp> -> tensor<8xf32, #tp>
  return %0 : tensor<8xf32, #tp>
}
