// RUN: plait-opt %s --pipe-assign-stages | FileCheck %s --check-prefixes=CHECK,BOTH
// RUN: plait-opt %s --plait-configure=layers=0,1,1,0 --pipe-assign-stages | FileCheck %s --check-prefixes=CHECK,BOTH
// RUN: not plait-opt %s --plait-configure=layers=1,0,1,0 --pipe-assign-stages 2>&1 | FileCheck %s --check-prefix=MIDDLE

// More stages than layers: what comes before the layers is a stage of its own, and
// so is what comes after them. In the middle a stage has a layer.
// MIDDLE: error: @loss gets a stage of 0 layers, expected 1 to 2
// CHECK: pipe.placement = #pipe.placement<looped, ranks = 4, chunks = 1>
dist.mesh @mesh ["pp"] = [4]
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  // BOTH: nn.exp {{.*}}pipe.stage = 0
  %0 = nn.exp %x : tensor<4xf32>
  // BOTH: nn.neg {{.*}}pipe.stage = 1
  %1 = nn.neg %0 {nn.layer = 0 : i64} : tensor<4xf32>
  // BOTH: nn.neg {{.*}}pipe.stage = 2
  %2 = nn.neg %1 {nn.layer = 1 : i64} : tensor<4xf32>
  // BOTH: nn.exp {{.*}}pipe.stage = 3
  %3 = nn.exp %2 : tensor<4xf32>
  return %3 : tensor<4xf32>
}
