// RUN: plait-opt %s -split-input-file -verify-diagnostics

// What is legal: batch over dp, the matmul's columns or its sum over tp.

#rows = #dist.sharding<@mesh, [{"dp"}, {}]>
#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#both = #dist.sharding<@mesh, [{"dp"}, {"tp"}]>
#inner = #dist.sharding<@mesh, [{"tp"}, {}]>
#partial = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @legal(%x: tensor<8x4xf32, #rows>, %w: tensor<4x6xf32, #columns>,
                 %v: tensor<6x4xf32, #inner>) {
  %0 = nn.matmul %x, %w "ah,hc->ac" : (tensor<8x4xf32, #rows>, tensor<4x6xf32, #columns>) -> tensor<8x6xf32, #both>
  %1 = nn.matmul %0, %v "ac,ch->ah" : (tensor<8x6xf32, #both>, tensor<6x4xf32, #inner>) -> tensor<8x4xf32, #partial>
  %2 = dist.reshard %1 : tensor<8x4xf32, #partial> -> tensor<8x4xf32, #rows>
  %3 = nn.gelu %2 tanh : tensor<8x4xf32, #rows>
  return
}

// -----

#rows = #dist.sharding<@mesh, [{"dp"}, {}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s1(%x: tensor<8x4xf32, #rows>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{mixes sharded and plain types: 'tensor<4x6xf32>'}}
  %0 = nn.matmul %x, %w "ah,hc->ac" : (tensor<8x4xf32, #rows>, tensor<4x6xf32>) -> tensor<8x6xf32, #rows>
  return
}

// -----

#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s2(%x: tensor<8x4xf32, #partial>) {
  // expected-error @+1 {{uses operand 0 as if it were whole, but it is}}
  %0 = nn.neg %x : tensor<8x4xf32, #partial>
  return
}

// -----

#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#whole = #dist.sharding<@mesh, [{}, {}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s3(%x: tensor<8x4xf32, #columns>, %w: tensor<4x6xf32, #whole>) {
  // expected-error @+1 {{splits factor h over ["tp"], but operand 1 over []}}
  %0 = nn.matmul %x, %w "ah,hc->ac" : (tensor<8x4xf32, #columns>, tensor<4x6xf32, #whole>) -> tensor<8x6xf32, #whole>
  return
}

// -----

#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#split = #dist.sharding<@mesh, [{"tp"}]>
#whole = #dist.sharding<@mesh, [{}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s4(%x: tensor<8x4xf32, #columns>, %w: tensor<4xf32, #split>) {
  // expected-error @+1 {{splits dimension 1 of operand 0 over ["tp"], which must stay whole}}
  %0:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<8x4xf32, #columns>, tensor<4xf32, #split>) -> (tensor<8x4xf32, #columns>, tensor<8xf32, #whole>)
  return
}

// -----

#rows = #dist.sharding<@mesh, [{"tp"}, {}]>
#split = #dist.sharding<@mesh, [{"tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s5(%table: tensor<16x4xf32, #rows>, %ids: tensor<8xi32, #split>) {
  // expected-error @+1 {{splits two factors over "tp"}}
  %0 = nn.embedding %table, %ids : (tensor<16x4xf32, #rows>, tensor<8xi32, #split>) -> tensor<8x4xf32, #rows>
  return
}

// -----

#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#rows = #dist.sharding<@mesh, [{"tp"}, {}]>
#whole = #dist.sharding<@mesh, [{}, {}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s6_missing(%x: tensor<8x4xf32, #columns>, %w: tensor<4x6xf32, #rows>) {
  // expected-error @+1 {{but the split makes it partial over ["tp"]}}
  %0 = nn.matmul %x, %w "ah,hc->ac" : (tensor<8x4xf32, #columns>, tensor<4x6xf32, #rows>) -> tensor<8x6xf32, #whole>
  return
}

// -----

#whole = #dist.sharding<@mesh, [{}, {}]>
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s6_extra(%x: tensor<8x4xf32, #whole>) {
  // expected-error @+1 {{but the split makes it partial over []}}
  %0 = nn.reduce sum %x dims [1] : tensor<8x4xf32, #whole> -> tensor<8xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>
  return
}

// -----

#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 2]
func.func @s6_reduction(%x: tensor<8x4xf32, #columns>) {
  // expected-error @+1 {{but the split makes it partial over ["tp"]}}
  %0 = nn.reduce max %x dims [1] : tensor<8x4xf32, #columns> -> tensor<8xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>
  return
}
