// RUN: plait-opt %s --nn-assign-matrices | FileCheck %s
// RUN: plait-opt %s --plait-configure=optimizer=muon --nn-assign-matrices | FileCheck %s --check-prefix=MUON

// Matrices of a group are said, whatever updates the rest, and those of a group that
// is updated by elements are not.
// CHECK: nn.parameter @own {{.*}} optimizer "muon" matrix [0]
// CHECK: nn.parameter @other {{.*}}> decay{{$}}
// CHECK: nn.parameter @elements {{.*}} optimizer "lion"{{$}}
// MUON: nn.parameter @own {{.*}} optimizer "muon" matrix [0]
// MUON: nn.parameter @other {{.*}}> decay matrix [0]
// MUON: nn.parameter @elements {{.*}} optimizer "lion"{{$}}
nn.parameter @own : tensor<8x8xf32> init<mean = 0.0, std = 0.02> decay optimizer "muon"
nn.parameter @other : tensor<8x8xf32> init<mean = 0.0, std = 0.02> decay
nn.parameter @elements : tensor<8x8xf32> init<mean = 0.0, std = 0.02> decay optimizer "lion"
// Nothing updates what is frozen.
// CHECK: nn.parameter @frozen {{.*}} optimizer "muon"{{$}}
nn.parameter @frozen : tensor<8xf32> init<mean = 0.0, std = 0.02> optimizer "muon"
func.func @loss(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %own = nn.read @own value : tensor<8x8xf32>
  %a = nn.matmul %x, %own "bi,ij->bj" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %other = nn.read @other value : tensor<8x8xf32>
  %b = nn.matmul %a, %other "bi,ij->bj" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %elements = nn.read @elements value : tensor<8x8xf32>
  %c = nn.matmul %b, %elements "bi,ij->bj" : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %frozen = nn.read @frozen value : tensor<8xf32>
  %kept = nn.stop_gradient %frozen : tensor<8xf32>
  %row = nn.broadcast %kept dims [1] : tensor<8xf32> -> tensor<4x8xf32>
  %d = nn.add %c, %row : tensor<4x8xf32>
  return %d : tensor<4x8xf32>
}
