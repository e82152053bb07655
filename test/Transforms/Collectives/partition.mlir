// RUN: plait-opt %s --dist-partition -split-input-file | FileCheck %s

//===----------------------------------------------------------------------===//
// Which collective a reshard is
//===----------------------------------------------------------------------===//

#whole = #dist.sharding<@mesh, [{}, {}]>
#rows = #dist.sharding<@mesh, [{"tp"}, {}]>
#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#sum = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
#max = #dist.sharding<@mesh, [{}, {}], partial = {"tp"} max>
dist.mesh @mesh ["tp"] = [2]

// Everybody has it and wants a block: nothing is sent.
// CHECK-LABEL: func.func @slice(
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>) -> tensor<4x4xf32>
func.func @slice(%x: tensor<4x8xf32, #whole>) -> tensor<4x8xf32, #columns> {
  // CHECK-NEXT: dist.slice %[[X]] on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<4x8xf32, #whole> -> tensor<4x8xf32, #columns>
  return %0 : tensor<4x8xf32, #columns>
}

// CHECK-LABEL: func.func @all_gather(
// CHECK-SAME: %[[X:.*]]: tensor<2x8xf32>) -> tensor<4x8xf32>
func.func @all_gather(%x: tensor<4x8xf32, #rows>) -> tensor<4x8xf32, #whole> {
  // CHECK-NEXT: dist.all_gather %[[X]] on @mesh["tp"] dim 0 : tensor<2x8xf32> -> tensor<4x8xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<4x8xf32, #rows> -> tensor<4x8xf32, #whole>
  return %0 : tensor<4x8xf32, #whole>
}

// CHECK-LABEL: func.func @all_reduce(
func.func @all_reduce(%x: tensor<4x8xf32, #sum>, %y: tensor<4x8xf32, #max>) -> (tensor<4x8xf32, #whole>, tensor<4x8xf32, #whole>) {
  // CHECK-NEXT: dist.all_reduce %arg0 on @mesh["tp"] sum : tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK-NEXT: dist.all_reduce %arg1 on @mesh["tp"] max : tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #whole>
  %1 = dist.reshard %y : tensor<4x8xf32, #max> -> tensor<4x8xf32, #whole>
  return %0, %1 : tensor<4x8xf32, #whole>, tensor<4x8xf32, #whole>
}

// Half of an all-reduce: each rank keeps the block it wants.
// CHECK-LABEL: func.func @reduce_scatter(
func.func @reduce_scatter(%x: tensor<4x8xf32, #sum>) -> tensor<4x8xf32, #rows> {
  // CHECK-NEXT: dist.reduce_scatter %arg0 on @mesh["tp"] sum dim 0 : tensor<4x8xf32> -> tensor<2x8xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #rows>
  return %0 : tensor<4x8xf32, #rows>
}

// CHECK-LABEL: func.func @all_to_all(
func.func @all_to_all(%x: tensor<4x8xf32, #rows>) -> tensor<4x8xf32, #columns> {
  // CHECK-NEXT: dist.all_to_all %arg0 on @mesh["tp"] split 1 concat 0 : tensor<2x8xf32> -> tensor<4x4xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<4x8xf32, #rows> -> tensor<4x8xf32, #columns>
  return %0 : tensor<4x8xf32, #columns>
}

// The collective takes over what the reshard belongs to.
// CHECK-LABEL: func.func @attributes(
func.func @attributes(%x: tensor<4x8xf32, #sum>) -> tensor<4x8xf32, #whole> {
  // CHECK-NEXT: dist.all_reduce {{.*}} {nn.layer = 3 : i64} :
  %0 = dist.reshard %x {nn.layer = 3 : i64} : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #whole>
  return %0 : tensor<4x8xf32, #whole>
}

// Each from its own reshard.
// CHECK-LABEL: func.func @adjacent(
func.func @adjacent(%x: tensor<4x8xf32, #sum>, %y: tensor<4x8xf32, #sum>) -> (tensor<4x8xf32, #whole>, tensor<4x8xf32, #whole>) {
  // CHECK-NEXT: dist.all_reduce %arg0 {{.*}} {nn.layer = 1 : i64} :
  // CHECK-NEXT: dist.all_reduce %arg1 {{.*}} {nn.layer = 2 : i64} :
  %0 = dist.reshard %x {nn.layer = 1 : i64} : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #whole>
  %1 = dist.reshard %y {nn.layer = 2 : i64} : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #whole>
  return %0, %1 : tensor<4x8xf32, #whole>, tensor<4x8xf32, #whole>
}

// -----

// Two axes. Blocks are cut before sums are sent and gathered after: less is
// moved.
#both = #dist.sharding<@mesh, [{}, {}], partial = {"dp", "tp"}>
#whole = #dist.sharding<@mesh, [{}, {}]>
#dp = #dist.sharding<@mesh, [{"dp"}, {}]>
#dp_tp = #dist.sharding<@mesh, [{"dp"}, {"tp"}]>
#left = #dist.sharding<@mesh, [{}, {}], partial = {"dp"}>
#sum_dp_tp = #dist.sharding<@mesh, [{}, {"tp"}], partial = {"dp"}>
dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]

// CHECK-LABEL: func.func @sums(
func.func @sums(%x: tensor<4x8xf32, #both>) -> (tensor<4x8xf32, #whole>, tensor<4x8xf32, #left>) {
  // CHECK-NEXT: %[[DP:.*]] = dist.all_reduce %arg0 on @mesh["dp"] sum
  // CHECK-NEXT: dist.all_reduce %[[DP]] on @mesh["tp"] sum
  %0 = dist.reshard %x : tensor<4x8xf32, #both> -> tensor<4x8xf32, #whole>
  // What stays partial is not touched.
  // CHECK-NEXT: dist.all_reduce %arg0 on @mesh["tp"] sum
  // CHECK-NEXT: return
  %1 = dist.reshard %x : tensor<4x8xf32, #both> -> tensor<4x8xf32, #left>
  return %0, %1 : tensor<4x8xf32, #whole>, tensor<4x8xf32, #left>
}

// CHECK-LABEL: func.func @order(
func.func @order(%x: tensor<4x8xf32, #sum_dp_tp>, %y: tensor<4x8xf32, #left>) -> (tensor<4x8xf32, #whole>, tensor<4x8xf32, #dp_tp>) {
  // CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %arg0 on @mesh["dp"] sum : tensor<4x4xf32>
  // CHECK-NEXT: dist.all_gather %[[SUM]] on @mesh["tp"] dim 1 : tensor<4x4xf32> -> tensor<4x8xf32>
  %0 = dist.reshard %x : tensor<4x8xf32, #sum_dp_tp> -> tensor<4x8xf32, #whole>
  // CHECK-NEXT: %[[CUT:.*]] = dist.slice %arg1 on @mesh["tp"] dim 1 : tensor<4x8xf32> -> tensor<4x4xf32>
  // CHECK-NEXT: dist.reduce_scatter %[[CUT]] on @mesh["dp"] sum dim 0 : tensor<4x4xf32> -> tensor<2x4xf32>
  // CHECK-NEXT: return
  %1 = dist.reshard %y : tensor<4x8xf32, #left> -> tensor<4x8xf32, #dp_tp>
  return %0, %1 : tensor<4x8xf32, #whole>, tensor<4x8xf32, #dp_tp>
}

// -----

// Nothing is sent on an axis of one rank, nor cut.
#sum = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp"}>
#dp = #dist.sharding<@mesh, [{"dp"}, {}]>
#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
dist.mesh @mesh ["dp", "tp"] = [2, 1]
// CHECK-LABEL: func.func @one_rank(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x8xf32>, %[[Y:[^:]*]]: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
func.func @one_rank(%x: tensor<4x8xf32, #sum>, %y: tensor<4x8xf32, #columns>) -> (tensor<4x8xf32, #dp>, tensor<4x8xf32, #dp>) {
  // CHECK-NEXT: %[[CUT:.*]] = dist.slice %[[Y]] on @mesh["dp"] dim 0
  // CHECK-NEXT: return %[[X]], %[[CUT]]
  %0 = dist.reshard %x : tensor<4x8xf32, #sum> -> tensor<4x8xf32, #dp>
  %1 = dist.reshard %y : tensor<4x8xf32, #columns> -> tensor<4x8xf32, #dp>
  return %0, %1 : tensor<4x8xf32, #dp>, tensor<4x8xf32, #dp>
}

// -----

//===----------------------------------------------------------------------===//
// What an op learns about its block
//===----------------------------------------------------------------------===//

// Ops that compute with indices are told where their block begins; others only
// get smaller.
#table = #dist.sharding<@mesh, [{"tp"}, {}]>
#ids = #dist.sharding<@mesh, [{}]>
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
#whole = #dist.sharding<@mesh, [{}, {}]>
#split = #dist.sharding<@mesh, [{"tp"}]>
dist.mesh @mesh ["tp"] = [2]
nn.parameter @table : tensor<16x4xf32> init<mean = 0.0, std = 0.02> sharding #table
// CHECK: nn.parameter @table : tensor<16x4xf32>
// CHECK-LABEL: func.func @indices(
func.func @indices(%ids: tensor<6xi32, #ids>) -> (tensor<6x4xf32, #whole>, tensor<8xi32, #split>) {
  // CHECK: nn.read @table value : tensor<8x4xf32>
  %table = nn.read @table value : tensor<16x4xf32, #table>
  // CHECK: nn.embedding {{.*}} {begin = #nn.begin<"tp" * 8>} : (tensor<8x4xf32>, tensor<6xi32>) -> tensor<6x4xf32>
  %0 = nn.embedding %table, %ids : (tensor<16x4xf32, #table>, tensor<6xi32, #ids>) -> tensor<6x4xf32, #partial>
  // CHECK: dist.all_reduce
  %1 = dist.reshard %0 : tensor<6x4xf32, #partial> -> tensor<6x4xf32, #whole>
  // CHECK: nn.iota along 0 {begin = #nn.begin<"tp" * 4>} : tensor<4xi32>
  %2 = nn.iota along 0 : tensor<8xi32, #split>
  return %1, %2 : tensor<6x4xf32, #whole>, tensor<8xi32, #split>
}

// -----

//===----------------------------------------------------------------------===//
// Remainders
//===----------------------------------------------------------------------===//

// Seven elements in two blocks of four: the last rank's last element is padding.
// It comes in as zero. The exponential makes it one, so it is masked before the
// sum; the matmul leaves zeros, so there it is not.
#uneven = #dist.sharding<@mesh, [{"tp"}]>
#sum = #dist.sharding<@mesh, [], partial = {"tp"}>
#max = #dist.sharding<@mesh, [], partial = {"tp"} max>
dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @sums(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>)
func.func @sums(%x: tensor<7xf32, #uneven>) -> (tensor<f32, #sum>, tensor<f32, #sum>) {
  // CHECK-NEXT: %[[EXP:.*]] = nn.exp %[[X]] : tensor<4xf32>
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %[[EXP]] dim 0 begin<"tp" * 4> limit 7 by 0.0
  // CHECK-NEXT: nn.reduce sum %[[MASKED]]
  %0 = nn.exp %x : tensor<7xf32, #uneven>
  %1 = nn.reduce sum %0 dims [0] : tensor<7xf32, #uneven> -> tensor<f32, #sum>
  // CHECK-NEXT: %[[SQUARE:.*]] = nn.mul %[[X]], %[[X]]
  // CHECK-NEXT: nn.reduce sum %[[SQUARE]]
  %2 = nn.mul %x, %x : tensor<7xf32, #uneven>
  %3 = nn.reduce sum %2 dims [0] : tensor<7xf32, #uneven> -> tensor<f32, #sum>
  return %1, %3 : tensor<f32, #sum>, tensor<f32, #sum>
}

// Zero is not neutral for a maximum: it is masked even where it is clean.
// CHECK-LABEL: func.func @maximum(
func.func @maximum(%x: tensor<7xf32, #uneven>) -> tensor<f32, #max> {
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %arg0 dim 0 begin<"tp" * 4> limit 7 by 0xFF800000
  // CHECK-NEXT: nn.reduce max %[[MASKED]]
  %0 = nn.reduce max %x dims [0] : tensor<7xf32, #uneven> -> tensor<f32, #max>
  return %0 : tensor<f32, #max>
}

// Dirt spreads, through ops that would keep zeros, to where it is stored.
nn.parameter @w : tensor<7xf32> init<mean = 0.0, std = 0.02> sharding #uneven
// CHECK-LABEL: func.func @stored(
func.func @stored(%x: tensor<7xf32, #uneven>) {
  // CHECK-NEXT: nn.shift
  // CHECK-NEXT: %[[TWICE:.*]] = nn.scale
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %[[TWICE]] dim 0 begin<"tp" * 4> limit 7 by 0.0
  // CHECK-NEXT: nn.accumulate %[[MASKED]] to @w gradient : tensor<4xf32>
  // CHECK-NEXT: nn.accumulate %arg0 to @w gradient : tensor<4xf32>
  %0 = nn.shift %x by 1.0 : tensor<7xf32, #uneven>
  %1 = nn.scale %0 by 2.0 : tensor<7xf32, #uneven>
  nn.accumulate %1 to @w gradient : tensor<7xf32, #uneven>
  nn.accumulate %x to @w gradient : tensor<7xf32, #uneven>
  return
}

// The contraction of a matmul is a sum as well. A sigmoid of zero is some finite
// number, which zeros of the other operand outdo; a logarithm of zero is not.
#rows = #dist.sharding<@mesh, [{"tp"}, {}]>
#columns = #dist.sharding<@mesh, [{}, {"tp"}]>
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
// CHECK-LABEL: func.func @contraction(
func.func @contraction(%x: tensor<2x7xf32, #columns>, %w: tensor<7x3xf32, #rows>) -> (tensor<2x3xf32, #partial>, tensor<2x3xf32, #partial>) {
  // CHECK-NEXT: %[[FINITE:.*]] = nn.sigmoid
  // CHECK-NEXT: nn.matmul %[[FINITE]], %arg1 "bi,ij->bj" : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %0 = nn.sigmoid %x : tensor<2x7xf32, #columns>
  %1 = nn.matmul %0, %w "bi,ij->bj" : (tensor<2x7xf32, #columns>, tensor<7x3xf32, #rows>) -> tensor<2x3xf32, #partial>
  // CHECK-NEXT: nn.log
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %{{.*}} dim 1 begin<"tp" * 4> limit 7 by 0.0
  // CHECK-NEXT: nn.matmul %[[MASKED]], %arg1
  %2 = nn.log %x : tensor<2x7xf32, #columns>
  %3 = nn.matmul %2, %w "bi,ij->bj" : (tensor<2x7xf32, #columns>, tensor<7x3xf32, #rows>) -> tensor<2x3xf32, #partial>
  return %1, %3 : tensor<2x3xf32, #partial>, tensor<2x3xf32, #partial>
}

// Of two finite operands one is masked, once, for all that read it, before and
// after the op that needs it: nothing derived of what it was is used.
// CHECK-LABEL: func.func @once(
func.func @once(%x: tensor<2x7xf32, #columns>) -> tensor<2x2xf32, #partial> {
  // CHECK-NEXT: %[[HALF:.*]] = nn.sigmoid
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %[[HALF]]
  // CHECK-NEXT: %[[TWICE:.*]] = nn.scale %[[MASKED]]
  // CHECK-NEXT: nn.matmul %[[MASKED]], %[[TWICE]]
  // CHECK-NEXT: return
  %0 = nn.sigmoid %x : tensor<2x7xf32, #columns>
  %1 = nn.scale %0 by 2.0 : tensor<2x7xf32, #columns>
  %2 = nn.matmul %0, %1 "bi,ci->bc" : (tensor<2x7xf32, #columns>, tensor<2x7xf32, #columns>) -> tensor<2x2xf32, #partial>
  return %2 : tensor<2x2xf32, #partial>
}

// Ids of padding are some number, and fetch some row.
// CHECK-LABEL: func.func @lookup(
func.func @lookup(%table: tensor<5x3xf32, #dist.sharding<@mesh, [{}, {}]>>, %ids: tensor<7xi32, #uneven>) -> tensor<3xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>> {
  // CHECK-NEXT: %[[ROWS:.*]] = nn.embedding
  // CHECK-NEXT: %[[MASKED:.*]] = nn.mask_padding %[[ROWS]] dim 0
  // CHECK-NEXT: nn.reduce sum %[[MASKED]]
  %0 = nn.embedding %table, %ids : (tensor<5x3xf32, #dist.sharding<@mesh, [{}, {}]>>, tensor<7xi32, #uneven>) -> tensor<7x3xf32, #rows>
  %1 = nn.reduce sum %0 dims [0] : tensor<7x3xf32, #rows> -> tensor<3xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>
  return %1 : tensor<3xf32, #dist.sharding<@mesh, [{}], partial = {"tp"}>>
}

// Ids that the table does not have do not name its padding either.
nn.parameter @embed : tensor<7x3xf32> init<mean = 0.0, std = 0.02> sharding #rows
// CHECK-LABEL: func.func @rows(
func.func @rows(%y: tensor<9x3xf32, #dist.sharding<@mesh, [{}, {}]>>, %ids: tensor<9xi32, #dist.sharding<@mesh, [{}]>>) {
  // CHECK-NEXT: %[[SUMS:.*]] = nn.embedding_grad %arg0, %arg1 {begin = #nn.begin<"tp" * 4>, limit = 7 : i64}
  // CHECK-NEXT: nn.accumulate %[[SUMS]]
  %0 = nn.embedding_grad %y, %ids : (tensor<9x3xf32, #dist.sharding<@mesh, [{}, {}]>>, tensor<9xi32, #dist.sharding<@mesh, [{}]>>) -> tensor<7x3xf32, #rows>
  nn.accumulate %0 to @embed gradient : tensor<7x3xf32, #rows>
  return
}

// A block of what all have: the slice pads with zeros.
// CHECK-LABEL: func.func @cut(
func.func @cut(%x: tensor<7xf32, #dist.sharding<@mesh, [{}]>>) -> tensor<7xf32, #uneven> {
  // CHECK-NEXT: dist.slice %arg0 on @mesh["tp"] dim 0 : tensor<7xf32> -> tensor<4xf32>
  // CHECK-NEXT: return
  %0 = dist.reshard %x : tensor<7xf32, #dist.sharding<@mesh, [{}]>> -> tensor<7xf32, #uneven>
  return %0 : tensor<7xf32, #uneven>
}

// -----

// Beside an axis of one rank, the other one is what counts.
#both = #dist.sharding<@mesh, [{"dp", "tp"}]>
dist.mesh @mesh ["dp", "tp"] = [1, 2]
// CHECK-LABEL: func.func @beside(
func.func @beside() -> tensor<8xi32, #both> {
  // CHECK-NEXT: nn.iota along 0 {begin = #nn.begin<"tp" * 4>} : tensor<4xi32>
  %0 = nn.iota along 0 : tensor<8xi32, #both>
  return %0 : tensor<8xi32, #both>
}

// -----

//===----------------------------------------------------------------------===//
// Untouched
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [2]
// CHECK-LABEL: func.func @plain(
// CHECK-SAME: %[[X:.*]]: tensor<7xf32>) -> tensor<7xf32>
func.func @plain(%x: tensor<7xf32>) -> tensor<7xf32> {
  // CHECK-NEXT: nn.exp %[[X]] : tensor<7xf32>
  %0 = nn.exp %x : tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

// Dropout draws by indices in the whole tensor: it is told where each dimension
// of a rank's block begins, but for the first, whose key goes with the sequence.
// Uneven blocks of 10 begin at multiples of 3, and say that they are of 10.
#batch = #dist.sharding<@mesh, [{"dp"}]>
#block = #dist.sharding<@mesh, [{"dp"}, {"cp"}, {"tp"}, {}]>
dist.mesh @mesh ["dp", "cp", "tp"] = [2, 2, 4]
// CHECK-LABEL: func.func @dropout(
// CHECK: nn.dropout %{{.*}}, %{{.*}} probability 1.000000e-01 site 3 {begins = [unit, #nn.begin<"cp" * 4>, #nn.begin<"tp" * 3 of 10>, unit]} : tensor<2x4x3x5xf32>, tensor<2xi32>
func.func @dropout(%x: tensor<4x8x10x5xf32, #block>, %keys: tensor<4xi32, #batch>) -> tensor<4x8x10x5xf32, #block> {
  %y = nn.dropout %x, %keys probability 0.1 site 3 : tensor<4x8x10x5xf32, #block>, tensor<4xi32, #batch>
  return %y : tensor<4x8x10x5xf32, #block>
}

// Attention takes the begins of its queries and groups.
#query = #dist.sharding<@mesh, [{"dp"}, {"cp"}, {"tp"}, {}, {}]>
#key = #dist.sharding<@mesh, [{"dp"}, {}, {"tp"}, {}]>
#stats = #dist.sharding<@mesh, [{"dp"}, {"tp"}, {}, {"cp"}]>
// CHECK-LABEL: func.func @attention(
// CHECK: nn.attention {{.*}} dropout %{{.*}} probability 1.000000e-01 site 3 {begin = #nn.begin<"cp" * 4>, group_begin = #nn.begin<"tp" * 2>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2xi32>)
func.func @attention(%q: tensor<4x8x8x3x4xf32, #query>, %k: tensor<4x8x8x4xf32, #key>, %keys: tensor<4xi32, #batch>) -> tensor<4x8x8x3x4xf32, #query> {
  %o, %lse = nn.attention %q, %k, %k scale 0.5 dropout %keys probability 0.1 site 3 : (tensor<4x8x8x3x4xf32, #query>, tensor<4x8x8x4xf32, #key>, tensor<4x8x8x4xf32, #key>, tensor<4xi32, #batch>) -> (tensor<4x8x8x3x4xf32, #query>, tensor<4x8x3x8xf32, #stats>)
  return %o : tensor<4x8x8x3x4xf32, #query>
}
