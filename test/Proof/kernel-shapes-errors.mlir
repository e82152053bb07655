// RUN: plait-opt %s -split-input-file -verify-diagnostics --plait-check-kernels

// Clusters that no pass forms, and that no kernel computes.

func.func @two_places(%x: tensor<8xf32>) -> tensor<8x8xf32> {
  // expected-error @+1 {{'plan.cluster' op uses dimension 1 of a tensor as two at once, which no kernel does}}
  %0 = plan.cluster(%x) : (tensor<8xf32>) -> tensor<8x8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %1 = nn.sigmoid %a : tensor<8xf32>
    %2 = nn.broadcast %1 dims [0] : tensor<8xf32> -> tensor<8x8xf32>
    %3 = nn.broadcast %1 dims [1] : tensor<8xf32> -> tensor<8x8xf32>
    %4 = nn.add %2, %3 : tensor<8x8xf32>
    plan.yield %4 : tensor<8x8xf32>
  }
  return %0 : tensor<8x8xf32>
}

// -----

func.func @unrelated(%x: tensor<4x8xf32>, %y: tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<3x8xf32>) {
  // expected-error @+1 {{'plan.cluster' op holds 'tensor<3x8xf32>', which does not fit the loops over its largest tensor}}
  %0:2 = plan.cluster(%x, %y) : (tensor<4x8xf32>, tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<3x8xf32>) {
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<3x8xf32>):
    %1 = nn.sigmoid %a : tensor<4x8xf32>
    %2 = nn.sigmoid %b : tensor<3x8xf32>
    plan.yield %1, %2 : tensor<4x8xf32>, tensor<3x8xf32>
  }
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<3x8xf32>
}

// -----

func.func @middle(%x: tensor<4x8x16xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %0:2 = plan.cluster(%x) : (tensor<4x8x16xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4x8x16xf32>):
    %1 = nn.reduce sum %a dims [2] : tensor<4x8x16xf32> -> tensor<4x8xf32>
    // expected-error @+1 {{'nn.reduce' op reduces dimensions that no kernel of its cluster's largest tensor loops over innermost}}
    %2 = nn.reduce sum %a dims [1, 2] : tensor<4x8x16xf32> -> tensor<4xf32>
    plan.yield %1, %2 : tensor<4x8xf32>, tensor<4xf32>
  }
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4xf32>
}

// -----

func.func @columns(%x: tensor<4x8x16xf32>) -> (tensor<4x16xf32>, tensor<8x16xf32>) {
  %0:2 = plan.cluster(%x) : (tensor<4x8x16xf32>) -> (tensor<4x16xf32>, tensor<8x16xf32>) {
  ^bb0(%a: tensor<4x8x16xf32>):
    %1 = nn.reduce sum %a dims [1] : tensor<4x8x16xf32> -> tensor<4x16xf32>
    // expected-error @+1 {{'nn.reduce' op reduces other dimensions than another op of its cluster, which no kernel does}}
    %2 = nn.reduce sum %a dims [0] : tensor<4x8x16xf32> -> tensor<8x16xf32>
    plan.yield %1, %2 : tensor<4x16xf32>, tensor<8x16xf32>
  }
  return %0#0, %0#1 : tensor<4x16xf32>, tensor<8x16xf32>
}

// -----

func.func @scatter_and_more(%x: tensor<8x4xf32>, %ids: tensor<8xi32>) -> (tensor<16x4xf32>, tensor<8x4xf32>) {
  %0:2 = plan.cluster(%x, %ids) : (tensor<8x4xf32>, tensor<8xi32>) -> (tensor<16x4xf32>, tensor<8x4xf32>) {
  ^bb0(%a: tensor<8x4xf32>, %b: tensor<8xi32>):
    %1 = nn.sigmoid %a : tensor<8x4xf32>
    // expected-error @+1 {{'nn.embedding_grad' op shares its cluster with other results, which no kernel computes}}
    %2 = nn.embedding_grad %1, %b : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<16x4xf32>
    plan.yield %2, %1 : tensor<16x4xf32>, tensor<8x4xf32>
  }
  return %0#0, %0#1 : tensor<16x4xf32>, tensor<8x4xf32>
}

// -----

func.func @scatter_to_two(%x: tensor<8x4xf32>, %ids: tensor<8xi32>, %t: tensor<16x4xf32>) -> tensor<16x4xf32> {
  %0 = plan.cluster(%x, %ids, %t) accumulate [1] : (tensor<8x4xf32>, tensor<8xi32>, tensor<16x4xf32>) -> tensor<16x4xf32> {
  ^bb0(%a: tensor<8x4xf32>, %b: tensor<8xi32>, %c: tensor<16x4xf32>):
    // expected-error @+1 {{'nn.embedding_grad' op adds to a table, and that to what is there, which no kernel does}}
    %1 = nn.embedding_grad %a, %b : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<16x4xf32>
    %2 = nn.add %c, %1 : tensor<16x4xf32>
    plan.yield %2 : tensor<16x4xf32>
  }
  return %0 : tensor<16x4xf32>
}

// -----

func.func @scatter_of_sums(%x: tensor<8x4x2xf32>, %ids: tensor<8xi32>) -> tensor<16x4xf32> {
  %0 = plan.cluster(%x, %ids) : (tensor<8x4x2xf32>, tensor<8xi32>) -> tensor<16x4xf32> {
  ^bb0(%a: tensor<8x4x2xf32>, %b: tensor<8xi32>):
    %1 = nn.reduce sum %a dims [2] : tensor<8x4x2xf32> -> tensor<8x4xf32>
    // expected-error @+1 {{'nn.embedding_grad' op scatters a tensor that is not its cluster's largest, which no kernel computes}}
    %2 = nn.embedding_grad %1, %b : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<16x4xf32>
    plan.yield %2 : tensor<16x4xf32>
  }
  return %0 : tensor<16x4xf32>
}

// -----

func.func @scatter_and_sum(%x: tensor<8x4xf32>, %ids: tensor<8xi32>) -> tensor<16x4xf32> {
  %0 = plan.cluster(%x, %ids) : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<16x4xf32> {
  ^bb0(%a: tensor<8x4xf32>, %b: tensor<8xi32>):
    // expected-error @+1 {{'nn.reduce' op shares a cluster with a scattering op}}
    %1 = nn.reduce sum %a dims [1] : tensor<8x4xf32> -> tensor<8xf32>
    %2 = nn.broadcast %1 dims [0] : tensor<8xf32> -> tensor<8x4xf32>
    %3 = nn.embedding_grad %2, %b : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<16x4xf32>
    plan.yield %3 : tensor<16x4xf32>
  }
  return %0 : tensor<16x4xf32>
}

// -----

func.func @nothing() {
  // expected-error @+1 {{'plan.cluster' op holds nothing to compute}}
  plan.cluster() : () -> () {
    plan.yield
  }
  return
}

// -----

!many = tensor<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>
func.func @many_dimensions(%x: !many, %keys: tensor<1xi32>) -> !many {
  // expected-error @+1 {{'plan.cluster' op has more than 63 dimensions}}
  %0 = plan.cluster(%x, %keys) : (!many, tensor<1xi32>) -> !many {
  ^bb0(%a: !many, %b: tensor<1xi32>):
    %1 = nn.dropout %a, %b probability 0.1 site 0 : !many, tensor<1xi32>
    plan.yield %1 : !many
  }
  return %0 : !many
}

// -----

// An op that emits rows has a kernel of its own.
func.func @rows_and_more(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %0 = plan.cluster(%x) : (tensor<4x32xf32>) -> tensor<4x32xf32> {
  ^bb0(%a: tensor<4x32xf32>):
    %1 = nn.sigmoid %a : tensor<4x32xf32>
    // expected-error @+1 {{'nn.keep_top' op shares its cluster with other ops, or adds to what is there, which no kernel does}}
    %2 = nn.keep_top %1 keep 3 block 32 : tensor<4x32xf32>
    plan.yield %2 : tensor<4x32xf32>
  }
  return %0 : tensor<4x32xf32>
}
