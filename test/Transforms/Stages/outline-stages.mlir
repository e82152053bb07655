// RUN: plait-opt %s --pipe-outline-stages -split-input-file | FileCheck %s

// Two stages. The first takes the tokens and hands on what the second uses; the
// second takes the targets and ends in the accumulators of the step. @loss is
// gone.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @table : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
// CHECK: nn.accumulator @loss_sum : tensor<f32>
// CHECK: nn.accumulator @token_count : tensor<f32>
// CHECK-NOT: @loss(
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: %[[TOKENS:.*]]: tensor<2x8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<2x8x4xf32> {pipe.port = #pipe.port<output 0>})
// CHECK-SAME: attributes {pipe.function = #pipe.function<forward, 0>}
// CHECK: %[[TABLE:.*]] = nn.read @table value
// CHECK: %[[X:.*]] = nn.embedding %[[TABLE]], %[[TOKENS]]
// CHECK-NOT: nn.accumulate
// CHECK: return %[[X]] : tensor<2x8x4xf32>
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: %[[TARGETS:.*]]: tensor<2x8xi32> {pipe.port = #pipe.port<targets>}, %[[X:.*]]: tensor<2x8x4xf32> {pipe.port = #pipe.port<input 0>})
// CHECK-SAME: attributes {pipe.function = #pipe.function<forward, 1>}
// CHECK: %[[LOSS:.*]] = nn.reduce sum %[[X]]
// CHECK-NOT: pipe.stage
// CHECK: %[[VALID:.*]] = nn.valid %[[TARGETS]]
// CHECK: %[[COUNT:.*]] = nn.reduce sum %[[VALID]]
// CHECK: nn.accumulate %[[LOSS]] to @loss_sum value
// CHECK: nn.accumulate %[[COUNT]] to @token_count value
// CHECK-NEXT: return
func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
  %table = nn.read @table value : tensor<16x4xf32>
  %0 = nn.embedding %table, %tokens {pipe.stage = 0 : i64} : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %1 = nn.reduce sum %0 dims [0, 1, 2] {pipe.stage = 1 : i64} : tensor<2x8x4xf32> -> tensor<f32>
  %2 = nn.valid %targets ignore -100 {pipe.stage = 1 : i64} : tensor<2x8xi32> -> tensor<2x8xf32>
  %3 = nn.reduce sum %2 dims [0, 1] {pipe.stage = 1 : i64} : tensor<2x8xf32> -> tensor<f32>
  return %1, %3 : tensor<f32>, tensor<f32>
}

// -----

// A value that skips a stage passes through it: stages send to their neighbours
// only. Sharded types stay as they are.
#row = #dist.sharding<@mesh, [{"tp"}]>
dist.mesh @mesh ["pp", "tp"] = [3, 2]
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: -> (tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>> {pipe.port = #pipe.port<output 0>}, tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>> {pipe.port = #pipe.port<output 1>})
// CHECK: %[[A:.*]] = nn.fill 1.0
// CHECK: %[[B:.*]] = nn.neg
// CHECK: %[[C:.*]] = nn.exp
// CHECK: return %[[B]], %[[C]]
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: %[[B:.*]]: tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>> {pipe.port = #pipe.port<input 0>}, %[[C:[^:]*]]: tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>> {pipe.port = #pipe.port<input 1>}) -> (tensor<4xf32, {{.*}} {pipe.port = #pipe.port<output 0>}, tensor<4xf32, {{.*}} {pipe.port = #pipe.port<output 1>})
// CHECK: %[[D:.*]] = nn.add %[[C]], %[[C]]
// CHECK: return %[[B]], %[[D]]
// CHECK-LABEL: func.func @forward_2(
// CHECK-SAME: %[[B:.*]]: tensor<4xf32, {{[^%]*}} {pipe.port = #pipe.port<input 0>}, %[[D:[^:]*]]: tensor<4xf32, {{[^%]*}} {pipe.port = #pipe.port<input 1>})
// CHECK: nn.mul %[[B]], %[[D]]
func.func @loss() -> (tensor<f32, #dist.sharding<@mesh, [], partial = {"tp"}>>) {
  %0 = nn.fill 1.0 {pipe.stage = 0 : i64} : tensor<4xf32, #row>
  %1 = nn.neg %0 {pipe.stage = 0 : i64} : tensor<4xf32, #row>
  %2 = nn.exp %0 {pipe.stage = 0 : i64} : tensor<4xf32, #row>
  %3 = nn.add %2, %2 {pipe.stage = 1 : i64} : tensor<4xf32, #row>
  %4 = nn.mul %1, %3 {pipe.stage = 2 : i64} : tensor<4xf32, #row>
  %5 = nn.reduce sum %4 dims [0] {pipe.stage = 2 : i64} : tensor<4xf32, #row> -> tensor<f32, #dist.sharding<@mesh, [], partial = {"tp"}>>
  return %5 : tensor<f32, #dist.sharding<@mesh, [], partial = {"tp"}>>
}

// -----

// A parameter that two stages use is read by both, once each, and does not
// cross. Tokens that two stages use are an input of both.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @tied : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: {pipe.port = #pipe.port<tokens>}) -> (tensor<8x4xf32> {pipe.port = #pipe.port<output 0>})
// CHECK-COUNT-1: nn.read @tied
// CHECK-NOT: nn.read
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: {pipe.port = #pipe.port<tokens>}, %{{.*}}: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>})
// CHECK-COUNT-1: nn.read @tied
// CHECK-NOT: nn.read
// CHECK: return
func.func @loss(%tokens: tensor<8xi32>, %targets: tensor<8xi32>) -> tensor<f32> {
  %tied = nn.read @tied value : tensor<16x4xf32>
  %again = nn.read @tied value : tensor<16x4xf32>
  %0 = nn.embedding %tied, %tokens {pipe.stage = 0 : i64} : (tensor<16x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %1 = nn.embedding %again, %tokens {pipe.stage = 1 : i64} : (tensor<16x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %2 = nn.matmul %0, %tied "bh,vh->bv" {pipe.stage = 1 : i64} : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  %3 = nn.matmul %1, %tied "bh,vh->bv" {pipe.stage = 1 : i64} : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  %4 = nn.mul %2, %3 {pipe.stage = 1 : i64} : tensor<8x16xf32>
  %5 = nn.reduce sum %4 dims [0, 1] {pipe.stage = 1 : i64} : tensor<8x16xf32> -> tensor<f32>
  return %5 : tensor<f32>
}

// -----

// A stage that computes with a parameter's value and with its copy reads both.
dist.mesh @mesh ["pp"] = [2]
nn.parameter @both : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
// CHECK-COUNT-1: nn.read @both value
// CHECK-NOT: nn.read
// CHECK-LABEL: func.func @forward_1(
// CHECK: %[[COPY:.*]] = nn.read @both compute
// CHECK: nn.embedding %[[COPY]]
// CHECK: %[[VALUE:.*]] = nn.read @both value
// CHECK: nn.embedding %[[VALUE]]
// CHECK-NOT: nn.read
// CHECK: return
func.func @loss(%tokens: tensor<8xi32>, %targets: tensor<8xi32>) -> tensor<f32> {
  %value = nn.read @both value : tensor<16x4xf32>
  %copy = nn.read @both compute : tensor<16x4xbf16>
  %0 = nn.embedding %value, %tokens {pipe.stage = 0 : i64} : (tensor<16x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %1 = nn.embedding %copy, %tokens {pipe.stage = 1 : i64} : (tensor<16x4xbf16>, tensor<8xi32>) -> tensor<8x4xbf16>
  %2 = nn.embedding %value, %tokens {pipe.stage = 1 : i64} : (tensor<16x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %3 = nn.cast %1 {pipe.stage = 1 : i64} : tensor<8x4xbf16> -> tensor<8x4xf32>
  %4 = nn.add %2, %3 {pipe.stage = 1 : i64} : tensor<8x4xf32>
  %5 = nn.add %0, %4 {pipe.stage = 1 : i64} : tensor<8x4xf32>
  %6 = nn.reduce sum %5 dims [0, 1] {pipe.stage = 1 : i64} : tensor<8x4xf32> -> tensor<f32>
  return %6 : tensor<f32>
}

// -----

// Constants are made where they are used instead of being sent (and the indices
// of a nn.iota could not be: what crosses has a gradient).
dist.mesh @mesh ["pp"] = [2]
nn.parameter @where : tensor<8x4xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: -> (tensor<8x4xf32> {pipe.port = #pipe.port<output 0>})
// CHECK: nn.iota
// CHECK-LABEL: func.func @forward_1(
// CHECK-SAME: %{{[^:]*}}: tensor<8x4xf32> {pipe.port = #pipe.port<input 0>}) attributes
// CHECK: nn.iota
func.func @loss() -> tensor<f32> {
  %where = nn.read @where value : tensor<8x4xf32>
  %ids = nn.iota along 0 {pipe.stage = 0 : i64} : tensor<8xi32>
  %0 = nn.embedding %where, %ids {pipe.stage = 0 : i64} : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %1 = nn.embedding %where, %ids {pipe.stage = 1 : i64} : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %2 = nn.add %0, %1 {pipe.stage = 1 : i64} : tensor<8x4xf32>
  %3 = nn.reduce sum %2 dims [0, 1] {pipe.stage = 1 : i64} : tensor<8x4xf32> -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

// One stage is the whole function.
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: {pipe.port = #pipe.port<tokens>}, %{{.*}} {pipe.port = #pipe.port<targets>}) attributes {pipe.function = #pipe.function<forward, 0>}
// CHECK-NOT: @forward_1
// Other functions stay.
// CHECK: func.func @other
func.func @loss(%tokens: tensor<8xi32>, %targets: tensor<8xi32>) -> (tensor<f32>, tensor<f32>) {
  %0 = nn.valid %tokens ignore 0 {pipe.stage = 0 : i64} : tensor<8xi32> -> tensor<8xf32>
  %1 = nn.valid %targets ignore 0 {pipe.stage = 0 : i64} : tensor<8xi32> -> tensor<8xf32>
  %2 = nn.reduce sum %0 dims [0] {pipe.stage = 0 : i64} : tensor<8xf32> -> tensor<f32>
  %3 = nn.reduce sum %1 dims [0] {pipe.stage = 0 : i64} : tensor<8xf32> -> tensor<f32>
  return %2, %3 : tensor<f32>, tensor<f32>
}
func.func @other() {
  return
}

// -----

// Keys are an input of each stage that drops something.
dist.mesh @mesh ["pp"] = [3]
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: %[[KEYS:.*]]: tensor<4xi32> {pipe.port = #pipe.port<keys>})
// CHECK: nn.dropout %{{.*}}, %[[KEYS]]
// CHECK-LABEL: func.func @forward_1(
// CHECK-NOT: keys
// CHECK-LABEL: func.func @forward_2(
// CHECK-SAME: %[[KEYS:.*]]: tensor<4xi32> {pipe.port = #pipe.port<keys>}, %{{.*}} {pipe.port = #pipe.port<input 0>})
// CHECK: nn.dropout %{{.*}}, %[[KEYS]]
func.func @loss(%tokens: tensor<4x8xi32>, %targets: tensor<4x8xi32>, %keys: tensor<4xi32> {nn.keys}) -> (tensor<f32>, tensor<f32>) {
  %0 = nn.fill 1.0 {pipe.stage = 0 : i64} : tensor<4x8xf32>
  %1 = nn.dropout %0, %keys probability 0.5 site 0 {pipe.stage = 0 : i64} : tensor<4x8xf32>, tensor<4xi32>
  %2 = nn.exp %1 {pipe.stage = 1 : i64} : tensor<4x8xf32>
  %3 = nn.dropout %2, %keys probability 0.5 site 1 {pipe.stage = 2 : i64} : tensor<4x8xf32>, tensor<4xi32>
  %4 = nn.reduce sum %3 dims [0, 1] {pipe.stage = 2 : i64} : tensor<4x8xf32> -> tensor<f32>
  return %4, %4 : tensor<f32>, tensor<f32>
}
