// What ids are made of is looked at once, however often it is used: of sixty
// doublings a walk along all paths would have 2^60.

// RUN: plaitc %s --mesh 1 --global-batch 2 --micro-batch 2 --seq 4 \
// RUN:   --compile-to partition -o %t.mlir 2>/dev/null
// RUN: %python -c "import sys; text = open(sys.argv[1]).read(); \
// RUN:   iota, rest = text.split('tensor<2x4xi32>\n    %%2 = nn.embedding %%0, %%1', 1); \
// RUN:   ids = ['%%1'] + ['%%a' + str(i) for i in range(60)]; \
// RUN:   chain = ''.join('%%s = arith.maxsi %%s, %%s : tensor<2x4xi32>\n' %% (b, a, a) for a, b in zip(ids, ids[1:])); \
// RUN:   print(iota + 'tensor<2x4xi32>\n' + chain + '%%2 = nn.embedding %%0, ' + ids[-1] + rest)" %t.mlir > %t.edited.mlir
// RUN: timeout 60 plaitc %t.edited.mlir --compile-to schedule -o - | FileCheck %s
// CHECK-COUNT-60: arith.maxsi
// CHECK: nn.embedding

module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64}} {
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %positions = nn.iota along 1 : tensor<2x4xi32>
    %e = nn.read @embed value : tensor<16x8xf32>
    %x = nn.embedding %e, %positions : (tensor<16x8xf32>, tensor<2x4xi32>) -> tensor<2x4x8xf32>
    %logits = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
    %s, %n = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %s, %n : tensor<f32>, tensor<f32>
  }
}
