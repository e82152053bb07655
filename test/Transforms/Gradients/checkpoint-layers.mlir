// RUN: plait-opt %s --plait-configure=recompute=full:1+selective:1 --nn-checkpoint | FileCheck %s
// RUN: not plait-opt %s --plait-configure=recompute=full/none --nn-checkpoint 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not plait-opt %s --plait-configure=recompute=full:9 --nn-checkpoint 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not plait-opt %s --plait-configure=recompute=auto --nn-checkpoint 2>&1 | FileCheck %s --check-prefix=AUTO

// STAGES: recompute is given for 2 virtual stages (full/none), the pipeline has 1
// MANY: recompute is full:9, which is of 9 layers, but no virtual stage has more than 3
// AUTO: recompute is auto, which is resolved for the memory of a `cluster`: give one, or another kind

// Of three layers the first is computed again whole, of the second what is cheap
// (checkpoint-selective.mlir), of the third nothing.
// CHECK-LABEL: func.func @layers(
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4096xf32> {{{[^}]*}}}, %[[W:[^:]*]]: tensor<16x4096xf32> {{{[^}]*}}}, %[[DY:[^:]*]]: tensor<8x16xf32>
func.func @layers(%x: tensor<8x4096xf32> {pipe.port = #pipe.port<input 0>}, %w: tensor<16x4096xf32> {pipe.port = #pipe.port<input 1>}, %dy: tensor<8x16xf32> {pipe.port = #pipe.port<input 2>}) -> (tensor<8x16xf32> {pipe.port = #pipe.port<output 0>}, tensor<8x16xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<joint, 0>} {
  // CHECK: nn.matmul %[[X]], %[[W]] "sh,fh->sf" {nn.layer = 3 : i64}
  // CHECK-NEXT: %[[T3:.*]] = nn.tanh {{.*}} {nn.layer = 3 : i64}
  // CHECK-NEXT: %[[E3:.*]] = nn.exp %[[T3]] {nn.layer = 3 : i64}
  %m3 = nn.matmul %x, %w "sh,fh->sf" {nn.layer = 3 : i64} : (tensor<8x4096xf32>, tensor<16x4096xf32>) -> tensor<8x16xf32>
  %t3 = nn.tanh %m3 {nn.layer = 3 : i64} : tensor<8x16xf32>
  %e3 = nn.exp %t3 {nn.layer = 3 : i64} : tensor<8x16xf32>
  // CHECK: nn.matmul %[[X]], %[[W]] "sh,fh->sf" {nn.layer = 4 : i64}
  // CHECK-NEXT: %[[T4:.*]] = nn.tanh {{.*}} {nn.layer = 4 : i64}
  // CHECK-NEXT: %[[E4:.*]] = nn.exp %[[T4]] {nn.layer = 4 : i64}
  %m4 = nn.matmul %x, %w "sh,fh->sf" {nn.layer = 4 : i64} : (tensor<8x4096xf32>, tensor<16x4096xf32>) -> tensor<8x16xf32>
  %t4 = nn.tanh %m4 {nn.layer = 4 : i64} : tensor<8x16xf32>
  %e4 = nn.exp %t4 {nn.layer = 4 : i64} : tensor<8x16xf32>
  // CHECK: %[[M5:.*]] = nn.matmul %[[X]], %[[W]] "sh,fh->sf" {nn.layer = 5 : i64}
  // CHECK-NEXT: %[[T5:.*]] = nn.tanh {{.*}} {nn.layer = 5 : i64}
  // CHECK-NEXT: %[[E5:.*]] = nn.exp %[[T5]] {nn.layer = 5 : i64}
  %m5 = nn.matmul %x, %w "sh,fh->sf" {nn.layer = 5 : i64} : (tensor<8x4096xf32>, tensor<16x4096xf32>) -> tensor<8x16xf32>
  %t5 = nn.tanh %m5 {nn.layer = 5 : i64} : tensor<8x16xf32>
  %e5 = nn.exp %t5 {nn.layer = 5 : i64} : tensor<8x16xf32>
  %s = nn.add %e3, %e4 : tensor<8x16xf32>
  %y = nn.add %s, %e5 : tensor<8x16xf32>
  // CHECK: %[[A5:.*]] = nn.mul %[[DY]], %[[E5]] {nn.backward, nn.layer = 5 : i64}
  // CHECK-NEXT: %[[B5:.*]] = nn.mul %[[A5]], %[[M5]] {nn.backward, nn.layer = 5 : i64}
  // CHECK-NEXT: %[[R4:.*]] = nn.exp %[[T4]] {nn.backward, nn.layer = 4 : i64}
  // CHECK-NEXT: %[[A4:.*]] = nn.mul %[[B5]], %[[R4]] {nn.backward, nn.layer = 4 : i64}
  // CHECK-NEXT: %[[B4:.*]] = nn.mul %[[A4]], %[[T4]] {nn.backward, nn.layer = 4 : i64}
  // CHECK-NEXT: %[[M3:.*]] = nn.matmul %[[X]], %[[W]] "sh,fh->sf" {nn.backward, nn.layer = 3 : i64}
  // CHECK-NEXT: %[[R3:.*]] = nn.tanh %[[M3]] {nn.backward, nn.layer = 3 : i64}
  // CHECK-NEXT: %[[Q3:.*]] = nn.exp %[[R3]] {nn.backward, nn.layer = 3 : i64}
  // CHECK-NEXT: %[[A3:.*]] = nn.mul %[[B4]], %[[Q3]] {nn.backward, nn.layer = 3 : i64}
  // CHECK-NEXT: nn.mul %[[A3]], %[[R3]] {nn.backward, nn.layer = 3 : i64}
  %a5 = nn.mul %dy, %e5 {nn.backward, nn.layer = 5 : i64} : tensor<8x16xf32>
  %b5 = nn.mul %a5, %m5 {nn.backward, nn.layer = 5 : i64} : tensor<8x16xf32>
  %a4 = nn.mul %b5, %e4 {nn.backward, nn.layer = 4 : i64} : tensor<8x16xf32>
  %b4 = nn.mul %a4, %t4 {nn.backward, nn.layer = 4 : i64} : tensor<8x16xf32>
  %a3 = nn.mul %b4, %e3 {nn.backward, nn.layer = 3 : i64} : tensor<8x16xf32>
  %b3 = nn.mul %a3, %t3 {nn.backward, nn.layer = 3 : i64} : tensor<8x16xf32>
  return %y, %b3 : tensor<8x16xf32>, tensor<8x16xf32>
}
