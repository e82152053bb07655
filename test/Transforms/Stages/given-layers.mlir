// RUN: plait-opt %s --plait-configure=layers=1,2 --pipe-assign-stages | FileCheck %s
// RUN: not plait-opt %s --plait-configure=layers=1,1,1 --pipe-assign-stages 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not plait-opt %s --plait-configure=layers=1,1 --pipe-assign-stages 2>&1 | FileCheck %s --check-prefix=SUM
// RUN: not plait-opt %s --plait-configure=layers=0,3 --pipe-assign-stages 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not plait-opt %s --plait-configure=layers=4,1 --pipe-assign-stages 2>&1 | FileCheck %s --check-prefix=MANY

// By cost the first stage would have two of the three.
dist.mesh @mesh ["pp"] = [2]
// COUNT: error: @loss is cut into 2 stages, but layers are given for 3
// SUM: error: @loss has 3 layers, but 2 are given
// ZERO: error: @loss gets a stage of 0 layers, expected 1 to 3
// MANY: error: @loss gets a stage of 4 layers, expected 1 to 3
func.func @loss(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.neg {{.*}}pipe.stage = 0
  %0 = nn.neg %x {nn.layer = 0 : i64} : tensor<4xf32>
  // CHECK: nn.neg {{.*}}pipe.stage = 1
  %1 = nn.neg %0 {nn.layer = 1 : i64} : tensor<4xf32>
  // CHECK: nn.neg {{.*}}pipe.stage = 1
  %2 = nn.neg %1 {nn.layer = 2 : i64} : tensor<4xf32>
  return %2 : tensor<4xf32>
}
