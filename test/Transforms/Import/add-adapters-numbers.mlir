// RUN: not plait-opt %s --nn-add-adapters=rank=0 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not plait-opt %s '--nn-add-adapters=rank=2 alpha=-1' 2>&1 | FileCheck %s --check-prefix=ALPHA
// RUN: not plait-opt %s --nn-add-adapters=rank=2 2>&1 | FileCheck %s --check-prefix=BLOCKS

// RANK: error: `lora` is 0, expected 1 to 65536
// ALPHA: error: `lora-alpha` is -1.000000e+00, expected more than 0, up to 1.000000e+06
// BLOCKS: error: no linear layer is in a block of the model: `lora-targets` has to name some; there are: up
nn.parameter @up.weight : tensor<8x8xf32> init<mean = 0.0, std = 0.02>
func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %w = nn.read @up.weight value : tensor<8x8xf32>
  %0 = nn.matmul %x, %w "sh,fh->sf" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
