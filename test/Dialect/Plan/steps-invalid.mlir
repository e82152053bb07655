// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// memory
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{memory of 4 bytes begins at byte -4, expected numbers of 0 to below 281474976710656}}
  plan.gemm m 1 n 1 k 1 of f32 a <slot 0, -4, 4> strides [1, 1] b <slot 0, 0, 4> strides [1, 1] c <slot 1, 0, 4> strides [1] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{memory is in slot -1, expected 0 or more, or a buffer}}
  plan.gemm m 1 n 1 k 1 of f32 a <slot -1, 0, 4> strides [1, 1] b <slot 0, 0, 4> strides [1, 1] c <slot 1, 0, 4> strides [1] of f32
}

// -----

//===----------------------------------------------------------------------===//
// function
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has C up to byte 96 of slot 0, which has 64}}
  plan.gemm m 6 n 4 k 3 of f32 a <slot 1, 0, 72> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 96> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has C in slot 2, but its function has 2}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 2, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is neither a step nor a constant, but in @f}}
  %0 = nn.fill 1.0 : tensor<4xf32>
}

// -----

//===----------------------------------------------------------------------===//
// constant
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{expected one op that knows numbers, and its result}}
  plan.constant <@t, 0, 16> {
    %0 = nn.fill 1.0 : tensor<4xf32>
    plan.yield %0 : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is in #plan.memory<@t, 0, 64>, expected 128 bytes of a buffer}}
  plan.constant <@t, 0, 64> {
    %0 = nn.rope_table theta 1.0e+04 : tensor<8x4xf32>
    plan.yield %0 : tensor<8x4xf32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// kernel
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{expected one plan.cluster of the arguments, and its results}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 {
  ^bb0(%x: tensor<4xf32>):
    plan.yield %x : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 0 inputs, expected 1}}
  plan.kernel [] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has an input of 32 bytes, expected 16, those of 'tensor<4xf32>'}}
  plan.kernel [#plan.memory<slot 0, 0, 32>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{as plan.sorted, expected an i64 for each of 1 inputs: 0, or of i32 one below 2147483647}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 attributes {plan.sorted = array<i64: 0, 0>} {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{as plan.sorted, expected an i64 for each of 1 inputs: 0, or of i32 one below 2147483647}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 attributes {plan.sorted = array<i64: 12>} {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{as plan.pitch, expected an i64 for each of 1 inputs: 0, or the extent of its rows and up to 128 more}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 attributes {plan.pitch = array<i64: 0, 0>} {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{as plan.pitch, expected an i64 for each of 1 inputs: 0, or the extent of its rows and up to 128 more}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 attributes {plan.pitch = array<i64: -4>} {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{as plan.pitch, expected an i64 for each of 1 inputs: 0, or the extent of its rows and up to 128 more}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops 0 traffic 32 attributes {plan.pitch = array<i64: 4096>} {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has -1 flops and 32 bytes of traffic}}
  plan.kernel [#plan.memory<slot 0, 0, 16>] -> [#plan.memory<slot 1, 0, 16>] flops -1 traffic 32 {
  ^bb0(%x: tensor<4xf32>):
    %y = plan.cluster(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      plan.yield %a : tensor<4xf32>
    }
    plan.yield %y : tensor<4xf32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// gemm
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a size of 0, expected at least 1}}
  plan.gemm m 0 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 2 strides of A, expected 3}}
  plan.gemm m 2 n 4 k 3 batch [2] of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a stride of A of -3}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [-3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has strides 3 and 2 of A's rows and columns, expected 1 as one of them}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 2] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 20 bytes of A, expected 24}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 20> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is of 'f32' with C of 'bf16', expected f32 or bf16, and C of f32 or the same}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 16> strides [4] of bf16
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has operands that are not those of epilogue bias}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32 epilogue bias
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has operands that are not those of epilogue gelu_gradient}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32 epilogue gelu_gradient
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has epilogue gelu and adds to C}}
  plan.gemm m 2 n 4 k 3 of f32 a <slot 1, 0, 24> strides [3, 1] b <slot 1, 64, 48> strides [4, 1] c <slot 0, 0, 32> strides [4] of f32 accumulate add epilogue gelu
}

// -----

//===----------------------------------------------------------------------===//
// grouped_gemm
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a size of 0, expected at least 1}}
  plan.grouped_gemm rows 4 repeat 2 experts 0 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 48> ids <slot 0, 16, 16> c <slot 1, 64, 32> of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 4 rows, expected a multiple of 3}}
  plan.grouped_gemm rows 4 repeat 3 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 48> ids <slot 0, 16, 16> c <slot 1, 64, 32> of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 40 bytes of B, expected 48}}
  plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 40> ids <slot 0, 16, 16> c <slot 1, 64, 32> of f32
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is of 'f32' with C of 'bf16', expected f32 or bf16}}
  plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 48> ids <slot 0, 16, 16> c <slot 1, 64, 32> of bf16
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has limit -1, expected at least 0}}
  plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 48> ids <slot 0, 16, 16> c <slot 1, 64, 32> of f32 limit -1
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{and experts in their own order}}
  plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <slot 1, 0, 48> ids <slot 0, 16, 16> c <slot 1, 64, 32> of f32 begin <of 4 zigzag 4>
}

// -----

//===----------------------------------------------------------------------===//
// attention
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a tensor at #plan.memory<@starts, 0, 8>, expected 16 bytes}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 starts <@starts, 0, 8>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a tensor at #plan.memory<@sinks, 0, 8>, expected 16 bytes}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 sinks <@sinks, 0, 8>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has gradients and sinks, which forward attention has}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 gradients [#plan.memory<slot 1, 0, 128>, #plan.memory<slot 1, 0, 128>, #plan.memory<slot 1, 0, 64>, #plan.memory<slot 1, 0, 64>] sinks <@sinks, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a size of 0, expected at least 1}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 0 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 3 heads over 2}}
  plan.attention batch 1 heads 3 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a window of 4, expected 1 to below 4}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 window 4
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has queries at #nn.begin<of 8 zigzag 4>, expected the order of 4 positions, those of its keys}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 begin <of 8 zigzag 4>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has key heads at #nn.begin<of 2 zigzag 2>, expected them in their own order}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 group_begin <of 2 zigzag 2>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 1 gradients, expected none or 4}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 gradients [#plan.memory<slot 1, 0, 128>]
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is of 'i32', expected f32 or bf16}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of i32 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a part of what dropout needs: keys, probability and site}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 128> stats <slot 1, 384, 64> scale 5.000000e-01 {site = 1 : i64}
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a tensor at #plan.memory<slot 1, 256, 64>, expected 128 bytes}}
  plan.attention batch 1 heads 4 kv_heads 2 queries 4 keys 4 head_size 4 of bf16 q <slot 1, 0, 128> k <slot 1, 128, 64> v <slot 1, 192, 64> out <slot 1, 256, 64> stats <slot 1, 384, 64> scale 5.000000e-01
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is bidirectional and has starts of documents, which only causal attention has}}
  plan.attention batch 1 heads 2 kv_heads 2 queries 4 keys 4 head_size 4 of f32 q <slot 1, 0, 128> k <slot 1, 128, 128> v <slot 1, 256, 128> out <slot 1, 384, 128> stats <slot 1, 512, 32> scale 5.000000e-01 bidirectional starts <slot 1, 544, 16>
}

// -----

//===----------------------------------------------------------------------===//
// collective
//===----------------------------------------------------------------------===//

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is over "dp", which is no axis of the mesh}}
  plan.collective all_reduce reduction sum on "dp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+2 {{'reduce_all' is no collective, expected one of all_reduce, all_gather, reduce_scatter, all_to_all}}
  // expected-error @+1 {{failed to parse Dist_CollectiveKindAttr parameter 'value'}}
  plan.collective reduce_all reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has a size of 0, expected at least 1}}
  plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 0 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_gather that cuts two dimensions}}
  plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 4 splits_inner <slot 1, 0, 16> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_reduce without a reduction}}
  plan.collective all_reduce on "tp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_gather with a reduction}}
  plan.collective all_gather reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is of 'tensor<2xf32>', expected f32, bf16 or i32}}
  plan.collective all_gather on "tp" of tensor<2xf32> outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{reduces 'i32', expected f32 or bf16}}
  plan.collective all_reduce reduction sum on "tp" of i32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has members [1, 0], expected ascending indices below 4}}
  plan.collective all_reduce reduction sum on "tp" members [1, 0] of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_gather in place}}
  plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

// 2^66 + 16 bytes are 16 in 64 bits.
dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 16 bytes in and 16 out, expected 2^63 or more}}
  plan.collective all_reduce reduction sum on "tp" of f32 outer 4611686018427387905 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 0, 16>
}

// -----

dist.mesh @mesh ["pp", "tp"] = [2, 4]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 16 bytes in and 32 out, expected 16 and 64}}
  plan.collective all_gather on "tp" of f32 outer 1 middle 1 chunk 4 <slot 1, 0, 16> -> <slot 1, 64, 32>
}

// -----

// expected-error @+1 {{has 2 names and 1 sizes of slots, expected one each or more}}
plan.function @f slots ["x", "workspace"] bytes [64] {
}

// -----

// expected-error @+1 {{has a slot of -1 bytes}}
plan.function @f slots ["workspace"] bytes [-1] {
}

// -----

//===----------------------------------------------------------------------===//
// copy
//===----------------------------------------------------------------------===//

plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{copies 64 bytes to 32}}
  plan.copy to_host <slot 1, 0, 64> -> <slot 0, 0, 32>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has sizes of rows without `rows`}}
  plan.collective all_gather on "ep" of f32 outer 1 middle 1 chunk 8 width 4 choices 3 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_to_all of rows with outer 1, expected an all_gather or reduce_scatter of all ranks with outer 1}}
  plan.collective all_to_all on "ep" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 3 experts 2 <slot 1, 256, 64> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{is an all_gather of rows with outer 2, expected}}
  plan.collective all_gather on "ep" of f32 outer 2 middle 1 chunk 4 rows <slot 0, 0, 48> width 4 choices 3 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has rows of 3 in blocks of 8, with 3 choices, and 2 experts a rank; expected a divisor, 1 or more, and 1 or more}}
  plan.collective all_gather on "ep" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 3 choices 3 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{with 3 choices, and 2 experts a rank; expected a divisor, 1, and 1 or more}}
  plan.collective reduce_scatter reduction sum on "ep" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 3 experts 2 <slot 1, 64, 64> -> <slot 1, 0, 32>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{and 0 experts a rank; expected}}
  plan.collective all_gather on "ep" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 3 experts 0 <slot 1, 0, 32> -> <slot 1, 64, 64>
}

// -----

dist.mesh @mesh ["pp", "ep"] = [1, 2]
plan.function @f slots ["x", "workspace"] bytes [64, 1024] {
  // expected-error @+1 {{has 48 bytes of ids, expected 32}}
  plan.collective all_gather on "ep" of f32 outer 1 middle 1 chunk 8 rows <slot 0, 0, 48> width 4 choices 2 experts 2 <slot 1, 0, 32> -> <slot 1, 64, 64>
}
