// RUN: plait-opt %s --plait-configure=recompute=selective --nn-checkpoint | FileCheck %s
// RUN: plait-opt %s --plait-configure=recompute=selective --nn-checkpoint \
// RUN:   --remarks-filter='nn-checkpoint' -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: Function=matmul{{.*}}nn.exp is made again, and its 512 bytes not kept
// REMARK: Function=matmul{{.*}}nn.tanh is kept, 512 bytes: what it is made of has no fewer
// REMARK: Function=kept{{.*}}nn.equal is kept, 16 bytes: a copy might compare otherwise

// With `selective`, a layer's backward pass takes what costs much from the forward
// pass, and computes what is cheap again where it needs it.

// The matmul takes 2 * 4096 operations for 4 bytes, above 256 a byte, so that it or
// what is made of it is kept. Of what takes as many bytes the latest is, and the
// least is computed again.
// CHECK-LABEL: func.func @matmul(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4096xf32> {{{[^}]*}}}, %[[W:[^:]*]]: tensor<16x4096xf32> {{{[^}]*}}}, %[[DY:[^:]*]]: tensor<8x16xf32> {{{[^}]*}}})
func.func @matmul(%x: tensor<8x4096xf32> {pipe.port = #pipe.port<input 0>}, %w: tensor<16x4096xf32> {pipe.port = #pipe.port<input 1>}, %dy: tensor<8x16xf32> {pipe.port = #pipe.port<input 2>}) -> (tensor<8x16xf32> {pipe.port = #pipe.port<output 0>}, tensor<8x16xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK: %[[A:.*]] = nn.matmul %[[X]], %[[W]] "sh,fh->sf" {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[B:.*]] = nn.tanh %[[A]] {nn.layer = 0 : i64}
  // CHECK-NEXT: %[[C:.*]] = nn.exp
  %a = nn.matmul %x, %w "sh,fh->sf" {nn.layer = 0 : i64} : (tensor<8x4096xf32>, tensor<16x4096xf32>) -> tensor<8x16xf32>
  %b = nn.tanh %a {nn.layer = 0 : i64} : tensor<8x16xf32>
  %c = nn.exp %b {nn.layer = 0 : i64} : tensor<8x16xf32>
  // CHECK-NEXT: %[[C2:.*]] = nn.exp %[[B]] {nn.backward, nn.layer = 0 : i64}
  // CHECK-NEXT: %[[D:.*]] = nn.mul %[[DY]], %[[C2]]
  // CHECK-NEXT: %[[E:.*]] = nn.mul %[[D]], %[[B]]
  // CHECK-NEXT: return %[[C]], %[[E]]
  %d = nn.mul %dy, %c {nn.backward, nn.layer = 0 : i64} : tensor<8x16xf32>
  %e = nn.mul %d, %b {nn.backward, nn.layer = 0 : i64} : tensor<8x16xf32>
  return %c, %e : tensor<8x16xf32>, tensor<8x16xf32>
}

// Fewest bytes: the sum over 64 columns is a 64th of what it is made of, and nothing
// else needs that. It is kept, though it is cheap.
// CHECK-LABEL: func.func @narrow(
func.func @narrow(%x: tensor<8x64xf32> {pipe.port = #pipe.port<input 0>}, %dy: tensor<8xf32> {pipe.port = #pipe.port<input 1>}) -> (tensor<8xf32> {pipe.port = #pipe.port<output 0>}, tensor<8xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK: %[[A:.*]] = nn.exp
  // CHECK-NEXT: %[[B:.*]] = nn.reduce sum %[[A]]
  // CHECK-NEXT: nn.tanh %[[B]] {nn.layer = 0 : i64}
  %a = nn.exp %x {nn.layer = 0 : i64} : tensor<8x64xf32>
  %b = nn.reduce sum %a dims [1] {nn.layer = 0 : i64} : tensor<8x64xf32> -> tensor<8xf32>
  %c = nn.tanh %b {nn.layer = 0 : i64} : tensor<8xf32>
  // CHECK-NEXT: %[[D:.*]] = nn.mul {{.*}}, %[[B]] {nn.backward
  // CHECK-NEXT: %[[C2:.*]] = nn.tanh %[[B]] {nn.backward, nn.layer = 0 : i64}
  // CHECK-NEXT: nn.mul %[[D]], %[[C2]]
  %d = nn.mul %dy, %b {nn.backward, nn.layer = 0 : i64} : tensor<8xf32>
  %e = nn.mul %d, %c {nn.backward, nn.layer = 0 : i64} : tensor<8xf32>
  return %c, %e : tensor<8xf32>, tensor<8xf32>
}

// A comparison is never made again, nor is what no layer owns.
// CHECK-LABEL: func.func @kept(
func.func @kept(%x: tensor<4xf32> {pipe.port = #pipe.port<input 0>}, %y: tensor<4xf32> {pipe.port = #pipe.port<input 1>}, %dy: tensor<4xf32> {pipe.port = #pipe.port<input 2>}) -> (tensor<4xf32> {pipe.port = #pipe.port<output 0>}, tensor<4xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK: %[[A:.*]] = nn.equal
  // CHECK-NEXT: %[[B:.*]] = nn.tanh
  %a = nn.equal %x, %y {nn.layer = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
  %b = nn.tanh %x : tensor<4xf32>
  // CHECK-NEXT: %[[C:.*]] = nn.mul %{{.*}}, %[[A]] {nn.backward
  // CHECK-NEXT: nn.mul %[[C]], %[[B]] {nn.backward
  %c = nn.mul %dy, %a {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  %d = nn.mul %c, %b {nn.backward, nn.layer = 0 : i64} : tensor<4xf32>
  return %b, %d : tensor<4xf32>, tensor<4xf32>
}
