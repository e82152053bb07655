// RUN: rm -rf %t && plaitc %s --mesh cp=2,tp=2 --no-plan --global-batch 2 --micro-batch 2 --seq 4 --no-reference --dump-phases-to %t -o %t.plan
// RUN: plait-plan show %t.plan | FileCheck %s --check-prefix=PROVEN
// PROVEN: proven

// RUN: plaitc %s --mesh 1 --global-batch 2 --micro-batch 2 --seq 4 --backend cuda --target sm_90 --precision bf16 --no-reference -o %t/gpu.plan 2>&1 | FileCheck %s --check-prefix=UNFUSED
// UNFUSED: note: attention is unfused, because it has a window on both sides of a query

// What a query does not see after it is another function, with a window and without.
// RUN: sed 's/ window 2 bidirectional/ window 2/' %t/5-partition.mlir > %t/near.mlir
// RUN: not plait-opt --plait-prove-meaning=claim=%t/0-import.mlir %t/near.mlir -o /dev/null 2>&1 | FileCheck %s
// RUN: sed 's/\(nn.attention.* scale [^ ]*\) bidirectional/\1/' %t/5-partition.mlir > %t/all.mlir
// RUN: not plait-opt --plait-prove-meaning=claim=%t/0-import.mlir %t/all.mlir -o /dev/null 2>&1 | FileCheck %s
// CHECK: error: '{{[a-z._]+}}' op computes something else than the model asks for

module attributes {plait.model = {layers = 3 : i64, model_type = "m", name = "M", vocab = 16 : i64}} {
  nn.parameter @embed.weight : tensor<16x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "embed.weight", shape = [16, 8], begin = [0, 0], box = [16, 8]>
  nn.parameter @all.weight.0 : tensor<2x1x4x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "all.weight", shape = [24, 8], begin = [0, 0], box = [8, 8]>
  nn.parameter @all.weight.8 : tensor<2x4x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "all.weight", shape = [24, 8], begin = [8, 0], box = [8, 8]>
  nn.parameter @all.weight.16 : tensor<2x4x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "all.weight", shape = [24, 8], begin = [16, 0], box = [8, 8]>
  nn.parameter @near.weight : tensor<24x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "near.weight", shape = [24, 8], begin = [0, 0], box = [24, 8]>
  nn.parameter @constant.0 : tensor<24x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "constant.0", shape = [24, 8], begin = [0, 0], box = [24, 8]>
  nn.parameter @constant.1 : tensor<24x2x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "constant.1", shape = [24, 8], begin = [0, 0], box = [24, 8]>
  nn.parameter @constant.2 : tensor<24x2x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "constant.2", shape = [24, 8], begin = [0, 0], box = [24, 8]>
  nn.parameter @head.weight : tensor<16x2x1x4xf32> init<mean = 0.0, std = 0.5> decay file<name = "head.weight", shape = [16, 8], begin = [0, 0], box = [16, 8]>
  func.func @loss(%tokens: tensor<2x4xi32>, %targets: tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>) {
    %embed_weight = nn.read @embed.weight value : tensor<16x2x1x4xf32>
    %embed_ones = nn.fill 1.0 : tensor<2x4x16xf32>
    %embed_picked = nn.pick %embed_ones, %tokens : tensor<2x4x16xf32>, tensor<2x4xi32> -> tensor<2x4x16xf32>
    %embed = nn.matmul %embed_picked, %embed_weight "abz,zcde->abcde" : (tensor<2x4x16xf32>, tensor<16x2x1x4xf32>) -> tensor<2x4x2x1x4xf32>
    %l0_all_0 = nn.read @all.weight.0 value : tensor<2x1x4x2x1x4xf32>
    %l0_all = nn.matmul %embed, %l0_all_0 "abfgh,cdefgh->abcde" : (tensor<2x4x2x1x4xf32>, tensor<2x1x4x2x1x4xf32>) -> tensor<2x4x2x1x4xf32>
    %l0_all_8 = nn.read @all.weight.8 value : tensor<2x4x2x1x4xf32>
    %l0_all_2 = nn.matmul %embed, %l0_all_8 "abefg,cdefg->abcd" : (tensor<2x4x2x1x4xf32>, tensor<2x4x2x1x4xf32>) -> tensor<2x4x2x4xf32>
    %l0_all_16 = nn.read @all.weight.16 value : tensor<2x4x2x1x4xf32>
    %l0_all_3 = nn.matmul %embed, %l0_all_16 "abefg,cdefg->abcd" : (tensor<2x4x2x1x4xf32>, tensor<2x4x2x1x4xf32>) -> tensor<2x4x2x4xf32>
    %l0_attention, %l0_attention_lse = nn.attention %l0_all, %l0_all_2, %l0_all_3 scale 0.5 bidirectional : (tensor<2x4x2x1x4xf32>, tensor<2x4x2x4xf32>, tensor<2x4x2x4xf32>) -> (tensor<2x4x2x1x4xf32>, tensor<2x2x1x4xf32>)
    %l0_add_one = nn.fill 1.0 : tensor<f32>
    %l0_add_turned = nn.matmul %embed, %l0_add_one "abcde,->acdbe" : (tensor<2x4x2x1x4xf32>, tensor<f32>) -> tensor<2x2x1x4x4xf32>
    %l0_add_one_2 = nn.fill 1.0 : tensor<f32>
    %l0_add_turned_2 = nn.matmul %l0_attention, %l0_add_one_2 "abcde,->acdbe" : (tensor<2x4x2x1x4xf32>, tensor<f32>) -> tensor<2x2x1x4x4xf32>
    %l0_add = nn.add %l0_add_turned, %l0_add_turned_2 : tensor<2x2x1x4x4xf32>
    %l1_near_weight = nn.read @near.weight value : tensor<24x2x1x4xf32>
    %l1_near = nn.matmul %l0_add, %l1_near_weight "adebf,cdef->abc" : (tensor<2x2x1x4x4xf32>, tensor<24x2x1x4xf32>) -> tensor<2x4x24xf32>
    %l1_read_0 = nn.read @constant.0 value : tensor<24x2x1x4xf32>
    %l1_stop_gradient = nn.stop_gradient %l1_read_0 : tensor<24x2x1x4xf32>
    %l1_contract = nn.matmul %l1_near, %l1_stop_gradient "abf,fcde->abcde" : (tensor<2x4x24xf32>, tensor<24x2x1x4xf32>) -> tensor<2x4x2x1x4xf32>
    %l1_read_1 = nn.read @constant.1 value : tensor<24x2x4xf32>
    %l1_stop_gradient_2 = nn.stop_gradient %l1_read_1 : tensor<24x2x4xf32>
    %l1_contract_2 = nn.matmul %l1_near, %l1_stop_gradient_2 "abe,ecd->abcd" : (tensor<2x4x24xf32>, tensor<24x2x4xf32>) -> tensor<2x4x2x4xf32>
    %l1_read_2 = nn.read @constant.2 value : tensor<24x2x4xf32>
    %l1_stop_gradient_3 = nn.stop_gradient %l1_read_2 : tensor<24x2x4xf32>
    %l1_contract_3 = nn.matmul %l1_near, %l1_stop_gradient_3 "abe,ecd->abcd" : (tensor<2x4x24xf32>, tensor<24x2x4xf32>) -> tensor<2x4x2x4xf32>
    %l1_attention, %l1_attention_lse = nn.attention %l1_contract, %l1_contract_2, %l1_contract_3 scale 0.5 window 2 bidirectional : (tensor<2x4x2x1x4xf32>, tensor<2x4x2x4xf32>, tensor<2x4x2x4xf32>) -> (tensor<2x4x2x1x4xf32>, tensor<2x2x1x4xf32>)
    %l1_add_one = nn.fill 1.0 : tensor<f32>
    %l1_add_turned = nn.matmul %l1_attention, %l1_add_one "abcde,->acdbe" : (tensor<2x4x2x1x4xf32>, tensor<f32>) -> tensor<2x2x1x4x4xf32>
    %l1_add = nn.add %l0_add, %l1_add_turned : tensor<2x2x1x4x4xf32>
    %l2_head_weight = nn.read @head.weight value {nn.layer = 2} : tensor<16x2x1x4xf32>
    %l2_head = nn.matmul %l1_add, %l2_head_weight "adebf,cdef->abc" {nn.layer = 2} : (tensor<2x2x1x4x4xf32>, tensor<16x2x1x4xf32>) -> tensor<2x4x16xf32>
    %l2_head_sum, %l2_head_count = nn.softmax_cross_entropy %l2_head, %targets ignore -100 {nn.layer = 2} : (tensor<2x4x16xf32>, tensor<2x4xi32>) -> (tensor<f32>, tensor<f32>)
    return %l2_head_sum, %l2_head_count : tensor<f32>, tensor<f32>
  }
}
