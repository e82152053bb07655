// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// cluster
//===----------------------------------------------------------------------===//

func.func @c1_arguments(%a: tensor<4xf32>) {
  // expected-error @+1 {{has block arguments that are not its operands' types}}
  %0 = plan.cluster(%a) : (tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%x: tensor<5xf32>):
    plan.yield %x : tensor<5xf32>
  }
  return
}

// -----

func.func @c1_results(%a: tensor<4xf32>) {
  // expected-error @+1 {{yields types that are not its results'}}
  %0 = plan.cluster(%a) : (tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%x: tensor<4xf32>):
    plan.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @c2(%a: tensor<4x4xf32>) {
  // expected-error @+1 {{holds an op that no kernel fuses}}
  %0 = plan.cluster(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%x: tensor<4x4xf32>):
    // expected-note @+1 {{this one: nn.matmul}}
    %y = nn.matmul %x, %x "ab,bc->ac" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    plan.yield %y : tensor<4x4xf32>
  }
  return
}

// -----

func.func @c3(%a: tensor<4xf32>) {
  // expected-error @+1 {{has 2 accumulate modes for 1 results}}
  %0 = plan.cluster(%a) accumulate [0, 1] : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%x: tensor<4xf32>):
    plan.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @c3_mode(%a: tensor<4xf32>) {
  // expected-error @+1 {{accumulate modes for 1 results}}
  %0 = plan.cluster(%a) accumulate [7] : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%x: tensor<4xf32>):
    plan.yield %x : tensor<4xf32>
  }
  return
}

// -----

//===----------------------------------------------------------------------===//
// program
//===----------------------------------------------------------------------===//

plan.program @c1 rank 0 bytes 128 {
  // expected-error @+1 {{stands in a program, which holds buffers and actions only}}
  %0 = nn.fill 1.0 : tensor<4xf32>
}

// -----

plan.program @c2 rank 0 bytes 128 {
  // expected-error @+1 {{of 65 bytes at 64 is not inside the arena of 128 bytes}}
  plan.buffer @x activations at 64 bytes 65 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @f [@x]
}

// -----

plan.program @c2_overflow rank 0 bytes 128 {
  // expected-error @+1 {{is not inside the arena of 128 bytes}}
  plan.buffer @x activations at 64 bytes 9223372036854775807 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @f [@x]
}

// -----

plan.program @c3 rank 0 bytes 128 {
  // expected-error @+1 {{overlaps @y, which is live at the same time}}
  plan.buffer @x activations at 0 bytes 65 live [0, 1]
  // expected-note @+1 {{the other buffer}}
  plan.buffer @y activations at 64 bytes 64 live [1, 2]
  plan.action forward stage 0 microbatch 0 call @f [@x]
  plan.action forward stage 0 microbatch 1 call @f [@x]
  plan.action forward stage 0 microbatch 2 call @f [@y]
}

// -----

// @z takes the place of @x, which is dead, but lives under @y.
plan.program @c3_later rank 0 bytes 256 {
  plan.buffer @x activations at 0 bytes 64 live [0, 0]
  // expected-note @+1 {{the other buffer}}
  plan.buffer @y activations at 64 bytes 64 live [0, 1]
  // expected-error @+1 {{overlaps @y, which is live at the same time}}
  plan.buffer @z activations at 0 bytes 128 live [1, 1]
  plan.action forward stage 0 microbatch 0 call @f [@x, @y]
  plan.action forward stage 0 microbatch 1 call @f [@y, @z]
}

// -----

plan.program @c4_lifetime rank 0 bytes 128 {
  // expected-error @+1 {{lives until action 1 of 1}}
  plan.buffer @x activations at 0 bytes 64 live [0, 1]
  plan.action forward stage 0 microbatch 0 call @f [@x]
}

// -----

plan.program @c4_binding rank 0 bytes 128 {
  // expected-error @+1 {{binds @x, which is no buffer}}
  plan.action forward stage 0 microbatch 0 call @f [@x]
}

// -----

plan.program @c5 rank 0 bytes 128 {
  plan.buffer @x activations at 0 bytes 64 live [0, 0]
  // expected-error @+1 {{names a second buffer @x}}
  plan.buffer @x activations at 64 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @f [@x]
}

// -----

//===----------------------------------------------------------------------===//
// buffer, action
//===----------------------------------------------------------------------===//

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is at 32 with 64 bytes; offsets are multiples of 64}}
  plan.buffer @c1 activations at 32 bytes 64 live [0, 0]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is at 0 with -1 bytes}}
  plan.buffer @c1_negative activations at 0 bytes -1 live [0, 0]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{lives over [2, 1]}}
  plan.buffer @c2 activations at 0 bytes 64 live [2, 1]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+2 {{expected ::plait::pipe::ActionKind to be one of}}
  // expected-error @+1 {{failed to parse Pipe_ActionKindAttr parameter 'value'}}
  plan.action sideways stage 0 microbatch 0 []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is joint, expected what a rank does}}
  plan.action joint stage 0 microbatch 0 call @f []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is a call; expected a function, and neither peer nor tensor}}
  plan.action forward stage 0 microbatch 0 []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is a call; expected a function, and neither peer nor tensor}}
  plan.action forward stage 0 microbatch 0 call @f peer 1 []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is a transfer; expected a peer, a tensor and one buffer, and no function}}
  plan.action send stage 0 microbatch 0 tensor 0 [@x]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is a transfer; expected a peer, a tensor and one buffer, and no function}}
  plan.action recv stage 0 microbatch 0 peer 1 tensor 0 []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is a transfer; expected a peer, a tensor and one buffer, and no function}}
  plan.action recv stage 0 microbatch 0 call @f peer 1 tensor 0 [@x]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{has no stage or no microbatch}}
  plan.action backward stage 0 call @f []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{happens once a step, but has a stage or a microbatch}}
  plan.action reduce stage 0 microbatch 0 call @f []
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{has a number below 0: -2}}
  plan.action backward stage -2 microbatch 0 call @f []
}

// -----

func.func @moves(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{has to_host what another op uses on the host}}
  %0 = plan.move to_host %a : tensor<4x8xf32>
  // expected-note @+1 {{this one: nn.add}}
  %1 = nn.add %0, %a : tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

plan.program @p rank 0 bytes 128 host_bytes 64 {
  // expected-error @+1 {{of 128 bytes at 0 is not inside the host's memory of 64 bytes}}
  plan.buffer @m optimizer host at 0 bytes 128 live [0, 0]
  plan.action optimizer call @optimizer_0 [@m]
}

// -----

plan.program @p rank 0 bytes 128 {
  // expected-error @+1 {{is in place 9, expected below}}
  "plan.buffer"() <{bytes = 64 : i64, category = #plan<category optimizer>, first = 0 : i64, last = 0 : i64, offset = 0 : i64, place = 9 : i64, sym_name = "m"}> : () -> ()
}

// -----

plan.program @p rank 0 bytes 0 host_bytes 128 {
  // expected-error @+1 {{overlaps @m, which is live at the same time}}
  plan.buffer @n optimizer host at 0 bytes 128 live [0, 0]
  // expected-note @+1 {{the other buffer}}
  plan.buffer @m optimizer host at 64 bytes 64 live [0, 0]
  plan.action optimizer call @optimizer_0 [@m]
}

// -----

// expected-error @+1 {{has 281474976710656 bytes of one memory, expected 0 to below 281474976710656}}
plan.program @p rank 0 bytes 281474976710656 {
}
