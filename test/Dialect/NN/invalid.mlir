// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// matmul
//===----------------------------------------------------------------------===//

func.func @c1_dims(%x: tensor<2x8x4xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{spec "bh,hf->bf" gives the first operand 2 dimensions, but it has 3}}
  %0 = nn.matmul %x, %w "bh,hf->bf" : (tensor<2x8x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c1_result_dims(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{gives the result 0 dimensions, but it has 2}}
  %0 = nn.matmul %x, %w "bh,hf" : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c1_twice(%x: tensor<4x4xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{spec "hh,hf->hf" has 'h' twice in one tensor, or it is no letter}}
  %0 = nn.matmul %x, %w "hh,hf->hf" : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @c1_letter(%x: tensor<2x4xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{has 'B' twice in one tensor, or it is no letter}}
  %0 = nn.matmul %x, %w "Bh,hf->Bf" : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c2(%x: tensor<2x5xf32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{has extents 5 and 4 for 'h'}}
  %0 = nn.matmul %x, %w "bh,hf->bf" : (tensor<2x5xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c3(%x: tensor<2x4xf32>, %w: tensor<3x6xf32>) {
  // expected-error @+1 {{has 'h' in one tensor only}}
  %0 = nn.matmul %x, %w "bh,gf->bf" : (tensor<2x4xf32>, tensor<3x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// embedding, embedding_grad, pick, valid, iota
//===----------------------------------------------------------------------===//

func.func @c1_table(%t: tensor<16xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has table 'tensor<16xf32>', expected two dimensions}}
  %0 = nn.embedding %t, %ids : (tensor<16xf32>, tensor<2xi32>) -> tensor<2xf32>
  return
}

// -----

func.func @c1_rows(%t: tensor<16x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has rows 'tensor<2x5xf32>', expected the shape [2x4]}}
  %0 = nn.embedding %t, %ids : (tensor<16x4xf32>, tensor<2xi32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @c2_embedding_limit(%t: tensor<16x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has limit 7, expected 0, or a positive one with begin}}
  %0 = nn.embedding %t, %ids {limit = 7 : i64} : (tensor<16x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_grad(%g: tensor<2x4xf32>, %ids: tensor<3xi32>) {
  // expected-error @+1 {{has rows 'tensor<2x4xf32>', expected the shape [3x4]}}
  %0 = nn.embedding_grad %g, %ids : (tensor<2x4xf32>, tensor<3xi32>) -> tensor<16x4xf32>
  return
}

// -----

func.func @c2_grad(%g: tensor<2x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has limit -1, expected 0, or a positive one with begin}}
  %0 = nn.embedding_grad %g, %ids {begin = #nn.begin<"tp" * 8>, limit = -1 : i64} : (tensor<2x4xf32>, tensor<2xi32>) -> tensor<16x4xf32>
  return
}

// -----

// expected-error @+1 {{names no axis}}
func.func @c1_begin_empty() attributes {x = #nn.begin<>} {
  return
}

// -----

// expected-error @+1 {{begin names axis "tp" twice}}
func.func @c1_begin_twice() attributes {x = #nn.begin<"tp" * 8, "tp" * 4>} {
  return
}

// -----

// expected-error @+1 {{has stride 0 for axis "tp", expected at least 1}}
func.func @c1_begin_stride() attributes {x = #nn.begin<"tp" * 0>} {
  return
}

// -----

// expected-error @+1 {{is in a dimension of -7 elements}}
func.func @c2_begin_extent() attributes {x = #nn.begin<"tp" * 4 of -7>} {
  return
}

// -----

// expected-error @+1 {{has 3 chunks of 12 elements, expected an even number that divides them}}
func.func @c3_begin_odd() attributes {x = #nn.begin<"cp" * 4 of 12 zigzag 3>} {
  return
}

// -----

// expected-error @+1 {{has 4 chunks of 0 elements, expected an even number that divides them}}
func.func @c3_begin_extent() attributes {x = #nn.begin<zigzag 4>} {
  return
}

// -----

func.func @c1_reorder(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{reorders dimension 2 of a tensor of rank 2}}
  %0 = nn.reorder %x dim 2 zigzag 4 : tensor<2x8xf32>
  return
}

// -----

func.func @c2_reorder(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{has 6 chunks of 8 elements, expected an even number that divides them}}
  %0 = nn.reorder %x dim 1 zigzag 6 : tensor<2x8xf32>
  return
}

// -----

func.func @c2_embedding_zigzag(%t: tensor<8x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has #nn.begin<of 8 zigzag 4>, expected elements in their own order}}
  %0 = nn.embedding %t, %ids {begin = #nn.begin<of 8 zigzag 4>} : (tensor<8x4xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @c3_pick(%x: tensor<2x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has #nn.begin<of 4 zigzag 4>, expected elements in their own order}}
  %0 = nn.pick %x, %ids {begin = #nn.begin<of 4 zigzag 4>} : tensor<2x4xf32>, tensor<2xi32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c2_mask_padding(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has #nn.begin<"tp" * 4 of 8 zigzag 4>, expected elements in their own order}}
  %0 = nn.mask_padding %x dim 1 begin <"tp" * 4 of 8 zigzag 4> limit 7 by 0.0 : tensor<2x4xf32>
  return
}

// -----

func.func @c4_attention_zigzag(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x16x2x4xf32>) {
  // expected-error @+1 {{has 16 keys and queries in an order of 8}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 {begin = #nn.begin<of 8 zigzag 4>} : (tensor<2x8x2x3x4xf32>, tensor<2x16x2x4xf32>, tensor<2x16x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c4_attention_groups(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{has #nn.begin<of 2 zigzag 2>, expected elements in their own order}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 {group_begin = #nn.begin<of 2 zigzag 2>} : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c1_pick(%x: tensor<2x4xf32>, %ids: tensor<3xi32>) {
  // expected-error @+1 {{has input 'tensor<2x4xf32>', expected the shape [3x4]}}
  %0 = nn.pick %x, %ids : tensor<2x4xf32>, tensor<3xi32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_valid(%ids: tensor<2xi32>) {
  // expected-error @+1 {{has result 'tensor<3xf32>', expected the shape [2]}}
  %0 = nn.valid %ids ignore -100 : tensor<2xi32> -> tensor<3xf32>
  return
}

// -----

func.func @c1_iota() {
  // expected-error @+1 {{counts along dimension 2 of a tensor of rank 2}}
  %0 = nn.iota along 2 : tensor<2x4xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// attention, attention_grad, softmax_cross_entropy
//===----------------------------------------------------------------------===//

func.func @c1_query(%q: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{has query 'tensor<2x8x2x4xf32>', expected five dimensions}}
  %o, %l = nn.attention %q, %q, %q scale 0.5 : (tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x4xf32>, tensor<2x2x8xf32>)
  return
}

// -----

func.func @c1_key(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x3x4xf32>) {
  // expected-error @+1 {{has key 'tensor<2x8x3x4xf32>', expected the shape [2x8x2x4]}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x3x4xf32>, tensor<2x8x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c1_lse(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{has lse 'tensor<2x3x2x8xf32>', expected the shape [2x2x3x8]}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x3x2x8xf32>)
  return
}

// -----

func.func @c2_window(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{has window 0, less than 1}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 window 0 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c4_more_keys(%q: tensor<2x4x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{has 4 queries and 8 keys, expected as many, or begin}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>)
  return
}

// -----

func.func @c4_fewer_keys(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x4x2x4xf32>) {
  // expected-error @+1 {{has 8 queries and 4 keys, expected as many or more}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 {begin = #nn.begin<"cp" * 8>} : (tensor<2x8x2x3x4xf32>, tensor<2x4x2x4xf32>, tensor<2x4x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c4_grad(%q: tensor<2x4x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x4xf32>) {
  // expected-error @+1 {{has 4 queries and 8 keys, expected as many, or begin}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>, tensor<2x4x2x3x4xf32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c1_grad_result(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>) {
  // expected-error @+1 {{has value gradient 'tensor<2x8x2x5xf32>', expected the shape [2x8x2x4]}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x5xf32>)
  return
}

// -----

func.func @c1_grad_gradient(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>) {
  // expected-error @+1 {{has gradient 'tensor<2x8x2x4xf32>', expected the shape [2x8x2x3x4]}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %k scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c2_attention_sinks(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{has sinks 'tensor<6xf32>', expected the shape [2x3]}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 sinks %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<6xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c2_attention_grad_sinks(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>, %s: tensor<2x3xf32>) {
  // expected-error @+1 {{has sinks without a gradient}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 sinks %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x3xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c2_attention_grad_no_sinks(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>) {
  // expected-error @+1 {{has a gradient of sinks without sinks}}
  %0:4 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @c2_attention_grad_shape(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>, %s: tensor<2x3xf32>) {
  // expected-error @+1 {{has sinks gradient 'tensor<6xf32>', expected the shape [2x3]}}
  %0:4 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 sinks %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x3xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<6xf32>)
  return
}

// -----

func.func @c2_attention_grad_narrow(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>, %s: tensor<2x3xf32>) {
  // expected-error @+1 {{has result 'tensor<2x3xbf16>', expected elements of f32 or of 'tensor<2x3xf32>'}}
  %0:4 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 sinks %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x3xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x3xbf16>)
  return
}

// -----

func.func @c1_soft_cap(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{score has soft cap 0.000000e+00, expected a positive number}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 soft_cap 0.0 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c1_soft_cap_infinite(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{expected a positive number}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 soft_cap 0x7F800000 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

// expected-error @+1 {{score has numbers that are not f32}}
#wide = #nn.score<scale = 0.5 : f64>

// -----

func.func @c6_attention(%q: tensor<2x4x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %s: tensor<2x8xi32>) {
  // expected-error @+1 {{has starts 'tensor<2x8xi32>', expected the shape [2x4]}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 starts %s {begin = #nn.begin<"cp" * 4>} : (tensor<2x4x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8xi32>) -> (tensor<2x4x2x3x4xf32>, tensor<2x2x3x4xf32>)
  return
}

// -----

func.func @c6_grad(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{has starts 'tensor<2xi32>', expected the shape [2x8]}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 starts %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c7_attention(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %s: tensor<2x8xi32>) {
  // expected-error @+1 {{is bidirectional and has starts of documents, which only causal attention has}}
  %o, %l = nn.attention %q, %k, %k scale 0.5 bidirectional starts %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c7_attention_grad(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>, %s: tensor<2x8xi32>) {
  // expected-error @+1 {{is bidirectional and has starts of documents, which only causal attention has}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 bidirectional starts %s : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>, tensor<2x8xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c4_causal_mask_window(%x: tensor<2x8x8xf32>) {
  // expected-error @+1 {{is bidirectional without a window, which hides nothing}}
  %0 = nn.causal_mask %x bidirectional : tensor<2x8x8xf32>
  return
}

// -----

func.func @c4_causal_mask_starts(%x: tensor<2x8x8xf32>, %s: tensor<2x8xi32>) {
  // expected-error @+1 {{is bidirectional and has starts of documents}}
  %0 = nn.causal_mask %x window 2 bidirectional starts %s : tensor<2x8xi32> : tensor<2x8x8xf32>
  return
}

// -----

func.func @c3_causal_mask(%x: tensor<2x8x8xf32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{has starts 'tensor<2xi32>', expected the shape [2x8]}}
  %0 = nn.causal_mask %x starts %s : tensor<2xi32> : tensor<2x8x8xf32>
  return
}

// -----

func.func @c2_grad_window(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %l: tensor<2x2x3x8xf32>) {
  // expected-error @+1 {{has window -1, less than 1}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q scale 0.5 window -1 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x4xf32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>)
  return
}

// -----

func.func @c1_loss(%x: tensor<2x8x16xf32>, %t: tensor<2x7xi32>) {
  // expected-error @+1 {{has logits 'tensor<2x8x16xf32>' for targets 'tensor<2x7xi32>'}}
  %0:2 = nn.softmax_cross_entropy %x, %t ignore -100 : (tensor<2x8x16xf32>, tensor<2x7xi32>) -> (tensor<f32>, tensor<f32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// layer_norm, rms_norm, rope, rope_table, rotate_half, causal_mask
//===----------------------------------------------------------------------===//

func.func @c1_layer_norm(%x: tensor<2x4xf32>, %w: tensor<2xf32>) {
  // expected-error @+1 {{has weight 'tensor<2xf32>', expected the shape [4]}}
  %0:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @c1_mean(%x: tensor<2x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{has mean 'tensor<4xf32>', expected the shape [2]}}
  %0:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>, tensor<2xf32>)
  return
}

// -----

func.func @c2_layer_norm(%x: tensor<2x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{has epsilon 0.000000e+00, which is not positive}}
  %0:3 = nn.layer_norm %x, %w, %w epsilon 0.0 : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @c1_rms_norm(%x: tensor<2x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{has rstd 'tensor<4xf32>', expected the shape [2]}}
  %0:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @c2_rms_norm(%x: tensor<2x4xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{has epsilon -1.000000e+00, which is not positive}}
  %0:2 = nn.rms_norm %x, %w epsilon -1.0 : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>)
  return
}

// -----

func.func @c1_rope(%x: tensor<2x8x5xf32>) {
  // expected-error @+1 {{has input 'tensor<2x8x5xf32>', expected at least three dimensions, the last one even}}
  %0 = nn.rope %x theta 1.0e+04 : tensor<2x8x5xf32>
  return
}

// -----

func.func @c2_rope(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has theta 0.000000e+00, which is not positive}}
  %0 = nn.rope %x theta 0.0 : tensor<2x8x4xf32>
  return
}

// -----

func.func @c1_rope_table() {
  // expected-error @+1 {{has result 'tensor<8x5xf32>', expected two dimensions, the last one even}}
  %0 = nn.rope_table theta 1.0e+04 : tensor<8x5xf32>
  return
}

// -----

func.func @c2_rope_table() {
  // expected-error @+1 {{has theta -1.000000e+00, which is not positive}}
  %0 = nn.rope_table theta -1.0 : tensor<8x4xf32>
  return
}

// -----

func.func @rope_scaling_c3(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has scaling #nn.rope_scaling<factor = 0.000000e+00 : f64, low = 1.000000e+00 : f64, high = 4.000000e+00 : f64, original = 64>, expected positive numbers, low below high}}
  %0 = nn.rope %x theta 1.0e+04 scaling <factor = 0.0, low = 1.0, high = 4.0, original = 64> : tensor<2x8x4xf32>
  return
}

// -----

func.func @rope_table_scaling_c3() {
  // expected-error @+1 {{expected positive numbers, low below high}}
  %0 = nn.rope_table theta 1.0e+04 scaling <factor = 8.0, low = 4.0, high = 4.0, original = 64> : tensor<8x4xf32>
  return
}

// -----

func.func @c4_rope_factor(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has yarn #nn.yarn<factor = 0.000000e+00 : f64, first = 0.000000e+00 : f64, last = 1.000000e+00 : f64, amplitude = 1.000000e+00 : f64>, expected a positive factor and amplitude, first below last}}
  %0 = nn.rope %x theta 1.0e+04 yarn <factor = 0.0, first = 0.0, last = 1.0, amplitude = 1.0> : tensor<2x8x4xf32>
  return
}

// -----

func.func @c4_rope_amplitude(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{expected a positive factor and amplitude, first below last}}
  %0 = nn.rope %x theta 1.0e+04 yarn <factor = 4.0, first = 0.0, last = 1.0, amplitude = 0x7FF0000000000000 : f64> : tensor<2x8x4xf32>
  return
}

// -----

func.func @c4_rope_order(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{expected a positive factor and amplitude, first below last}}
  %0 = nn.rope %x theta 1.0e+04 yarn <factor = 4.0, first = 1.0, last = 1.0, amplitude = 1.0> : tensor<2x8x4xf32>
  return
}

// -----

func.func @c4_rope_both(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has both scaling and yarn}}
  %0 = nn.rope %x theta 1.0e+04 scaling <factor = 8.0, low = 1.0, high = 4.0, original = 64> yarn <factor = 4.0, first = 0.0, last = 1.0, amplitude = 1.0> : tensor<2x8x4xf32>
  return
}

// -----

func.func @c5_rope_more(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{rotates 6 of 4 elements, expected an even number, at least 2, at most all}}
  %0 = nn.rope %x theta 1.0e+04 rotated 6 : tensor<2x8x4xf32>
  return
}

// -----

func.func @c5_rope_odd(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{rotates 3 of 4 elements}}
  %0 = nn.rope %x theta 1.0e+04 rotated 3 : tensor<2x8x4xf32>
  return
}

// -----

func.func @c5_rope_table_none() {
  // expected-error @+1 {{rotates 0 of 4 elements}}
  %0 = nn.rope_table theta 1.0e+04 rotated 0 : tensor<8x4xf32>
  return
}

// -----

func.func @c4_rope_table() {
  // expected-error @+1 {{expected a positive factor and amplitude, first below last}}
  %0 = nn.rope_table theta 1.0e+04 yarn <factor = 4.0, first = 1.0, last = 0.0, amplitude = 1.0> : tensor<8x4xf32>
  return
}

// -----

func.func @c1_rotate_half(%x: tensor<2x5xf32>) {
  // expected-error @+1 {{has input 'tensor<2x5xf32>', expected an even last dimension}}
  %0 = nn.rotate_half %x : tensor<2x5xf32>
  return
}

// -----

func.func @c1_causal_mask(%x: tensor<5xf32>) {
  // expected-error @+1 {{has input 'tensor<5xf32>', expected at least two dimensions}}
  %0 = nn.causal_mask %x : tensor<5xf32>
  return
}

// -----

func.func @c2_causal_mask(%x: tensor<5x5xf32>) {
  // expected-error @+1 {{has window 0, less than 1}}
  %0 = nn.causal_mask %x window 0 : tensor<5x5xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// broadcast, reduce, mask_padding, types
//===----------------------------------------------------------------------===//

func.func @c1_broadcast_count(%x: tensor<4xf32>) {
  // expected-error @+1 {{lists 2 dimensions for an input of rank 1}}
  %0 = nn.broadcast %x dims [0, 1] : tensor<4xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_broadcast_order(%x: tensor<4x2xf32>) {
  // expected-error @+1 {{lists dimension 0 after 1 of a tensor of rank 2}}
  %0 = nn.broadcast %x dims [1, 0] : tensor<4x2xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_broadcast_twice(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{lists dimension 1 after 1 of a tensor of rank 3}}
  %0 = nn.broadcast %x dims [1, 1] : tensor<4x4xf32> -> tensor<2x4x3xf32>
  return
}

// -----

// What an op verifies of itself comes before its shardings, which are held against
// factors that follow from its attributes.
dist.mesh @mesh ["tp"] = [2]
func.func @c1_broadcast_split(%x: tensor<4xf32, #dist.sharding<@mesh, [{}]>>) {
  // expected-error @+1 {{lists dimension 2147483648 after -1 of a tensor of rank 2}}
  %0 = nn.broadcast %x dims [2147483648] : tensor<4xf32, #dist.sharding<@mesh, [{}]>> -> tensor<4x4xf32, #dist.sharding<@mesh, [{}, {}]>>
  return
}

// -----

func.func @c2_broadcast(%x: tensor<4xf32>) {
  // expected-error @+1 {{turns extent 4 into 5 along dimension 1}}
  %0 = nn.broadcast %x dims [1] : tensor<4xf32> -> tensor<2x5xf32>
  return
}

// -----

func.func @c1_reduce_none(%x: tensor<4xf32>) {
  // expected-error @+1 {{lists no dimension to reduce}}
  %0 = nn.reduce sum %x dims [] : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @c1_reduce_dim(%x: tensor<4xf32>) {
  // expected-error @+1 {{lists dimension 1 after -1 of a tensor of rank 1}}
  %0 = nn.reduce sum %x dims [1] : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @c2_reduce(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{has result 'tensor<2xf32>', expected the shape [4]}}
  %0 = nn.reduce max %x dims [0] : tensor<2x4xf32> -> tensor<2xf32>
  return
}

// -----

func.func @c3_mask_padding(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{keeps 0 elements of dimension 1, of which it keeps at least 1 and at most 2147483647}}
  %0 = nn.mask_padding %x dim 1 begin <"tp" * 4> limit 0 by 0.0 : tensor<2x4xf32>
  return
}

// -----

func.func @c3_mask_padding_large(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{keeps 2147483648 elements of dimension 1, of which it keeps at least 1 and at most 2147483647}}
  %0 = nn.mask_padding %x dim 1 begin <"tp" * 4> limit 2147483648 by 0.0 : tensor<2x4xf32>
  return
}

// -----

func.func @c1_mask_padding(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{masks dimension 2 of a tensor of rank 2}}
  %0 = nn.mask_padding %x dim 2 begin <"tp" * 4> limit 7 by 0.0 : tensor<2x4xf32>
  return
}

// -----

func.func @static(%x: tensor<?x4xf32>) {
  // expected-error @+1 {{must be statically shaped tensor}}
  %0 = nn.exp %x : tensor<?x4xf32>
  return
}

// -----

func.func @one_type(%x: tensor<2x4xf32>, %y: tensor<2x5xf32>) {
  // expected-note @-1 {{prior use here}}
  // expected-error @+1 {{expects different type than prior uses}}
  %0 = nn.add %x, %y : tensor<2x4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// parameter, read, write, accumulate, step_scalar, metric
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{expected a plain one}}
nn.parameter @c1 : tensor<4xf32, #dist.sharding<@mesh, [{"tp"}]>> init <mean = 0.0, std = 0.02>

// -----

// expected-error @+1 {{has type 'tensor<4x0xf32>', expected 1 to 17592186044416 elements}}
nn.parameter @c4_empty : tensor<4x0xf32> init <mean = 0.0, std = 0.02>

// -----

// Of 2^64 + 2^13 elements, which 64 bits would take for 2^13.
// expected-error @+1 {{expected 1 to 17592186044416 elements}}
nn.parameter @c4_overflow : tensor<64x288230376151711872xf32> init <mean = 0.0, std = 0.02>

// -----

// expected-error @+1 {{'nn.parameter' op starts as #nn.init<mean = 0.000000e+00 : f64, std = 1.000000e+300 : f64>, expected numbers in the range of fp32, std 0 or more}}
nn.parameter @c5_range : tensor<4xf32> init <mean = 0.0, std = 1.0e+300>

// -----

// expected-error @+1 {{expected numbers in the range of fp32, std 0 or more}}
nn.parameter @c5_nan : tensor<4xf32> init <mean = 0x7FF8000000000000 : f64, std = 0.02>

// -----

// expected-error @+1 {{expected numbers in the range of fp32, std 0 or more}}
nn.parameter @c5_negative : tensor<4xf32> init <mean = 0.0, std = -0.02>

// -----

// expected-error @+1 {{, expected one * at most, and a first dimension of up to 65536 with it}}
nn.parameter @c2_stars : tensor<4xf32> init<mean = 0.0, std = 0.02> file <name = "a.*.w.*", shape = [4], begin = [0], box = [4]>

// -----

// expected-error @+1 {{, expected one * at most, and a first dimension of up to 65536 with it}}
nn.parameter @c2_stacked : tensor<4xf32> init<mean = 0.0, std = 0.02> file <name = "a.*", shape = [65537], begin = [0], box = [4]>

// -----

// expected-error @+1 {{has 24 elements, but its file slice}}
nn.parameter @c2_size : tensor<4x6xf32> init <mean = 0.0, std = 0.02> file <name = "w", shape = [4, 6], begin = [0, 0], box = [4, 5]>

// -----

// expected-error @+1 {{does not fit}}
nn.parameter @c2_outside : tensor<4xf32> init <mean = 0.0, std = 0.02> file <name = "w", shape = [6], begin = [3], box = [4]>

// -----

// expected-error @+1 {{does not fit}}
nn.parameter @c2_overflow : tensor<4xf32> init <mean = 0.0, std = 0.02> file <name = "w", shape = [6], begin = [9223372036854775807], box = [4]>

// -----

dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{expected one of 2 dimensions, not partial}}
nn.parameter @c3_rank : tensor<4x6xf32> init <mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"tp"}]>

// -----

dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{expected one of 1 dimensions, not partial}}
nn.parameter @c3_partial : tensor<4xf32> init <mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}], partial = {"tp"}>

// -----

dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{which deals out a parameter}}
nn.parameter @c3_rounds : tensor<4xf32> init <mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{2, "tp"}]>

// -----

// expected-note @+1 {{the mesh}}
dist.mesh @mesh ["tp"] = [2]
// expected-error @+1 {{has a sharding over axis "dp", which the mesh does not have}}
nn.parameter @c3_axis : tensor<4xf32> init <mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"dp"}]>

// -----

func.func @c1_read() {
  // expected-error @+1 {{names @w, which has no value}}
  %0 = nn.read @w value : tensor<4xf32>
  return
}

// -----

nn.accumulator @loss_sum : tensor<f32>
func.func @c1_slot() {
  // expected-error @+1 {{names @loss_sum, which has no gradient}}
  %0 = nn.read @loss_sum gradient : tensor<f32>
  return
}

// -----

// expected-note @+1 {{declared here}}
nn.parameter @w : tensor<4xf32> init <mean = 0.0, std = 0.02>
func.func @c2_read() {
  // expected-error @+1 {{has type 'tensor<5xf32>', but the value of @w is 'tensor<4xf32>'}}
  %0 = nn.read @w value : tensor<5xf32>
  return
}

// -----

dist.mesh @mesh ["tp"] = [2]
// expected-note @+1 {{declared here}}
nn.parameter @w : tensor<4xf32> init <mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{"tp"}]>
func.func @c2_block(%0: tensor<2xf32>, %1: tensor<1xf32>) {
  nn.write %0 to @w value : tensor<2xf32>
  // expected-error @+1 {{has type 'tensor<1xf32>', but the value of @w is 'tensor<4xf32>'}}
  nn.write %1 to @w value : tensor<1xf32>
  return
}

// -----

func.func @c1_accumulate(%0: tensor<4xf32>) {
  // expected-error @+1 {{names @c1_accumulate, which has no gradient}}
  nn.accumulate %0 to @c1_accumulate gradient : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{has matrix array<i64: 0, 1>, expected some but not all of 2 dimensions, in ascending order}}
nn.parameter @c6_all : tensor<4x6xf32> init <mean = 0.0, std = 0.02> matrix [0, 1]

// -----

// expected-error @+1 {{has matrix array<i64: 1, 0>, expected some but not all of 3 dimensions, in ascending order}}
nn.parameter @c6_order : tensor<4x6x2xf32> init <mean = 0.0, std = 0.02> matrix [1, 0]

// -----

// expected-error @+1 {{has matrix array<i64: 2>, expected some but not all of 2 dimensions, in ascending order}}
nn.parameter @c6_beyond : tensor<4x6xf32> init <mean = 0.0, std = 0.02> matrix [2]

// -----

// expected-error @+1 {{has matrix array<i64>, expected some but not all of 2 dimensions, in ascending order}}
nn.parameter @c6_empty : tensor<4x6xf32> init <mean = 0.0, std = 0.02> matrix []

// -----

// expected-error @+1 {{has rate -1.000000e+00 : f64, expected 0 to 1,000,000}}
nn.parameter @c7_negative : tensor<4x6xf32> init <mean = 0.0, std = 0.02> rate -1.0

// -----

// expected-error @+1 {{has optimizer is "adam", expected adamw, sgd, lion, muon or muon-match-rms}}
nn.parameter @c9_unknown : tensor<4x6xf32> init <mean = 0.0, std = 0.02> optimizer "adam"

// -----

// expected-error @+1 {{has balance -1.000000e+00 : f64, expected 0 to 1,000,000}}
nn.parameter @c8_negative : tensor<4xf32> init <mean = 0.0, std = 0.0> balance -1.0

// -----

// expected-error @+1 {{has balance 0x7FF8000000000000 : f64, expected 0 to 1,000,000}}
nn.parameter @c8_no_number : tensor<4xf32> init <mean = 0.0, std = 0.0> balance 0x7FF8000000000000

// -----

// expected-error @+1 {{has balance 1.000000e-03 : f64 and a rule of the optimizer's, decay or matrix}}
nn.parameter @c8_decay : tensor<4xf32> init <mean = 0.0, std = 0.0> decay balance 0.001

// -----

// expected-error @+1 {{has balance 1.000000e-03 : f64 and a rule of the optimizer's, decay or matrix}}
nn.parameter @c8_matrix : tensor<4x6xf32> init <mean = 0.0, std = 0.0> balance 0.001 matrix [1]

// -----

// expected-error @+1 {{has rate 2.000000e+06 : f64, expected 0 to 1,000,000}}
nn.parameter @c7_large : tensor<4x6xf32> init <mean = 0.0, std = 0.02> rate 2000000.0

// -----

// expected-error @+1 {{has rate 0x7FF8000000000000 : f64, expected 0 to 1,000,000}}
nn.parameter @c7_no_number : tensor<4x6xf32> init <mean = 0.0, std = 0.02> rate 0x7FF8000000000000

// -----

func.func @c1_step_scalar() {
  // expected-error @+1 {{has name "Dampening", expected one of LearningRate, Beta1,}}
  %0 = nn.step_scalar "Dampening" : tensor<f32>
  return
}

// -----

func.func @c1_metric(%0: tensor<f32>) {
  // expected-error @+1 {{has name "Count", expected one of Loss, GradNorm, TokenCount}}
  nn.metric %0 "Count" : tensor<f32>
  return
}

// -----

// expected-note @+1 {{declared here}}
nn.parameter @w : tensor<4xf32> init <mean = 0.0, std = 0.02>
func.func @c2_compute() {
  // expected-error @+1 {{has type 'tensor<4xf32>', but the compute of @w is 'tensor<4xbf16>'}}
  %0 = nn.read @w compute : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{'type' failed to satisfy constraint}}
nn.parameter @w : tensor<4xbf16> init <mean = 0.0, std = 0.02>

// -----

func.func @c4_operands(%a: tensor<2x4xbf16>, %b: tensor<4x6xf32>) {
  // expected-error @+1 {{failed to verify that all of {lhs, rhs} have same element type}}
  %0 = nn.matmul %a, %b "ij,jk->ik" : (tensor<2x4xbf16>, tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @c4_result(%a: tensor<2x4xf32>, %b: tensor<4x6xf32>) {
  // expected-error @+1 {{has result 'tensor<2x6xbf16>', expected elements of f32 or of 'tensor<2x4xf32>'}}
  %0 = nn.matmul %a, %b "ij,jk->ik" : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xbf16>
  return
}

// -----

func.func @c3_embedding(%table: tensor<16x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{all of {table, result} have same element type}}
  %0 = nn.embedding %table, %ids : (tensor<16x4xf32>, tensor<2xi32>) -> tensor<2x4xbf16>
  return
}

// -----

func.func @c3_embedding_grad(%dy: tensor<2x4xf32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{has result 'tensor<16x4xbf16>', expected elements of f32}}
  %0 = nn.embedding_grad %dy, %ids : (tensor<2x4xf32>, tensor<2xi32>) -> tensor<16x4xbf16>
  return
}

// -----

func.func @c3_attention(%q: tensor<2x8x2x3x4xbf16>, %k: tensor<2x8x2x4xf32>) {
  // expected-error @+1 {{all of {query, key, value, out} have same element type}}
  %0:2 = nn.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x3x4xbf16>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x3x4xbf16>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @c3_layer_norm(%x: tensor<2x4xbf16>, %w: tensor<4xf32>) {
  // expected-error @+1 {{all of {input, weight, bias, out} have same element type}}
  %0:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : (tensor<2x4xbf16>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xbf16>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @statistics_layer_norm(%x: tensor<2x4xbf16>, %w: tensor<4xbf16>) {
  // expected-error @+1 {{result #1 must be statically shaped tensor of 32-bit float values}}
  %0:3 = nn.layer_norm %x, %w, %w epsilon 1.0e-05 : (tensor<2x4xbf16>, tensor<4xbf16>, tensor<4xbf16>) -> (tensor<2x4xbf16>, tensor<2xbf16>, tensor<2xbf16>)
  return
}

// -----

func.func @c3_rms_norm(%x: tensor<2x4xbf16>, %w: tensor<4xf32>) {
  // expected-error @+1 {{all of {input, weight, out} have same element type}}
  %0:2 = nn.rms_norm %x, %w epsilon 1.0e-05 : (tensor<2x4xbf16>, tensor<4xf32>) -> (tensor<2x4xbf16>, tensor<2xf32>)
  return
}

// -----

func.func @c3_broadcast(%x: tensor<4xbf16>) {
  // expected-error @+1 {{all of {input, result} have same element type}}
  %0 = nn.broadcast %x dims [1] : tensor<4xbf16> -> tensor<2x4xf32>
  return
}

// -----

func.func @c3_reduce(%x: tensor<2x4xbf16>) {
  // expected-error @+1 {{all of {input, result} have same element type}}
  %0 = nn.reduce sum %x dims [0] : tensor<2x4xbf16> -> tensor<4xf32>
  return
}

// -----

func.func @c3_pick(%x: tensor<2x4xbf16>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{all of {input, result} have same element type}}
  %0 = nn.pick %x, %ids : tensor<2x4xbf16>, tensor<2xi32> -> tensor<2x4xf32>
  return
}

// -----

func.func @c1_cast(%x: tensor<2x4xbf16>) {
  // expected-error @+1 {{the same shape}}
  %0 = nn.cast %x : tensor<2x4xbf16> -> tensor<4x2xf32>
  return
}

// -----

func.func @c1_equal(%x: tensor<2x4xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{all of {lhs, rhs} have same type}}
  %0 = "nn.equal"(%x, %y) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Shardings of parameters
//===----------------------------------------------------------------------===//

// One that is edited where the reads of the parameter are not.
dist.mesh @mesh ["tp"] = [2]
// expected-note @+1 {{declared here}}
nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02> sharding #dist.sharding<@mesh, [{}, {}]>
func.func @c3_read() {
  // expected-error @+1 {{'nn.read' op has type 'tensor<4x6xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>', but the sharding of @w is #dist.sharding<@mesh, [{}, {}]>}}
  %0 = nn.read @w value : tensor<4x6xf32, #dist.sharding<@mesh, [{}, {"tp"}]>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

func.func @dropout_of_a_scalar(%x: tensor<f32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has input 'tensor<f32>', expected a batch dimension}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 : tensor<f32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_has_other_keys(%x: tensor<2x4xf32>, %k: tensor<4xi32>) {
  // expected-error @+1 {{has dropout keys 'tensor<4xi32>', expected one for each of 2 sequences}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 : tensor<2x4xf32>, tensor<4xi32>
  return
}

// -----

func.func @dropout_has_keys_of_two_dimensions(%x: tensor<2x4xf32>, %k: tensor<2x4xi32>) {
  // expected-error @+1 {{has dropout keys 'tensor<2x4xi32>', expected one for each of 2 sequences}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 : tensor<2x4xf32>, tensor<2x4xi32>
  return
}

// -----

func.func @dropout_of_all(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has probability 1.000000e+00, expected at least 0 and below 1}}
  %0 = nn.dropout %x, %k probability 1.0 site 0 : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_of_less_than_none(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has probability -1.000000e-01, expected at least 0 and below 1}}
  %0 = nn.dropout %x, %k probability -0.1 site 0 : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_of_nan(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has probability nan, expected at least 0 and below 1}}
  %0 = nn.dropout %x, %k probability 0x7FF8000000000000 site 0 : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_at_a_negative_site(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has site -1, expected at least 0 and below 2^31}}
  %0 = nn.dropout %x, %k probability 0.1 site -1 : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_at_a_large_site(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has site 2147483648, expected at least 0 and below 2^31}}
  %0 = nn.dropout %x, %k probability 0.1 site 2147483648 : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_has_too_few_begin(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has begins [unit], expected unit, then #nn.begin or unit for each further one of 2 dimensions}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 {begins = [unit]} : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_has_a_first_begin(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has begins [#nn.begin<"dp" * 1>, unit], expected unit, then #nn.begin or unit for each further one of 2 dimensions}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 {begins = [#nn.begin<"dp" * 1>, unit]} : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @dropout_has_a_number_begin(%x: tensor<2x4xf32>, %k: tensor<2xi32>) {
  // expected-error @+1 {{has begins [unit, 4], expected unit, then}}
  %0 = nn.dropout %x, %k probability 0.1 site 0 {begins = [unit, 4]} : tensor<2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @attention_drops_without_a_site(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %keys: tensor<2xi32>) {
  // expected-error @+1 {{has one of dropout's keys, probability and site, expected all or none}}
  %0, %1 = "nn.attention"(%q, %k, %k, %keys) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1>, score = #nn.score<scale = 0.5 : f32>, probability = 0.1 : f64} : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

func.func @attention_drops_all(%q: tensor<2x8x2x3x4xf32>, %k: tensor<2x8x2x4xf32>, %keys: tensor<2xi32>) {
  // expected-error @+1 {{has probability 1.000000e+00, expected at least 0 and below 1}}
  %0, %1 = nn.attention %q, %k, %k scale 0.5 dropout %keys probability 1.0 site 0 : (tensor<2x8x2x3x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2xi32>) -> (tensor<2x8x2x3x4xf32>, tensor<2x2x3x8xf32>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

func.func @layer_is_a_string(%x: tensor<4xf32>) {
  // expected-error @+1 {{has nn.layer = "a", expected the index of a layer, an i64 of at least 0}}
  %0 = nn.exp %x {nn.layer = "a"} : tensor<4xf32>
  return
}

// -----

func.func @layer_is_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{has nn.layer = -1 : i64, expected the index of a layer, an i64 of at least 0}}
  %0 = nn.exp %x {nn.layer = -1 : i64} : tensor<4xf32>
  return
}

// -----

func.func @block_is_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{has nn.block = -1 : i64, expected the index of a layer, an i64 of at least 0}}
  %0 = nn.exp %x {nn.block = -1 : i64} : tensor<4xf32>
  return
}

// -----

func.func @backward_has_a_value(%x: tensor<4xf32>) {
  // expected-error @+1 {{has attribute "nn.backward" = 1 : i64, expected nn.layer = i or nn.backward}}
  %0 = nn.exp %x {nn.backward = 1 : i64} : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{has attribute "nn.unsaved" = 1 : i64, expected nn.layer = i or nn.backward}}
nn.parameter @w : tensor<4xf32> init <mean = 0.0, std = 1.0> {nn.unsaved = 1 : i64}

// -----

func.func @unknown(%x: tensor<4xf32>) {
  // expected-error @+1 {{has attribute "nn.layers" = 0 : i64, expected nn.layer = i or nn.backward}}
  %0 = nn.exp %x {nn.layers = 0 : i64} : tensor<4xf32>
  return
}

// -----

func.func @c1_pick_scalar(%x: tensor<f32>, %ids: tensor<2xi32>) {
  // expected-error @+1 {{'nn.pick' op has input of rank 0, expected at least 1}}
  %0 = nn.pick %x, %ids : tensor<f32>, tensor<2xi32> -> tensor<f32>
  return
}

// -----

func.func @c1_layer_norm_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{'nn.layer_norm' op has input of rank 0, expected at least 1}}
  %0:3 = nn.layer_norm %x, %x, %x epsilon 1.0e-05 : (tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @c1_rms_norm_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{'nn.rms_norm' op has input of rank 0, expected at least 1}}
  %0:2 = nn.rms_norm %x, %x epsilon 1.0e-05 : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  return
}
