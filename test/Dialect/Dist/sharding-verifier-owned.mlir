// RUN: plait-opt %s -split-input-file -verify-diagnostics

// What is legal: rows of experts that ep splits go through elementwise ops, beside
// what is whole, to the next experts; a sum over the choices makes a partial sum.

#tokens = #dist.sharding<@mesh, [{"dp"}, {}]>
#ids = #dist.sharding<@mesh, [{"dp"}, {}]>
#experts = #dist.sharding<@mesh, [{"ep"}, {}, {}]>
#rows = #dist.sharding<@mesh, [{"dp"}, {}, {}]>
#owned = #dist.sharding<@mesh, [{"dp"}, {}, {}], partial = {"ep"} owned>
#sum = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"ep"}>
dist.mesh @mesh ["dp", "ep"] = [2, 2]
func.func @legal(%x: tensor<8x4xf32, #tokens>, %w: tensor<6x5x4xf32, #experts>,
                 %v: tensor<6x4x5xf32, #experts>, %ids: tensor<8x2xi32, #ids>,
                 %weights: tensor<8x2x5xf32, #rows>) {
  %0 = nn.grouped_matmul %x, %w, %ids "bh,efh->bcf" : (tensor<8x4xf32, #tokens>, tensor<6x5x4xf32, #experts>, tensor<8x2xi32, #ids>) -> tensor<8x2x5xf32, #owned>
  %1 = nn.silu %0 : tensor<8x2x5xf32, #owned>
  %2 = nn.mul %1, %0 : tensor<8x2x5xf32, #owned>
  %w2 = dist.reshard %weights : tensor<8x2x5xf32, #rows> -> tensor<8x2x5xf32, #owned>
  %3 = nn.mul %2, %w2 : tensor<8x2x5xf32, #owned>
  %4 = nn.grouped_matmul %3, %v, %ids "bcf,ehf->bch" : (tensor<8x2x5xf32, #owned>, tensor<6x4x5xf32, #experts>, tensor<8x2xi32, #ids>) -> tensor<8x2x4xf32, #owned>
  %5 = nn.reduce sum %4 dims [1] : tensor<8x2x4xf32, #owned> -> tensor<8x4xf32, #sum>
  %6 = dist.reshard %5 : tensor<8x4xf32, #sum> -> tensor<8x4xf32, #tokens>
  return
}

// -----

// (S2) not of a partial sum, not by other axes, and not whole or owned as one likes.

#rows = #dist.sharding<@mesh, [{}, {}], partial = {"ep"}>
dist.mesh @mesh ["dp", "ep"] = [2, 2]
func.func @s2_sum(%x: tensor<8x5xf32, #rows>) {
  // expected-error @+1 {{uses operand 0 as if it were whole, but it is}}
  %0 = nn.silu %x : tensor<8x5xf32, #rows>
  return
}

// -----

#owned = #dist.sharding<@mesh, [{}, {}], partial = {"ep"} owned>
#sum = #dist.sharding<@mesh, [{}, {}], partial = {"ep"}>
dist.mesh @mesh ["dp", "ep"] = [2, 2]
func.func @s2_softmax(%x: tensor<8x5xf32, #owned>) {
  // expected-error @+1 {{uses operand 0 as if it were whole, but it is}}
  %0 = nn.reduce max %x dims [1] : tensor<8x5xf32, #owned> -> tensor<8xf32, #dist.sharding<@mesh, [{}], partial = {"ep"} max>>
  return
}

// -----

#tokens = #dist.sharding<@mesh, [{}, {}]>
#owned = #dist.sharding<@mesh, [{}, {}], partial = {"dp"} owned>
#experts = #dist.sharding<@mesh, [{"ep"}, {}, {}]>
#result = #dist.sharding<@mesh, [{}, {}], partial = {"ep"} owned>
dist.mesh @mesh ["dp", "ep"] = [2, 2]
func.func @s2_axes(%x: tensor<8x5xf32, #owned>, %w: tensor<6x4x5xf32, #experts>,
                   %ids: tensor<8xi32, #dist.sharding<@mesh, [{}]>>) {
  // expected-error @+1 {{uses operand 0, which is}}
  %0 = nn.grouped_matmul %x, %w, %ids "bf,ehf->bh" : (tensor<8x5xf32, #owned>, tensor<6x4x5xf32, #experts>, tensor<8xi32, #dist.sharding<@mesh, [{}]>>) -> tensor<8x4xf32, #result>
  return
}

// -----

// (S6) a sum over the choices is no row of anybody.

#owned = #dist.sharding<@mesh, [{}, {}], partial = {"ep"} owned>
dist.mesh @mesh ["dp", "ep"] = [2, 2]
func.func @s6_sum(%x: tensor<8x5xf32, #owned>) {
  // expected-error @+1 {{but the split makes it partial over ["ep"]}}
  %0 = nn.reduce sum %x dims [1] : tensor<8x5xf32, #owned> -> tensor<8xf32, #dist.sharding<@mesh, [{}], partial = {"ep"} owned>>
  return
}

// -----

// Nor is the sum over an inner dimension that is split as well.

#tokens = #dist.sharding<@mesh, [{}, {"tp"}]>
#experts = #dist.sharding<@mesh, [{"ep"}, {}, {"tp"}]>
#result = #dist.sharding<@mesh, [{}, {}], partial = {"ep", "tp"} owned>
dist.mesh @mesh ["ep", "tp"] = [2, 2]
func.func @s6_inner(%x: tensor<8x6xf32, #tokens>, %w: tensor<6x4x6xf32, #experts>,
                    %ids: tensor<8xi32, #dist.sharding<@mesh, [{}]>>) {
  // expected-error @+1 {{but the split makes it partial over ["tp", "ep"]}}
  %0 = nn.grouped_matmul %x, %w, %ids "bf,ehf->bh" : (tensor<8x6xf32, #tokens>, tensor<6x4x6xf32, #experts>, tensor<8xi32, #dist.sharding<@mesh, [{}]>>) -> tensor<8x4xf32, #result>
  return
}
