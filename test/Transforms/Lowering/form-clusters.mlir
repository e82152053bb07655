// RUN: plait-opt %s --plan-form-clusters | FileCheck %s
// RUN: plait-opt %s --plan-form-clusters --remarks-filter='plan-form.*' -o %t 2>&1 | \
// RUN:   FileCheck %s --check-prefix=REMARK
// REMARK: Function=cycle{{.*}}nn.add does not share a kernel with nn.exp: what comes between the two is in neither
// REMARK: Function=part_of_own{{.*}}dist.slice does not share a kernel with nn.exp: that kernel works on other rows
// REMARK: Function=two_dims{{.*}}nn.reduce does not share a kernel with nn.exp: no kernel computes both
// REMARK: Function=compared |{{.*}}nn.reduce does not share a kernel with nn.exp: what is compared has to be stored before
// REMARK: Function=compared_columns{{.*}}that kernel adds up columns or rows, and takes no others

nn.parameter @w : tensor<8x4xf32> init<mean = 0.0, std = 0.02>
nn.parameter @b : tensor<4xf32> init<mean = 0.0, std = 0.02>

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

// A norm is one kernel, with one result: its statistic of a row is found, spread
// over the row and used without being stored.
// CHECK-LABEL: func.func @norm(
// CHECK-SAME: %[[X:.*]]: tensor<8x4xf32>)
// CHECK-NEXT: %[[Y:.*]] = plan.cluster(%[[X]]) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
// CHECK: nn.mul
// CHECK: nn.reduce sum
// CHECK: nn.rsqrt
// CHECK: nn.broadcast
// CHECK: %[[OUT:.*]] = nn.mul
// CHECK: plan.yield %[[OUT]]
// CHECK: return %[[Y]]
func.func @norm(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.mul %x, %x : tensor<8x4xf32>
  %1 = nn.reduce sum %0 dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %2 = nn.rsqrt %1 : tensor<8xf32>
  %3 = nn.broadcast %2 dims [0] : tensor<8xf32> -> tensor<8x4xf32>
  %4 = nn.mul %x, %3 : tensor<8x4xf32>
  return %4 : tensor<8x4xf32>
}

// What is needed on both sides of a matmul is made on both, where it is made of
// fewer bytes: here what was cast, and a number of each row.
// CHECK-LABEL: func.func @made_twice(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4xbf16>
// CHECK-NEXT: %[[NORM:.*]]:2 = plan.cluster(%[[X]]) : (tensor<8x4xbf16>) -> (tensor<8xf32>, tensor<8x4xbf16>) {
// CHECK: %[[M:.*]] = nn.matmul %[[NORM]]#1, %arg1
// CHECK-NEXT: plan.cluster(%[[X]], %[[NORM]]#0, %[[M]])
func.func @made_twice(%x: tensor<8x4xbf16>, %w: tensor<4x4xbf16>) -> tensor<8x4xf32> {
  %0 = nn.cast %x : tensor<8x4xbf16> -> tensor<8x4xf32>
  %1 = nn.mul %0, %0 : tensor<8x4xf32>
  %2 = nn.reduce sum %1 dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %3 = nn.rsqrt %2 : tensor<8xf32>
  %4 = nn.broadcast %3 dims [0] : tensor<8xf32> -> tensor<8x4xf32>
  %5 = nn.mul %0, %4 : tensor<8x4xf32>
  %6 = nn.cast %5 : tensor<8x4xf32> -> tensor<8x4xbf16>
  %7 = nn.matmul %6, %w "bi,ij->bj" : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
  %8 = nn.cast %7 : tensor<8x4xbf16> -> tensor<8x4xf32>
  %9 = nn.mul %8, %5 : tensor<8x4xf32>
  return %9 : tensor<8x4xf32>
}

// Of four bytes there is nothing to gain.
// CHECK-LABEL: func.func @stored_between(
// CHECK-NEXT: %{{.*}} = plan.cluster(%arg0) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
// CHECK: %[[M:.*]] = nn.matmul
// CHECK-NEXT: plan.cluster(%[[M]], %{{.*}})
func.func @stored_between(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.mul %x, %x : tensor<8x4xf32>
  %1 = nn.sub %0, %x : tensor<8x4xf32>
  %2 = nn.matmul %1, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %3 = nn.mul %2, %1 : tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// What somebody else reads is stored as well.
// CHECK-LABEL: func.func @two_results(
// CHECK-NEXT: plan.cluster(%{{.*}}) : (tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
// CHECK: plan.yield %{{.*}}, %{{.*}} :
func.func @two_results(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.tanh %0 : tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// Matmuls and collectives are not fused, and cut kernels in two.
// CHECK-LABEL: func.func @matmul(
// CHECK-NEXT: %[[A:.*]] = plan.cluster(%arg0)
// CHECK: nn.exp
// CHECK: %[[B:.*]] = nn.matmul %[[A]], %arg1
// CHECK-NEXT: plan.cluster(%[[B]])
// CHECK: nn.tanh
func.func @matmul(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.matmul %0, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = nn.tanh %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// No cycle: %2 could join the kernel of %0, but then that kernel would need the
// matmul, which needs the kernel.
// CHECK-LABEL: func.func @cycle(
// CHECK-NEXT: %[[A:.*]] = plan.cluster(%arg0)
// CHECK: %[[B:.*]] = nn.matmul %[[A]],
// CHECK-NEXT: plan.cluster({{.*}}%[[B]]{{.*}}) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK: nn.add
func.func @cycle(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.matmul %0, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = nn.add %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// Other rows, another kernel.
// CHECK-LABEL: func.func @spaces(
// CHECK-COUNT-2: plan.cluster(
// CHECK-NOT: plan.cluster(
// CHECK: return
func.func @spaces(%x: tensor<8x4xf32>, %y: tensor<6x4xf32>) -> (tensor<8x4xf32>, tensor<6x4xf32>) {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.exp %y : tensor<6x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<6x4xf32>
}

//===----------------------------------------------------------------------===//
// What costs nothing is never stored
//===----------------------------------------------------------------------===//

// A bias is spread and a constant made inside of the kernel.
// CHECK-LABEL: func.func @free(
// CHECK-NEXT: %[[B:.*]] = nn.read @b value
// CHECK-NEXT: plan.cluster(%arg0, %[[B]]) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32> {
// CHECK-DAG: nn.broadcast
// CHECK-DAG: nn.fill
// CHECK: plan.yield
func.func @free(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %b = nn.read @b value : tensor<4xf32>
  %0 = nn.broadcast %b dims [1] : tensor<4xf32> -> tensor<8x4xf32>
  %1 = nn.add %x, %0 : tensor<8x4xf32>
  %2 = nn.fill 2.0 : tensor<8x4xf32>
  %3 = nn.mul %1, %2 : tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// Unless a matmul reads it.
// CHECK-LABEL: func.func @stored(
// CHECK-NEXT: %[[A:.*]] = plan.cluster(%arg0) : (tensor<4xf32>) -> tensor<8x4xf32>
// CHECK: nn.matmul %[[A]],
func.func @stored(%b: tensor<4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.broadcast %b dims [1] : tensor<4xf32> -> tensor<8x4xf32>
  %1 = nn.matmul %0, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

// Sums over rows take copies of the elementwise work they read, and share a
// kernel: the exponential is computed in both kernels and not stored for this.
// CHECK-LABEL: func.func @columns(
// CHECK: plan.cluster(%{{.*}}) : (tensor<8x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK: nn.exp
// CHECK: nn.reduce sum {{.*}} dims [0]
// CHECK: nn.reduce sum {{.*}} dims [0]
// CHECK: plan.yield
func.func @columns(%x: tensor<8x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.reduce sum %0 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  %2 = nn.mul %x, %0 : tensor<8x4xf32>
  %3 = nn.reduce sum %2 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %1, %3 : tensor<4xf32>, tensor<4xf32>
}

// Sums that read nothing in common do not: what the first reads need not wait
// for what the second reads.
// CHECK-LABEL: func.func @strangers(
// CHECK: plan.cluster(%{{.*}}) : (tensor<8x4xf32>) -> tensor<4xf32> {
// CHECK: nn.matmul
// CHECK: plan.cluster(%{{.*}}) : (tensor<8x4xf32>) -> tensor<4xf32> {
func.func @strangers(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.reduce sum %x dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = nn.reduce sum %1 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %0, %2 : tensor<4xf32>, tensor<4xf32>
}

// Within a layer they do, and come where the last of them can.
// CHECK-LABEL: func.func @layered(
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: plan.cluster(%{{.*}}) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
func.func @layered(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.reduce sum %x dims [0] {nn.layer = 0 : i64} : tensor<8x4xf32> -> tensor<4xf32>
  %1 = nn.matmul %x, %w "bi,ij->bj" {nn.layer = 0 : i64} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = nn.reduce sum %1 dims [0] {nn.layer = 0 : i64} : tensor<8x4xf32> -> tensor<4xf32>
  return %0, %2 : tensor<4xf32>, tensor<4xf32>
}

//===----------------------------------------------------------------------===//
// Ops that read elsewhere
//===----------------------------------------------------------------------===//

// The other half of a row is not at hand in the kernel that makes it.
// CHECK-LABEL: func.func @rotate(
// CHECK: nn.exp
// CHECK: plan.yield
// CHECK: plan.cluster(
// CHECK: nn.rotate_half
// CHECK: nn.tanh
func.func @rotate(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.rotate_half %0 : tensor<8x4xf32>
  %2 = nn.tanh %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// What is made beside it of the row's own elements is: a rotary embedding is one
// kernel, which writes nothing between.
// CHECK-LABEL: func.func @rotary(
// CHECK: plan.cluster(%arg0, %arg1, %arg2) : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK: nn.rotate_half
// CHECK: nn.add
// CHECK-NOT: plan.cluster
func.func @rotary(%x: tensor<8x4xf32>, %cos: tensor<8x4xf32>, %sin: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.mul %x, %cos : tensor<8x4xf32>
  %1 = nn.rotate_half %x : tensor<8x4xf32>
  %2 = nn.mul %1, %sin : tensor<8x4xf32>
  %3 = nn.add %0, %2 : tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// Not of elements that are made and rotated.
// CHECK-LABEL: func.func @rotary_of_own(
// CHECK: plan.cluster(%arg0)
// CHECK: nn.exp
// CHECK: plan.cluster(
// CHECK: nn.rotate_half
// CHECK-NEXT: nn.add
func.func @rotary_of_own(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.rotate_half %0 : tensor<8x4xf32>
  %2 = nn.add %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

//===----------------------------------------------------------------------===//
// What is stored comes from a kernel, a matmul or a collective
//===----------------------------------------------------------------------===//

// An argument that is returned, and the second of two results that are one
// value, are copied by a kernel.
// CHECK-LABEL: func.func @copies(
// CHECK-NEXT: %[[ONE:.*]] = plan.cluster(%arg0)
// CHECK: nn.stop_gradient
// CHECK: %[[TWO:.*]]:2 = plan.cluster(%arg0) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK: %[[EXP:.*]] = nn.exp
// CHECK-NEXT: %[[AGAIN:.*]] = nn.stop_gradient %[[EXP]]
// CHECK-NEXT: plan.yield %[[EXP]], %[[AGAIN]]
// CHECK: return %[[ONE]], %[[TWO]]#0, %[[TWO]]#1
func.func @copies(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.exp %x : tensor<4xf32>
  return %x, %0, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A matmul adds to its accumulator itself; a collective's result is added by a
// kernel, and so is one that others read too.
// CHECK-LABEL: func.func @accumulate(
// CHECK: %[[P:.*]] = nn.matmul
// CHECK: nn.accumulate %[[P]] to @w gradient
// CHECK: %[[R:.*]] = dist.all_reduce
// CHECK: %[[C:.*]] = plan.cluster(%[[R]])
// CHECK: nn.accumulate %[[C]] to @w gradient
dist.mesh @mesh ["tp"] = [2]
func.func @accumulate(%x: tensor<2x8xf32>, %y: tensor<2x4xf32>, %z: tensor<8x4xf32>) {
  %0 = nn.matmul %x, %y "bi,bj->ij" : (tensor<2x8xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  nn.accumulate %0 to @w gradient : tensor<8x4xf32>
  %1 = dist.all_reduce %z on @mesh["tp"] sum : tensor<8x4xf32> -> tensor<8x4xf32>
  nn.accumulate %1 to @w gradient : tensor<8x4xf32>
  return
}

// Writing back what was read is nothing; accesses to one parameter keep their
// order.
// CHECK-LABEL: func.func @order(
// CHECK-NEXT: %[[OLD:.*]] = nn.read @b value
// CHECK-NEXT: %[[NEW:.*]] = plan.cluster(%[[OLD]])
// CHECK: nn.write %[[NEW]] to @b value
// CHECK-NEXT: nn.read @b value
func.func @order() -> tensor<4xf32> {
  %0 = nn.read @b value : tensor<4xf32>
  nn.write %0 to @b value : tensor<4xf32>
  %1 = nn.exp %0 : tensor<4xf32>
  nn.write %1 to @b value : tensor<4xf32>
  %2 = nn.read @b value : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// What an op reads from a second kernel, which makes it for this op alone, is
// computed in its own; what is needed elsewhere too stays where it is.
// CHECK-LABEL: func.func @absorbs(
// CHECK-NEXT: %[[K:.*]] = plan.cluster(%{{.*}}, %{{.*}}) : (tensor<8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NOT: plan.cluster
// CHECK: return %[[K]]
func.func @absorbs(%r: tensor<8xf32>, %x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.neg %r : tensor<8xf32>
  %1 = nn.broadcast %0 dims [0] : tensor<8xf32> -> tensor<8x4xf32>
  %2 = nn.tanh %1 : tensor<8x4xf32>
  %3 = nn.exp %x : tensor<8x4xf32>
  %4 = nn.mul %2, %3 : tensor<8x4xf32>
  return %4 : tensor<8x4xf32>
}

// So is a rank's part of what lies in memory, but not of what the kernel makes.
// CHECK-LABEL: func.func @absorbs_part(
// CHECK: %[[K:.*]] = plan.cluster(
// CHECK-NOT: plan.cluster
// CHECK: return %[[K]]
func.func @absorbs_part(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = nn.read @w value : tensor<8x4xf32>
  %1 = dist.slice %0 on @mesh["tp"] dim 0 : tensor<8x4xf32> -> tensor<4x4xf32>
  %2 = nn.exp %1 : tensor<4x4xf32>
  %3 = nn.tanh %x : tensor<4x4xf32>
  %4 = nn.sub %2, %3 : tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @part_of_own(
// CHECK: %[[K:.*]] = plan.cluster(
// CHECK: %[[L:.*]] = plan.cluster({{.*}}%[[K]]
// CHECK: return %[[L]]
func.func @part_of_own(%x: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = dist.slice %0 on @mesh["tp"] dim 0 : tensor<8x4xf32> -> tensor<4x4xf32>
  %2 = nn.tanh %1 : tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @leaves(
// CHECK-NEXT: %[[K:.*]] = plan.cluster(
// CHECK: %[[L:.*]] = plan.cluster({{.*}}%[[K]]
// CHECK: return %[[K]], %[[L]]
func.func @leaves(%r: tensor<8xf32>, %x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = nn.neg %r : tensor<8xf32>
  %1 = nn.broadcast %0 dims [0] : tensor<8xf32> -> tensor<8x4xf32>
  %2 = nn.tanh %1 : tensor<8x4xf32>
  %3 = nn.exp %x : tensor<8x4xf32>
  %4 = nn.mul %2, %3 : tensor<8x4xf32>
  return %2, %4 : tensor<8x4xf32>, tensor<8x4xf32>
}

// A cast that does not round is copied into the kernels of its users, so that
// f32 is never stored: not of the matmul, and not of the repeated weight. One
// that rounds is what its kernel writes, and a matmul reads.
// CHECK-LABEL: func.func @casts(
// CHECK: %[[Y:.*]] = nn.matmul
// CHECK-NEXT: %[[K:.*]]:2 = plan.cluster(%{{.*}}, %{{.*}}) : (tensor<8x4xbf16>, tensor<4xbf16>) -> (tensor<8xf32>, tensor<8x4xbf16>)
// CHECK-NEXT: ^bb0(
// CHECK-NEXT: nn.cast %{{.*}} : tensor<8x4xbf16> -> tensor<8x4xf32>
// CHECK: nn.broadcast {{.*}} -> tensor<8x4xbf16>
// CHECK-NEXT: nn.cast
// CHECK: plan.yield
// CHECK: nn.matmul %[[K]]#1,
// CHECK-NEXT: return
func.func @casts(%x: tensor<8x4xbf16>, %w: tensor<4x4xbf16>, %b: tensor<4xbf16>) -> (tensor<8xf32>, tensor<8x4xbf16>) {
  %y = nn.matmul %x, %w "bi,ij->bj" : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
  %wide = nn.cast %y : tensor<8x4xbf16> -> tensor<8x4xf32>
  %sum = nn.reduce sum %wide dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %spread = nn.broadcast %b dims [1] : tensor<4xbf16> -> tensor<8x4xbf16>
  %bias = nn.cast %spread : tensor<8x4xbf16> -> tensor<8x4xf32>
  %rows = nn.broadcast %sum dims [0] : tensor<8xf32> -> tensor<8x4xf32>
  %0 = nn.sub %wide, %rows : tensor<8x4xf32>
  %1 = nn.add %0, %bias : tensor<8x4xf32>
  %2 = nn.cast %1 : tensor<8x4xf32> -> tensor<8x4xbf16>
  %3 = nn.matmul %2, %w "bi,ij->bj" : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
  return %sum, %3 : tensor<8xf32>, tensor<8x4xbf16>
}

// Attention that is left whole overwrites its results: what is accumulated, a
// kernel adds.
// CHECK-LABEL: func.func @attention(
// CHECK: %{{.*}}, %[[K:.*]], %{{.*}} = nn.attention_grad
// CHECK: %[[C:.*]] = plan.cluster(%[[K]])
// CHECK: nn.accumulate %[[C]] to @k gradient
nn.parameter @k : tensor<2x8x2x4xf32> init<mean = 0.0, std = 0.02> decay
func.func @attention(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>) -> tensor<2x8x2x3x4xf32> {
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  nn.accumulate %0#1 to @k gradient : tensor<2x8x2x4xf32>
  return %0#0 : tensor<2x8x2x3x4xf32>
}

//===----------------------------------------------------------------------===//
// Untouched
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @nothing(
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: return
func.func @nothing(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %0 = nn.matmul %x, %w "bi,ij->bj" : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

//===----------------------------------------------------------------------===//
// A cluster has a kernel
//===----------------------------------------------------------------------===//

// Sums over different dimensions of one tensor are different loops.
// CHECK-LABEL: func.func @two_dims(
// CHECK-COUNT-2: plan.cluster(
// CHECK-NOT: plan.cluster(
// CHECK: return
func.func @two_dims(%x: tensor<2x6x8xf32>) -> (tensor<2x8xf32>, tensor<2x6xf32>) {
  %0 = nn.exp %x : tensor<2x6x8xf32>
  %1 = nn.reduce sum %0 dims [1] : tensor<2x6x8xf32> -> tensor<2x8xf32>
  %2 = nn.reduce sum %0 dims [2] : tensor<2x6x8xf32> -> tensor<2x6xf32>
  return %1, %2 : tensor<2x8xf32>, tensor<2x6xf32>
}

// What is subtracted from a maximum over rows waits for the last row.
// CHECK-LABEL: func.func @pool(
// CHECK: %[[MAX:.*]] = plan.cluster(%arg0)
// CHECK: nn.reduce max
// CHECK: %[[OUT:.*]] = plan.cluster({{.*}}%[[MAX]]
// CHECK: nn.tanh
// CHECK: return %[[OUT]]
func.func @pool(%x: tensor<3x5x4xf32>) -> tensor<3x5x4xf32> {
  %0 = nn.reduce max %x dims [1] : tensor<3x5x4xf32> -> tensor<3x4xf32>
  %1 = nn.broadcast %0 dims [0, 2] : tensor<3x4xf32> -> tensor<3x5x4xf32>
  %2 = nn.sub %x, %1 : tensor<3x5x4xf32>
  %3 = nn.tanh %2 : tensor<3x5x4xf32>
  return %3 : tensor<3x5x4xf32>
}

// A number of each row that is spread over other rows than its own.
// CHECK-LABEL: func.func @other_rows(
// CHECK: %[[R:.*]] = plan.cluster(%arg0)
// CHECK: nn.tanh
// CHECK: plan.yield
// CHECK: plan.cluster({{.*}}%[[R]]
// CHECK: nn.add
func.func @other_rows(%r: tensor<4xf32>, %x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = nn.tanh %r : tensor<4xf32>
  %1 = nn.broadcast %0 dims [0] : tensor<4xf32> -> tensor<4x4xf32>
  %2 = nn.broadcast %0 dims [1] : tensor<4xf32> -> tensor<4x4xf32>
  %3 = nn.add %1, %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// A reduction that is no loop of its own becomes two: of the last dimension, and
// of the others.
// CHECK-LABEL: func.func @split_reduction(
// CHECK: nn.reduce sum %{{.*}} dims [2] : tensor<3x5x4xf32> -> tensor<3x5xf32>
// CHECK: nn.reduce sum %{{.*}} dims [0] : tensor<3x5xf32> -> tensor<5xf32>
func.func @split_reduction(%x: tensor<3x5x4xf32>) -> tensor<5xf32> {
  %0 = nn.reduce sum %x dims [0, 2] : tensor<3x5x4xf32> -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// What is copied into a kernel is copied for each user where it lies along
// different dimensions for them.
// CHECK-LABEL: func.func @both_ways(
// CHECK: plan.cluster(%arg0)
// CHECK-COUNT-2: nn.cast
// CHECK: nn.add
func.func @both_ways(%r: tensor<4xbf16>) -> tensor<4x4xf32> {
  %0 = nn.cast %r : tensor<4xbf16> -> tensor<4xf32>
  %1 = nn.broadcast %0 dims [0] : tensor<4xf32> -> tensor<4x4xf32>
  %2 = nn.broadcast %0 dims [1] : tensor<4xf32> -> tensor<4x4xf32>
  %3 = nn.add %1, %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// What a kernel addresses in its own way is stored, free or not; ids are not.
// CHECK-LABEL: func.func @rotates_free(
// CHECK: %[[B:.*]] = plan.cluster(%arg0) : (tensor<4xf32>) -> tensor<8x4xf32>
// CHECK: nn.broadcast
// CHECK: plan.cluster(%[[B]])
// CHECK: nn.rotate_half
func.func @rotates_free(%r: tensor<4xf32>) -> tensor<8x4xf32> {
  %0 = nn.broadcast %r dims [1] : tensor<4xf32> -> tensor<8x4xf32>
  %1 = nn.rotate_half %0 : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @free_ids(
// CHECK-NEXT: %[[K:.*]] = plan.cluster(%arg0) : (tensor<8x4xf32>) -> tensor<2x8x4xf32>
// CHECK: nn.iota
// CHECK-NEXT: nn.embedding
// CHECK: return %[[K]]
func.func @free_ids(%table: tensor<8x4xf32>) -> tensor<2x8x4xf32> {
  %0 = nn.iota along 1 : tensor<2x8xi32>
  %1 = nn.embedding %table, %0 : (tensor<8x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  return %1 : tensor<2x8x4xf32>
}

// What only an op reads whose result is not used is no kernel.
// CHECK-LABEL: func.func @unused(
// CHECK-SAME: %[[X:.*]]: tensor<8x4xf32>
// CHECK-NEXT: %[[K:.*]] = plan.cluster(%[[X]])
// CHECK-NOT: plan.cluster
// CHECK: return %[[K]]
func.func @unused(%x: tensor<8x4xf32>, %ids: tensor<8xi32>) -> tensor<8x4xf32> {
  %0 = nn.embedding_grad %x, %ids : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<5x4xf32>
  %1 = nn.exp %0 : tensor<5x4xf32>
  %2 = nn.tanh %x : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

// What is compared is stored before: the maximum is one of the numbers that it is
// compared with, although the kernel that makes them has them in f32.
// CHECK-LABEL: func.func @compared(
// CHECK-NEXT: %[[Y:.*]] = plan.cluster(%{{.*}}) : (tensor<8x4xbf16>) -> tensor<8x4xbf16> {
// CHECK: nn.exp
// CHECK-NOT: nn.reduce
// CHECK: %[[TOP:.*]] = plan.cluster(%[[Y]]) : (tensor<8x4xbf16>) -> tensor<8xbf16> {
// CHECK: nn.reduce max
// CHECK: plan.cluster(%[[Y]], %[[TOP]]) : (tensor<8x4xbf16>, tensor<8xbf16>) -> tensor<8x4xbf16> {
// CHECK: nn.broadcast
// CHECK: nn.equal
func.func @compared(%x: tensor<8x4xbf16>) -> tensor<8x4xbf16> {
  %0 = nn.exp %x : tensor<8x4xbf16>
  %1 = nn.reduce max %0 dims [1] : tensor<8x4xbf16> -> tensor<8xbf16>
  %2 = nn.broadcast %1 dims [0] : tensor<8xbf16> -> tensor<8x4xbf16>
  %3 = nn.equal %0, %2 : tensor<8x4xbf16> -> tensor<8x4xbf16>
  return %3 : tensor<8x4xbf16>
}

// A column maximum takes no copy of what is compared.
// CHECK-LABEL: func.func @compared_columns(
// CHECK-NEXT: %[[Y:.*]] = plan.cluster(%{{.*}}) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
// CHECK: nn.exp
// CHECK: %[[TOP:.*]] = plan.cluster(%[[Y]]) : (tensor<8x4xf32>) -> tensor<4xf32> {
// CHECK-NOT: nn.exp
// CHECK: nn.reduce max
// CHECK: plan.cluster(%[[Y]], %[[TOP]]) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xbf16> {
func.func @compared_columns(%x: tensor<8x4xf32>) -> tensor<8x4xbf16> {
  %0 = nn.exp %x : tensor<8x4xf32>
  %1 = nn.reduce max %0 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  %2 = nn.broadcast %1 dims [1] : tensor<4xf32> -> tensor<8x4xf32>
  %3 = nn.equal %0, %2 : tensor<8x4xf32> -> tensor<8x4xbf16>
  return %3 : tensor<8x4xbf16>
}

// A column reduction that would read more than four tensors reads the sum of
// them, which the kernel of its rows stores; up to four it adds up itself.
// CHECK-LABEL: func.func @few_tensors(
// CHECK: plan.cluster(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4xf32>
// CHECK-COUNT-3: nn.add
// CHECK: nn.reduce sum %{{.*}} dims [0]
func.func @few_tensors(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>, %c: tensor<8x4xf32>,
                       %d: tensor<8x4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = nn.add %a, %b : tensor<8x4xf32>
  %1 = nn.add %0, %c : tensor<8x4xf32>
  %2 = nn.add %1, %d : tensor<8x4xf32>
  %rows = nn.reduce sum %2 dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %columns = nn.reduce sum %2 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %rows, %columns : tensor<8xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @many_tensors(
// CHECK: %[[ROWS:.*]]:2 = plan.cluster(
// CHECK-COUNT-4: nn.add
// CHECK: plan.cluster(%[[ROWS]]#{{.}}) : (tensor<8x4xf32>) -> tensor<4xf32>
// CHECK-NOT: nn.add
// CHECK: nn.reduce sum %{{.*}} dims [0]
func.func @many_tensors(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>, %c: tensor<8x4xf32>,
                        %d: tensor<8x4xf32>, %e: tensor<8x4xf32>)
                        -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = nn.add %a, %b : tensor<8x4xf32>
  %1 = nn.add %0, %c : tensor<8x4xf32>
  %2 = nn.add %1, %d : tensor<8x4xf32>
  %3 = nn.add %2, %e : tensor<8x4xf32>
  %rows = nn.reduce sum %3 dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %columns = nn.reduce sum %3 dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %rows, %columns : tensor<8xf32>, tensor<4xf32>
}
