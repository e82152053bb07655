// RUN: plait-opt %s -split-input-file -verify-diagnostics --plan-lower-to-steps

// expected-error @+1 {{has no plan.slot_bytes: its values have no addresses}}
func.func @forward_0() {
  return
}
plan.program @rank0 rank 0 bytes 0 {
  plan.action forward stage 0 microbatch 0 call @forward_0 []
}

// -----

func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  // expected-error @+1 {{has 1 results, but 0 places in plan.places}}
  %0 = nn.fill 1.0 : tensor<4xf32>
  return
}
plan.program @rank0 rank 0 bytes 0 {
  plan.action forward stage 0 microbatch 0 call @forward_0 []
}

// -----

nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has a value in slot 1, but its function has 1}}
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 1, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
plan.program @rank0 rank 0 bytes 128 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.buffer @"w value" parameters at 64 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

// expected-error @+1 {{has a value in slot 4611686018427387904, but its function has 1}}
func.func @forward_0(%x: tensor<4xf32> {plan.place = #plan.place<slot 4611686018427387904, 0>}) attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  return
}
plan.program @rank0 rank 0 bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  // expected-error @+1 {{cannot be executed: no step computes 'nn.fill'}}
  %0 = nn.fill 1.0 {plan.places = [#plan.place<slot 0, 0>]} : tensor<4xf32>
  return
}
plan.program @rank0 rank 0 bytes 0 {
  plan.action forward stage 0 microbatch 0 call @forward_0 []
}

// -----

nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has A in @"w value", which program @rank0 does not have}}
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
plan.program @rank0 rank 0 bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has A up to byte 64 of @"w value", which has 32}}
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
plan.program @rank0 rank 0 bytes 128 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.buffer @"w value" parameters at 64 bytes 32 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  return
}
plan.program @rank0 rank 0 bytes 64 {
  // expected-error @+1 {{binds 0 buffers, but @forward_0 has 1 slots}}
  plan.action forward stage 0 microbatch 0 call @forward_0 []
}

// -----

func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  return
}
plan.program @rank0 rank 0 bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 32 live [0, 0]
  // expected-error @+1 {{binds 32 bytes to slot 0 of @forward_0, which has 64}}
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

plan.program @rank0 rank 0 bytes 64 {
  // expected-error @+1 {{calls @forward_0, which is no function of steps}}
  plan.action forward stage 0 microbatch 0 call @forward_0 []
}

// -----

module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  plan.program @rank0 rank 0 bytes 64 {
    // expected-error @+1 {{calls @forward_0, which is no function of steps}}
    plan.action forward stage 0 microbatch 0 call @forward_0 []
  }
}

// -----

// expected-error @+1 {{is called by programs @rank0 and @rank1, expected one}}
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 0>, plan.slot_names = ["workspace"]} {
  return
}
plan.program @rank0 rank 0 bytes 0 {
  plan.buffer @workspace workspace at 0 bytes 0 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}
plan.program @rank1 rank 1 bytes 0 {
  plan.buffer @workspace workspace at 0 bytes 0 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

// A matmul adds to what lies where its result does: here something else does.
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 128>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // expected-error @+1 {{adds to #plan.memory<slot 0, 0, 64>, but its result is #plan.memory<slot 0, 64, 64>}}
  %1 = nn.fused_matmul %w, %w "ab,bc->ac" add %0 {plan.places = [#plan.place<slot 0, 64>]} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
plan.program @rank0 rank 0 bytes 128 {
  plan.buffer @workspace workspace at 0 bytes 128 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

// So does a kernel that adds rows to a table.
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0(%ids: tensor<4xi32> {plan.place = #plan.place<slot 1, 0>}) attributes {plan.slot_bytes = array<i64: 128, 16>, plan.slot_names = ["workspace", "tokens"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // expected-error @+1 {{adds to #plan.memory<slot 0, 0, 64>, but its result is #plan.memory<slot 0, 64, 64>}}
  %1 = plan.cluster(%w, %ids, %0) attributes {plan.places = [#plan.place<slot 0, 64>]} : (tensor<4x4xf32>, tensor<4xi32>, tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<4xi32>, %c: tensor<4x4xf32>):
    %2 = nn.embedding_grad %a, %b : (tensor<4x4xf32>, tensor<4xi32>) -> tensor<4x4xf32>
    %3 = nn.add %c, %2 : tensor<4x4xf32>
    plan.yield %3 : tensor<4x4xf32>
  }
  return
}
plan.program @rank0 rank 0 bytes 144 {
  plan.buffer @workspace workspace at 0 bytes 128 live [0, 0]
  plan.buffer @tokens inputs at 128 bytes 16 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace, @tokens]
}

// -----

// What is joined has to be in its part of the whole: the second operand is not.
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 256>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = nn.matmul %0, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 128>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // expected-error @+1 {{joins #plan.memory<slot 0, 128, 64>, but its result has that part at #plan.memory<slot 0, 64, 64>}}
  %2 = nn.concat %0, %1 dim 0 {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return
}
plan.program @rank0 rank 0 bytes 256 {
  plan.buffer @workspace workspace at 0 bytes 256 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

// One end of a copy is on the host.
func.func @optimizer_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %m = nn.read @w moment1 {plan.places = [#plan.place<@"w moment1", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has source in @"w moment1", which is in the arena; of all steps copies alone use the host's memory, at one end}}
  %0 = plan.move from_host %m {plan.places = [#plan.place<slot 0, 0>]} : tensor<4x4xf32>
  return
}
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
plan.program @rank0 rank 0 bytes 128 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.buffer @"w moment1" optimizer at 64 bytes 64 live [0, 0]
  plan.action optimizer call @optimizer_0 [@workspace]
}

// -----

// Nothing else is.
func.func @optimizer_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %m = nn.read @w moment1 {plan.places = [#plan.place<@"w moment1", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has A in @"w moment1", which is in the host's memory; of all steps copies alone use the host's memory, at one end}}
  %0 = nn.matmul %m, %m "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
plan.program @rank0 rank 0 bytes 64 host_bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.buffer @"w moment1" optimizer host at 0 bytes 64 live [0, 0]
  plan.action optimizer call @optimizer_0 [@workspace]
}

// -----

// Nor by way of a slot.
func.func @forward_0() attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  %w = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has C in @workspace, which is in the host's memory; of all steps copies alone use the host's memory, at one end}}
  %0 = nn.matmul %w, %w "ab,bc->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
plan.program @rank0 rank 0 bytes 64 host_bytes 64 {
  plan.buffer @workspace workspace host at 0 bytes 64 live [0, 0]
  plan.buffer @"w value" parameters at 0 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}

// -----

func.func @optimizer_0() attributes {plan.slot_bytes = array<i64: 128>, plan.slot_names = ["workspace"]} {
  %m = nn.read @w moment1 {plan.places = [#plan.place<@"w moment1", 0>]} : tensor<4x4xf32>
  // expected-error @+1 {{has rows that are 4 elements apart, and 8 in its result}}
  %0 = plan.move from_host %m {plan.places = [#plan.place<slot 0, 0>], plan.pitch = array<i64: 8>} : tensor<4x4xf32>
  return
}
nn.parameter @w : tensor<4x4xf32> init<mean = 0.0, std = 0.02>
plan.program @rank0 rank 0 bytes 128 host_bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 128 live [0, 0]
  plan.buffer @"w moment1" optimizer host at 0 bytes 64 live [0, 0]
  plan.action optimizer call @optimizer_0 [@workspace]
}

// -----

// expected-error @+1 {{has no plan.place of argument 0}}
func.func @forward_0(%x: tensor<4xf32>) attributes {plan.slot_bytes = array<i64: 64>, plan.slot_names = ["workspace"]} {
  return
}
plan.program @rank0 rank 0 bytes 64 {
  plan.buffer @workspace workspace at 0 bytes 64 live [0, 0]
  plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
}
