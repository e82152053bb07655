// RUN: plait-opt %s -split-input-file --plait-configure=offload=optimizer --plan-insert-moves | FileCheck %s --check-prefix=STATE
// RUN: plait-opt %s -split-input-file --plait-configure=offload=activations --plan-insert-moves | FileCheck %s --check-prefix=KEPT
// RUN: plait-opt %s -split-input-file --plait-configure=offload=optimizer+activations --plan-insert-moves | FileCheck %s --check-prefixes=KEPT,STATE
// RUN: plait-opt %s -split-input-file --plan-insert-moves | FileCheck %s --check-prefix=NONE

// NONE-NOT: plan.move

nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>

// A residual that the function itself reads on is read in the arena.
// KEPT-LABEL: func.func @forward_0
// KEPT: %[[A:.*]] = nn.matmul
// KEPT-NEXT: %[[HA:.*]] = plan.move to_host %[[A]]
// KEPT-NEXT: %[[B:.*]] = nn.matmul %[[A]]
// KEPT-NEXT: %[[HB:.*]] = plan.move to_host %[[B]]
// KEPT-NEXT: return %[[HA]], %[[HB]]
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = nn.matmul %a, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %a, %b : tensor<16x16xf32>, tensor<16x16xf32>
}

// KEPT-LABEL: func.func @backward_0
// KEPT-SAME: %[[A:.*]]: tensor<16x16xf32> {{.*}}, %[[B:.*]]: tensor<16x16xf32>
// KEPT-NEXT: %[[DB:.*]] = plan.move from_host %[[B]]
// KEPT-NEXT: %[[DA:.*]] = plan.move from_host %[[A]]
// KEPT-NEXT: %[[C:.*]] = nn.matmul %[[DB]], %[[DB]]
// KEPT: nn.matmul %[[DA]], %[[DB]]
func.func @backward_0(%a: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %b: tensor<16x16xf32> {pipe.port = #pipe.port<residual 1>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = nn.matmul %b, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %0 to @w gradient : tensor<16x16xf32>
  %1 = nn.matmul %a, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %1 to @w gradient : tensor<16x16xf32>
  return
}

// -----

nn.parameter @v : tensor<4x8xf32> init<mean = 0.0, std = 0.02>
nn.parameter @w : tensor<4x8xf32> init<mean = 0.0, std = 0.02>

// What the model reads stays where it is: the value of @v. That of @w is read by
// the update alone.
func.func @forward_0() attributes {pipe.function = #pipe.function<forward, 0>} {
  %0 = nn.read @v value : tensor<4x8xf32>
  %1 = plan.cluster(%0) accumulate [2] : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%x: tensor<4x8xf32>):
    plan.yield %x : tensor<4x8xf32>
  }
  nn.accumulate %1 to @v gradient : tensor<4x8xf32>
  return
}

// The second update's state is fetched before the first one's begins, and each is
// on its way back as soon as it is there.
// STATE-LABEL: func.func @optimizer_0
// STATE-NEXT: %[[G:.*]] = nn.read @v gradient
// STATE-NEXT: %[[V:.*]] = nn.read @v value
// STATE-NEXT: %[[M1:.*]] = nn.read @v moment1
// STATE-NEXT: %[[D1:.*]] = plan.move from_host %[[M1]]
// STATE-NEXT: %[[M2:.*]] = nn.read @w moment1
// STATE-NEXT: %[[D2:.*]] = plan.move from_host %[[M2]]
// STATE-NEXT: %[[W:.*]] = nn.read @w value
// STATE-NEXT: %[[D3:.*]] = plan.move from_host %[[W]]
// STATE-NEXT: %[[NEW:.*]]:2 = plan.cluster(%[[G]], %[[V]], %[[D1]])
// STATE: %[[H1:.*]] = plan.move to_host %[[NEW]]#1
// STATE-NEXT: nn.write %[[NEW]]#0 to @v value
// STATE-NEXT: nn.write %[[H1]] to @v moment1
// STATE-NEXT: %[[NEXT:.*]]:2 = plan.cluster(%[[D2]], %[[D3]])
// STATE-DAG: %[[H2:.*]] = plan.move to_host %[[NEXT]]#0
// STATE-DAG: %[[H3:.*]] = plan.move to_host %[[NEXT]]#1
// STATE-DAG: nn.write %[[H2]] to @w moment1
// STATE-DAG: nn.write %[[H3]] to @w value
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  %g = nn.read @v gradient : tensor<4x8xf32>
  %v = nn.read @v value : tensor<4x8xf32>
  %m = nn.read @v moment1 : tensor<4x8xf32>
  %0:2 = plan.cluster(%g, %v, %m) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %z: tensor<4x8xf32>):
    %s = nn.add %x, %z : tensor<4x8xf32>
    %t = nn.sub %y, %s : tensor<4x8xf32>
    plan.yield %t, %s : tensor<4x8xf32>, tensor<4x8xf32>
  }
  nn.write %0#0 to @v value : tensor<4x8xf32>
  nn.write %0#1 to @v moment1 : tensor<4x8xf32>
  %n = nn.read @w moment1 : tensor<4x8xf32>
  %w = nn.read @w value : tensor<4x8xf32>
  %1:2 = plan.cluster(%n, %w) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>):
    %s = nn.add %x, %x : tensor<4x8xf32>
    %t = nn.sub %y, %s : tensor<4x8xf32>
    plan.yield %s, %t : tensor<4x8xf32>, tensor<4x8xf32>
  }
  nn.write %1#0 to @w moment1 : tensor<4x8xf32>
  nn.write %1#1 to @w value : tensor<4x8xf32>
  return
}

// -----

dist.mesh @mesh ["cp"] = [2]

// GPUs launch gathers together that follow each other: what they make is on its
// way behind the last, and what is read behind them before the first.
// KEPT-LABEL: func.func @forward_0
// KEPT: %[[K:.*]] = dist.all_gather
// KEPT-NEXT: %[[V:.*]] = dist.all_gather
// KEPT-DAG: plan.move to_host %[[K]]
// KEPT-DAG: plan.move to_host %[[V]]
func.func @forward_0(%k: tensor<4x8xf32> {pipe.port = #pipe.port<input 0>}, %v: tensor<4x8xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<8x8xf32> {pipe.port = #pipe.port<residual 3>}, tensor<8x8xf32> {pipe.port = #pipe.port<residual 4>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %0 = dist.all_gather %k on @mesh["cp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = dist.all_gather %v on @mesh["cp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// KEPT-LABEL: func.func @backward_0
// KEPT-COUNT-3: plan.move from_host
// KEPT-NEXT: dist.all_gather
// KEPT-NEXT: dist.all_gather
// KEPT-NEXT: nn.matmul
func.func @backward_0(%k: tensor<4x8xf32> {pipe.port = #pipe.port<residual 0>}, %v: tensor<4x8xf32> {pipe.port = #pipe.port<residual 1>}, %q: tensor<8x8xf32> {pipe.port = #pipe.port<residual 2>}) -> (tensor<8x8xf32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %0 = dist.all_gather %k on @mesh["cp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %1 = dist.all_gather %v on @mesh["cp"] dim 0 : tensor<4x8xf32> -> tensor<8x8xf32>
  %2 = nn.matmul %q, %0 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = nn.matmul %2, %1 "ab,bc->ac" : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
