// RUN: plait-opt %s -split-input-file | FileCheck %s
// RUN: plait-opt %s -split-input-file | plait-opt -split-input-file | FileCheck %s

// Fields that are at their default are not written, whatever the order they are
// read in.
// CHECK: module attributes {plait.configuration = #plait.configuration<>}
module attributes {plait.configuration = #plait.configuration<schedule = "1f1b", zero = 0, layers = []>} {
}

// -----

// CHECK: #plait.configuration<schedule = "zb-v", chunks = 2, layers = [2, 1, 1, 2], micro_batch = 4, recompute = full, zero = 1, sequence_parallel = true, context_parallel = heads, global_batch = 64, seq = 32, precision = bf16, attention = flash, epilogues = all, deterministic = true>
module attributes {plait.configuration = #plait.configuration<
    seq = 32, deterministic = true, epilogues = all, attention = flash,
    precision = bf16, global_batch = 64, sequence_parallel = true, zero = 1,
    context_parallel = heads, recompute = full, micro_batch = 4, layers = [2, 1, 1, 2], chunks = 2,
    schedule = "zb-v">} {
}

// -----

// CHECK: #plait.configuration<recompute = "full:1+selective/none*2">
module attributes {plait.configuration = #plait.configuration<
    recompute = "full:1+selective/none/none">} {
}

// -----

// CHECK: plait.phase = #plait.phase<partition>
module attributes {plait.phase = #plait.phase<partition>} {
}

// -----

// CHECK: plait.phase = #plait.phase<shard, read = <>>
module attributes {plait.phase = #plait.phase<shard, read = #plait.configuration<zero = 0>>} {
}

// -----

// CHECK: plait.phase = #plait.phase<checkpoint, read = <recompute = full, seq = 32>, mesh = "pp=2,tp=2">
module attributes {plait.phase = #plait.phase<checkpoint, mesh = "pp=2,tp=2", read = <seq = 32, recompute = full>>} {
}

// -----

// CHECK: plait.phase = #plait.phase<lower, read = <>, mesh = "tp=2", target = <cuda, name = "sm_80", cubin = "sm_90">>
module attributes {plait.phase = #plait.phase<lower, read = <>, mesh = "tp=2", target = <cuda, name = "sm_80", cubin = "sm_90">>} {
}

// -----

// CHECK: plait.target = #plait.target<cpu, name = "x86-64-v4">
module attributes {plait.target = #plait.target<cpu, name = "x86-64-v4">} {
}

// -----

// CHECK: plait.target = #plait.target<cpu, name = "x86-64-v3", features = "+avx512f">
module attributes {plait.target = #plait.target<cpu, name = "x86-64-v3", features = "+avx512f">} {
}

// -----

// CHECK: plait.target = #plait.target<cuda, name = "sm_80", cubin = "sm_90", reserved = 1000>
module attributes {plait.target = #plait.target<cuda, name = "sm_80", cubin = "sm_90", reserved = 1000>} {
}

// -----

// CHECK: plait.cluster = #plait.cluster<name = "h100:2x8", device = "H100 SXM", nodes = 2, devices_per_node = 8, memory = 85899345920, reserved = 3000000000, peak_flops = 9.890000e+14 : f64>
module attributes {plait.cluster = #plait.cluster<name = "h100:2x8", device = "H100 SXM", nodes = 2, devices_per_node = 8, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64>} {
}

// -----

// CHECK: rates = <gemm_flops = 7.300000e+14 : f64, memory_bandwidth = 3.000000e+12 : f64, links = [#plait.link<axis = "dp", latency = 0.000000e+00 : f64, bandwidth = 5.000000e+10 : f64>, #plait.link<latency = 4.000000e-05 : f64, bandwidth = 4.200000e+11 : f64>]>>
module attributes {plait.cluster = #plait.cluster<name = "h100:2x8", device = "H100 SXM", nodes = 2, devices_per_node = 8, memory = 85899345920, reserved = 3000000000, peak_flops = 9.89e+14 : f64,
    rates = <gemm_flops = 7.3e+14 : f64, memory_bandwidth = 3.0e+12 : f64, links = [
      #plait.link<axis = "dp", latency = 0.0 : f64, bandwidth = 5.0e+10 : f64>,
      #plait.link<latency = 4.0e-05 : f64, bandwidth = 4.2e+11 : f64>]>>} {
}

// -----

// CHECK: module attributes {plait.config_json = "{}", plait.model_flops = 1.200000e+01 : f64}
module attributes {plait.config_json = "{}", plait.model_flops = 1.200000e+01 : f64} {
  // CHECK: func.func private @f() attributes {plait.origin = "h.0"}
  func.func private @f() attributes {plait.origin = "h.0"}
}
