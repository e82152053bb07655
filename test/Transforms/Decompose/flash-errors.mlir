// What no library of GPUs computes in one step is refused where flash attention is
// asked for.
// RUN: not plait-opt %s --nn-decompose 2>&1 | FileCheck %s
// CHECK: error: 'nn.attention' op is not computed by flash attention: it has a window on both sides of a query

module attributes {plait.configuration = #plait.configuration<attention = flash>, plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  func.func @loss(%q: tensor<2x8x2x1x8xbf16>, %k: tensor<2x8x2x8xbf16>, %v: tensor<2x8x2x8xbf16>) -> tensor<2x8x2x1x8xbf16> {
    %out, %lse = nn.attention %q, %k, %v scale 0.5 window 2 bidirectional : (tensor<2x8x2x1x8xbf16>, tensor<2x8x2x8xbf16>, tensor<2x8x2x8xbf16>) -> (tensor<2x8x2x1x8xbf16>, tensor<2x2x1x8xf32>)
    return %out : tensor<2x8x2x1x8xbf16>
  }
}
