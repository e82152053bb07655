// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// mesh, sharding
//===----------------------------------------------------------------------===//

// expected-error @+1 {{has 2 axis names and 1 sizes}}
dist.mesh @c1 ["dp", "tp"] = [2]

// -----

// expected-error @+1 {{has 0 axis names and 0 sizes}}
dist.mesh @c1_empty [] = []

// -----

// expected-error @+1 {{names axis "tp" twice or not at all}}
dist.mesh @c2 ["tp", "tp"] = [2, 2]

// -----

// expected-error @+1 {{gives axis "tp" the size 0, less than 1}}
dist.mesh @c3 ["tp"] = [0]

// -----

// expected-error @+1 {{has more than 16777216 ranks}}
dist.mesh @c4 ["dp", "tp"] = [4294967296, 4294967296]

// -----

// expected-note @+1 {{the first one}}
dist.mesh @c5 ["dp"] = [2]
// expected-error @+1 {{'dist.mesh' op is a second mesh of its module}}
dist.mesh @other ["dp"] = [4]

// -----

// expected-error @+1 {{sharding of 1 dimensions on a tensor of rank 2}}
func.func private @c1(tensor<4x8xf32, #dist.sharding<@mesh, [{"tp"}]>>)

// -----

// expected-error @+1 {{sharding names axis "tp" twice}}
func.func private @c2(tensor<4x8xf32, #dist.sharding<@mesh, [{"tp"}, {"tp"}]>>)

// -----

// expected-error @+1 {{names axis "tp" twice}}
func.func private @c2_partial(tensor<4xf32, #dist.sharding<@mesh, [{"tp"}], partial = {"tp"}>>)

// -----

// expected-error @+1 {{sharding has 1 rounds at place 0 of [1, "tp"], expected 2 or more in front of the last axis}}
func.func private @c4(tensor<4xf32, #dist.sharding<@mesh, [{1, "tp"}]>>)

// -----

// expected-error @+1 {{sharding has 2 rounds at place 0 of [2, "dp", "tp"]}}
func.func private @c4_place(tensor<4xf32, #dist.sharding<@mesh, [{2, "dp", "tp"}]>>)

// -----

// expected-note @+1 {{the mesh}}
dist.mesh @mesh ["dp"] = [2]
func.func @c3(%0: tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>>) {
  // expected-error @+1 {{has a sharding over axis "tp", which the mesh does not have}}
  %1 = nn.neg %0 : tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>>
  return
}

// -----

func.func @c3_mesh(%0: tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>>) {
  // expected-error @+1 {{has a sharding on @mesh, which is not the module's mesh}}
  %1 = nn.neg %0 : tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// reshard
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [2]
func.func @c1(%0: tensor<4xf32>) {
  // expected-error @+1 {{needs shardings on one mesh, got 'tensor<4xf32>' and}}
  %1 = dist.reshard %0 : tensor<4xf32> -> tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2(%0: tensor<4xf32, #dist.sharding<@mesh, [{}]>>) {
  // expected-error @+1 {{makes a partial value over "tp" of one that is not}}
  %1 = dist.reshard %0 : tensor<4xf32, #dist.sharding<@mesh, [{}]>> -> tensor<4xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// all_reduce
//===----------------------------------------------------------------------===//

func.func @c1_mesh(%0: tensor<4xf32>) {
  // expected-error @+1 {{is on @mesh, which is no mesh}}
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c1_axis(%0: tensor<4xf32>) {
  // expected-error @+1 {{is on axis "dp", which mesh @mesh does not have}}
  %1 = dist.all_reduce %0 on @mesh["dp"] sum : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2(%0: tensor<4xf32>) {
  // expected-error @+1 {{changes 'tensor<4xf32>' to 'tensor<2xf32>'}}
  %1 = dist.all_reduce %0 on @mesh["tp"] sum : tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c3(%0: tensor<4xf32>) {
  // expected-error @+1 {{has member 2 after 0 on an axis of 2}}
  %1 = dist.all_reduce %0 on @mesh["tp"] sum members [0, 2] : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c4(%0: tensor<4xf32>) {
  // expected-error @+1 {{combines by owned, expected sum or max}}
  %1 = dist.all_reduce %0 on @mesh["tp"] owned : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c5_scatter(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{combines by owned, expected sum or max}}
  %1 = dist.reduce_scatter %0 on @mesh["tp"] owned dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_owned(%0: tensor<4xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>) {
  // expected-error @+1 {{makes rows that are owned over "tp" of a partial sum}}
  %1 = dist.reshard %0 : tensor<4xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>> -> tensor<4xf32, #dist.sharding<@mesh, [{}], partial = {"tp"} owned>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// all_gather, reduce_scatter, all_to_all, slice
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [2]
func.func @c1_gather(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %1 = dist.all_gather %0 on @mesh["x"] dim 1 : tensor<4x8xf32> -> tensor<4x16xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_gather(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{works on dimension 2 of a tensor of rank 2}}
  %1 = dist.all_gather %0 on @mesh["tp"] dim 2 : tensor<4x8xf32> -> tensor<4x16xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_gather_other(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{changes dimension 0 from 4 to 5}}
  %1 = dist.all_gather %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<5x16xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c3_gather(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{turns 8 elements of dimension 1 into 15 over 2 ranks}}
  %1 = dist.all_gather %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x15xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c1_scatter(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %1 = dist.reduce_scatter %0 on @mesh["x"] sum dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_scatter(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{works on dimension -1 of a tensor of rank 2}}
  %1 = dist.reduce_scatter %0 on @mesh["tp"] sum dim -1 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c3_scatter(%0: tensor<4x7xf32>) {
  // expected-error @+1 {{turns 7 elements of dimension 1 into 4 over 2 ranks}}
  %1 = dist.reduce_scatter %0 on @mesh["tp"] sum dim 1 : tensor<4x7xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c1_to_all(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %1 = dist.all_to_all %0 on @mesh["x"] split 1 concat 0 : tensor<4x8xf32> -> tensor<8x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_to_all(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{splits and concatenates dimension 1}}
  %1 = dist.all_to_all %0 on @mesh["tp"] split 1 concat 1 : tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c3_to_all(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{turns 4 elements of dimension 0 into 4 over 2 ranks}}
  %1 = dist.all_to_all %0 on @mesh["tp"] split 1 concat 0 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c1_slice(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %1 = dist.slice %0 on @mesh["x"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c1_slice_twice(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{names axis "tp" twice}}
  %1 = dist.slice %0 on @mesh["tp", "tp"] dim 1 : tensor<4x8xf32> -> tensor<4x2xf32>
  return
}

// -----

dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @c3_slice_both(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{turns 8 elements of dimension 1 into 4 over 4 ranks}}
  %1 = dist.slice %0 on @mesh["dp", "tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c2_slice(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{changes 'tensor<4x8xf32>' to 'tensor<4x4xbf16>'}}
  %1 = dist.slice %0 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xbf16>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c3_slice(%0: tensor<4x7xf32>) {
  // expected-error @+1 {{turns 7 elements of dimension 1 into 3 over 2 ranks}}
  %1 = dist.slice %0 on @mesh["tp"] dim 1 : tensor<4x7xf32> -> tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c4_gather(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{deals out blocks of 8 elements of dimension 1 in 3 rounds}}
  %1 = dist.all_gather %0 on @mesh["tp"] dim 1 rounds 3 : tensor<4x8xf32> -> tensor<4x16xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c4_scatter(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{deals out blocks of 4 elements of dimension 1 in 0 rounds}}
  %1 = dist.reduce_scatter %0 on @mesh["tp"] sum dim 1 rounds 0 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c4_slice(%0: tensor<4x8xf32>) {
  // expected-error @+1 {{deals out blocks of 4 elements of dimension 1 in 8 rounds}}
  %1 = dist.slice %0 on @mesh["tp"] dim 1 rounds 8 : tensor<4x8xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
func.func @c4_slice_uneven(%0: tensor<4x7xf32>) {
  // expected-error @+1 {{deals out 7 elements of dimension 1 over ["tp"] in rounds, expected equal blocks over one axis}}
  %1 = dist.slice %0 on @mesh["tp"] dim 1 rounds 2 : tensor<4x7xf32> -> tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c1_dispatch(%0: tensor<1x4x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %2 = dist.dispatch %0 by %1 on @mesh["x"] experts 2 : (tensor<1x4x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c2_dispatch(%0: tensor<1x4x8xf32>, %1: tensor<3x4x3xi32>) {
  // expected-error @+1 {{turns 1 elements of dimension 0 into 3 over 2 ranks}}
  %2 = dist.dispatch %0 by %1 on @mesh["ep"] experts 2 : (tensor<1x4x8xf32>, tensor<3x4x3xi32>) -> tensor<3x4x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c2_dispatch_others(%0: tensor<1x4x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{changes dimension 2 from 8 to 7}}
  %2 = dist.dispatch %0 by %1 on @mesh["ep"] experts 2 : (tensor<1x4x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x7xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c3_dispatch(%0: tensor<1x4x8xf32>, %1: tensor<2x5x3xi32>) {
  // expected-error @+1 {{has ids 'tensor<2x5x3xi32>' for rows of 'tensor<2x4x8xf32>'}}
  %2 = dist.dispatch %0 by %1 on @mesh["ep"] experts 2 : (tensor<1x4x8xf32>, tensor<2x5x3xi32>) -> tensor<2x4x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c3_dispatch_floats(%0: tensor<1x4x8xf32>, %1: tensor<2x4x3xf32>) {
  // expected-error @+1 {{has ids 'tensor<2x4x3xf32>' for rows of 'tensor<2x4x8xf32>'}}
  %2 = dist.dispatch %0 by %1 on @mesh["ep"] experts 2 : (tensor<1x4x8xf32>, tensor<2x4x3xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c4_dispatch(%0: tensor<1x4x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{has 0 experts a rank, expected 1 or more}}
  %2 = dist.dispatch %0 by %1 on @mesh["ep"] experts 0 : (tensor<1x4x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c1_combine(%0: tensor<2x4x3x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{is on axis "x", which mesh @mesh does not have}}
  %2 = dist.combine %0 by %1 on @mesh["x"] experts 2 : (tensor<2x4x3x8xf32>, tensor<2x4x3xi32>) -> tensor<1x4x3x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c2_combine(%0: tensor<2x4x3x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{turns 2 elements of dimension 0 into 2 over 2 ranks}}
  %2 = dist.combine %0 by %1 on @mesh["ep"] experts 2 : (tensor<2x4x3x8xf32>, tensor<2x4x3xi32>) -> tensor<2x4x3x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c3_combine(%0: tensor<2x5x8xf32>, %1: tensor<2x4xi32>) {
  // expected-error @+1 {{has ids 'tensor<2x4xi32>' for rows of 'tensor<2x5x8xf32>'}}
  %2 = dist.combine %0 by %1 on @mesh["ep"] experts 2 : (tensor<2x5x8xf32>, tensor<2x4xi32>) -> tensor<1x5x8xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c3_combine_rank(%0: tensor<2x4xf32>, %1: tensor<2x4xi32>) {
  // expected-error @+1 {{has ids 'tensor<2x4xi32>' for rows of 'tensor<2x4xf32>'}}
  %2 = dist.combine %0 by %1 on @mesh["ep"] experts 2 : (tensor<2x4xf32>, tensor<2x4xi32>) -> tensor<1x4xf32>
  return
}

// -----

dist.mesh @mesh ["ep"] = [2]
func.func @c4_combine(%0: tensor<2x4x3x8xf32>, %1: tensor<2x4x3xi32>) {
  // expected-error @+1 {{has -1 experts a rank, expected 1 or more}}
  %2 = dist.combine %0 by %1 on @mesh["ep"] experts -1 : (tensor<2x4x3x8xf32>, tensor<2x4x3xi32>) -> tensor<1x4x3x8xf32>
  return
}
