// RUN: plait-opt %s --plait-configure=global-batch=2 --pipe-schedule --plan-place-buffers -split-input-file | FileCheck %s

// A kernel writes over what only it reads, element by element, and in its last
// pass over a row (%soft). It does not where an earlier pass writes (%raw: what
// comes later reads %a again), nor where others read the operand (%b). There
// the result lies where the residual was, which nobody reads any more.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: plan.cluster{{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %soft = plan.cluster(%a) : (tensor<16x16xf32>) -> tensor<16x16xf32> {
  ^bb0(%x: tensor<16x16xf32>):
    %0 = nn.reduce max %x dims [1] : tensor<16x16xf32> -> tensor<16xf32>
    %1 = nn.broadcast %0 dims [0] : tensor<16xf32> -> tensor<16x16xf32>
    %2 = nn.sub %x, %1 : tensor<16x16xf32>
    plan.yield %2 : tensor<16x16xf32>
  }
  return %soft : tensor<16x16xf32>
}
// CHECK-LABEL: func.func @backward_0(
func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, [[A:.*]]>]}
  %a = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, [[B:.*]]>]}
  %b = nn.matmul %r, %r "ab,cb->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: plan.cluster
  // CHECK-NOT: [#plan.place<slot 1, [[A]]>,
  // CHECK-SAME: plan.places = [#plan.place<slot 0, 0>, #plan.place<slot 1, [[A]]>]
  %c:2 = plan.cluster(%a, %b) : (tensor<16x16xf32>, tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  ^bb0(%x: tensor<16x16xf32>, %y: tensor<16x16xf32>):
    %0 = nn.add %x, %y : tensor<16x16xf32>
    %1 = nn.reduce max %x dims [1] : tensor<16x16xf32> -> tensor<16xf32>
    %2 = nn.broadcast %1 dims [0] : tensor<16xf32> -> tensor<16x16xf32>
    %3 = nn.sub %x, %2 : tensor<16x16xf32>
    plan.yield %0, %3 : tensor<16x16xf32>, tensor<16x16xf32>
  }
  %d = nn.matmul %c#0, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %e = nn.matmul %c#1, %d "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %e to @w gradient : tensor<16x16xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}

// -----

// 65 numbers of 4 bytes: rows lie 68 apart, for the matmul, the kernel and, as
// a residual, in both functions. Those of a parameter, 65 long too, do not.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x65xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
// CHECK-SAME: plan.slot_bytes = array<i64: 32, 4352,
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x65xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  // CHECK: nn.read @w value {plan.places
  %w = nn.read @w value : tensor<16x65xf32>
  // CHECK-NEXT: nn.matmul {{.*}} {plan.places
  %s = nn.matmul %w, %w "av,bv->ab" : (tensor<16x65xf32>, tensor<16x65xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.matmul {{.*}} {plan.pitch = array<i64: 68>, plan.places = [#plan.place<slot 1, 0>]}
  %a = nn.matmul %s, %w "ab,bv->av" : (tensor<16x16xf32>, tensor<16x65xf32>) -> tensor<16x65xf32>
  // CHECK-NEXT: plan.cluster{{.*}} {plan.pitch = array<i64: 68>, plan.places = [#plan.place<slot 1, 0>]}
  %y = plan.cluster(%a) : (tensor<16x65xf32>) -> tensor<16x65xf32> {
  ^bb0(%x: tensor<16x65xf32>):
    %0 = nn.exp %x : tensor<16x65xf32>
    plan.yield %0 : tensor<16x65xf32>
  }
  return %y : tensor<16x65xf32>
}
// CHECK-LABEL: func.func @backward_0(
// CHECK-SAME: plan.pitch = 68 : i64
// CHECK-SAME: plan.slot_bytes = array<i64: 4352,
func.func @backward_0(%r: tensor<16x65xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  %s = nn.matmul %r, %r "av,bv->ab" : (tensor<16x65xf32>, tensor<16x65xf32>) -> tensor<16x16xf32>
  // What becomes a gradient lies as the parameter does.
  // CHECK: nn.matmul {{.*}} {plan.accumulate = 2 : i32, plan.places
  %g = nn.matmul %s, %r "ab,bv->av" : (tensor<16x16xf32>, tensor<16x65xf32>) -> tensor<16x65xf32>
  nn.accumulate %g to @w gradient : tensor<16x65xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}

// -----

// A matmul that adds to another one's result lies where that does, through all
// of a chain, and where the last one is returned.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
// CHECK-LABEL: func.func @forward_0(
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.fused_matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %b = nn.fused_matmul %w, %w "ab,cb->ac" add %a : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.fused_matmul {{.*}} {plan.places = [#plan.place<slot 1, 0>]}
  %c = nn.fused_matmul %w, %w "ba,cb->ac" add %b : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %c : tensor<16x16xf32>
}
// CHECK-LABEL: func.func @backward_0(
func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 1, [[A:.*]]>]}
  %a = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.matmul
  // CHECK-NEXT: nn.fused_matmul {{.*}} {plan.places = [#plan.place<slot 1, [[A]]>]}
  %b = nn.matmul %r, %r "ab,cb->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %c = nn.fused_matmul %b, %r "ab,bc->ac" add %a : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %d = nn.matmul %c, %b "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  nn.accumulate %d to @w gradient : tensor<16x16xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}

// -----

// Rows are added to a table in its place.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x16xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x16xf32>
  %a = nn.matmul %w, %w "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %a : tensor<16x16xf32>
}
// CHECK-LABEL: func.func @backward_0(
func.func @backward_0(%r: tensor<16x16xf32> {pipe.port = #pipe.port<residual 0>}, %ids: tensor<16xi32> {pipe.port = #pipe.port<tokens>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.matmul {{.*}} {plan.places = [#plan.place<slot 2, [[A:.*]]>]}
  %a = nn.matmul %r, %r "ab,bc->ac" : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: plan.cluster{{.*}} {plan.places = [#plan.place<slot 2, [[A]]>]}
  %b = plan.cluster(%r, %ids, %a) : (tensor<16x16xf32>, tensor<16xi32>, tensor<16x16xf32>) -> tensor<16x16xf32> {
  ^bb0(%x: tensor<16x16xf32>, %i: tensor<16xi32>, %t: tensor<16x16xf32>):
    %0 = nn.embedding_grad %x, %i : (tensor<16x16xf32>, tensor<16xi32>) -> tensor<16x16xf32>
    %1 = nn.add %0, %t : tensor<16x16xf32>
    plan.yield %1 : tensor<16x16xf32>
  }
  %c = dist.all_reduce %b on @mesh["tp"] sum : tensor<16x16xf32> -> tensor<16x16xf32>
  nn.accumulate %c to @w gradient : tensor<16x16xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}

// -----

// A kernel that scatters writes rows without gaps, of 65 numbers too, and a table
// that it adds to has none either.
dist.mesh @mesh ["tp"] = [2]
nn.parameter @w : tensor<16x65xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0(%ids: tensor<8xi32> {pipe.port = #pipe.port<tokens>}) -> (tensor<16x65xf32> {pipe.port = #pipe.port<residual 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  %w = nn.read @w value : tensor<16x65xf32>
  %y = plan.cluster(%w) : (tensor<16x65xf32>) -> tensor<16x65xf32> {
  ^bb0(%x: tensor<16x65xf32>):
    %0 = nn.exp %x : tensor<16x65xf32>
    plan.yield %0 : tensor<16x65xf32>
  }
  return %y : tensor<16x65xf32>
}
// CHECK-LABEL: func.func @backward_0(
func.func @backward_0(%r: tensor<16x65xf32> {pipe.port = #pipe.port<residual 0>}, %ids: tensor<16xi32> {pipe.port = #pipe.port<tokens>}) attributes {pipe.function = #pipe.function<backward, 0>} {
  // CHECK: nn.matmul {{.*}} {plan.places
  %s = nn.matmul %r, %r "av,bv->ab" : (tensor<16x65xf32>, tensor<16x65xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: nn.matmul {{.*}} {plan.places
  %a = nn.matmul %s, %r "ab,bv->av" : (tensor<16x16xf32>, tensor<16x65xf32>) -> tensor<16x65xf32>
  // CHECK-NEXT: plan.cluster{{.*}} attributes {plan.places
  %b = plan.cluster(%r, %ids, %a) : (tensor<16x65xf32>, tensor<16xi32>, tensor<16x65xf32>) -> tensor<16x65xf32> {
  ^bb0(%x: tensor<16x65xf32>, %i: tensor<16xi32>, %t: tensor<16x65xf32>):
    %0 = nn.embedding_grad %x, %i : (tensor<16x65xf32>, tensor<16xi32>) -> tensor<16x65xf32>
    %1 = nn.add %0, %t : tensor<16x65xf32>
    plan.yield %1 : tensor<16x65xf32>
  }
  // CHECK: plan.cluster{{.*}} attributes {plan.places
  %c = plan.cluster(%r, %ids) : (tensor<16x65xf32>, tensor<16xi32>) -> tensor<16x65xf32> {
  ^bb0(%x: tensor<16x65xf32>, %i: tensor<16xi32>):
    %0 = nn.embedding_grad %x, %i : (tensor<16x65xf32>, tensor<16xi32>) -> tensor<16x65xf32>
    plan.yield %0 : tensor<16x65xf32>
  }
  // CHECK: plan.cluster{{.*}} attributes {plan.pitch = array<i64: 68>,
  %d = plan.cluster(%b, %c) : (tensor<16x65xf32>, tensor<16x65xf32>) -> tensor<16x65xf32> {
  ^bb0(%x: tensor<16x65xf32>, %y: tensor<16x65xf32>):
    %0 = nn.mul %x, %y : tensor<16x65xf32>
    plan.yield %0 : tensor<16x65xf32>
  }
  %e = nn.matmul %s, %d "ab,bv->av" : (tensor<16x16xf32>, tensor<16x65xf32>) -> tensor<16x65xf32>
  nn.accumulate %e to @w gradient : tensor<16x65xf32>
  return
}
func.func @reduce_0() attributes {pipe.function = #pipe.function<reduce, 0>} {
  return
}
func.func @optimizer_0() attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}
