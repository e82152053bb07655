// RUN: plait-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// #plait.configuration
//===----------------------------------------------------------------------===//

// (C1) a field is one of the list
// expected-error @+1 {{there is no field "colour", expected schedule, chunks}}
module attributes {plait.configuration = #plait.configuration<colour = red>} {
}

// -----

// (C2) a field is given once
// expected-error @+1 {{field "zero" is given twice}}
module attributes {plait.configuration = #plait.configuration<zero = 1, zero = 0>} {
}

// -----

// (C3) its value is of the field's type
// expected-error @+1 {{recompute is "half", expected none, selective, full or auto}}
module attributes {plait.configuration = #plait.configuration<recompute = half>} {
}

// -----

// expected-error @+1 {{precision is "8", expected fp32, bf16 or fp16}}
module attributes {plait.configuration = #plait.configuration<precision = 8>} {
}

// -----

// expected-error @+1 {{seq is "long", expected 1 to 16777216}}
module attributes {plait.configuration = #plait.configuration<seq = long>} {
}

// -----

// expected-error @+1 {{sequence-parallel is "1", expected true, false, on or off}}
module attributes {plait.configuration = #plait.configuration<sequence_parallel = 1>} {
}

// -----

// expected-error @+1 {{context-parallel is "ring", expected gather, heads or zigzag}}
module attributes {plait.configuration = #plait.configuration<context_parallel = ring>} {
}

// -----

// (C4) numbers are 1 to 16,777,216, zero is 0 to 3
// expected-error @+1 {{micro-batch is "0", expected 1 to 16777216}}
module attributes {plait.configuration = #plait.configuration<micro_batch = 0>} {
}

// -----

// expected-error @+1 {{layers is "-2", expected 0 to 16777216}}
module attributes {plait.configuration = #plait.configuration<layers = [3, -2]>} {
}

// -----

// expected-error @+1 {{zero is "4", expected 0 to 3}}
module attributes {plait.configuration = #plait.configuration<zero = 4>} {
}

// -----

// expected-error @+1 {{global-batch is "99999999999999999999", expected 1 to 16777216}}
module attributes {plait.configuration = #plait.configuration<global_batch = 99999999999999999999>} {
}

// -----

// (C5) schedule is the name of a generator
// expected-error @+1 {{unknown schedule 'gripe', expected one of}}
module attributes {plait.configuration = #plait.configuration<schedule = "gripe">} {
}

// -----

//===----------------------------------------------------------------------===//
// #plait.target
//===----------------------------------------------------------------------===//

// (C1)
// expected-error @+1 {{a cpu target has cubin "sm_90" and reserved 0, expected neither}}
module attributes {plait.target = #plait.target<cpu, name = "x86-64-v4", cubin = "sm_90">} {
}

// -----

// expected-error @+1 {{a cuda target has features "+avx2", expected none}}
module attributes {plait.target = #plait.target<cuda, name = "sm_80", features = "+avx2", cubin = "sm_90">} {
}

// -----

// (C2)
// expected-error @+1 {{a cuda target has architecture "h100", expected one as sm_90}}
module attributes {plait.target = #plait.target<cuda, name = "h100", cubin = "sm_90">} {
}

// -----

// expected-error @+1 {{a target has no name}}
module attributes {plait.target = #plait.target<cpu, name = "">} {
}

// -----

//===----------------------------------------------------------------------===//
// #plait.cluster
//===----------------------------------------------------------------------===//

// (C1)
// expected-error @+1 {{cluster "x" has 0 nodes of 8 devices}}
module attributes {plait.cluster = #plait.cluster<name = "x", device = "d", nodes = 0, devices_per_node = 8, memory = 10, reserved = 1, peak_flops = 1.0 : f64>} {
}

// -----

// (C2)
// expected-error @+1 {{cluster "x" reserves 10 of 10 bytes}}
module attributes {plait.cluster = #plait.cluster<name = "x", device = "d", nodes = 1, devices_per_node = 8, memory = 10, reserved = 10, peak_flops = 1.0 : f64>} {
}

// -----

//===----------------------------------------------------------------------===//
// #plait.link, #plait.rates
//===----------------------------------------------------------------------===//

// (C1)
// expected-error @+1 {{the link along axis "tp" has latency -1.000000e+00 : f64 and bandwidth 1.000000e+00 : f64, expected a latency of 0 or more and a positive bandwidth}}
module attributes {plait.cluster = #plait.link<axis = "tp", latency = -1.0 : f64, bandwidth = 1.0 : f64>} {
}

// -----

// (C1)
// expected-error @+1 {{rates have gemm_flops 0.000000e+00 : f64 and memory_bandwidth 1.000000e+00 : f64, expected positive numbers}}
module attributes {plait.cluster = #plait.rates<gemm_flops = 0.0 : f64, memory_bandwidth = 1.0 : f64, links = []>} {
}

// -----

// (C2)
// expected-error @+1 {{rates have "tp" among their links, expected a #plait.link}}
module attributes {plait.cluster = #plait.rates<gemm_flops = 1.0 : f64, memory_bandwidth = 1.0 : f64, links = ["tp"]>} {
}

// -----

// (C2)
// expected-error @+1 {{rates have two links along axis "tp"}}
module attributes {plait.cluster = #plait.rates<gemm_flops = 1.0 : f64, memory_bandwidth = 1.0 : f64, links = [#plait.link<axis = "tp", latency = 1.0 : f64, bandwidth = 1.0 : f64>, #plait.link<axis = "tp", latency = 2.0 : f64, bandwidth = 1.0 : f64>]>} {
}

// -----

// (C3)
// expected-error @+1 {{rates have gemm_units -1, expected 0 or more}}
module attributes {plait.cluster = #plait.rates<gemm_flops = 1.0 : f64, memory_bandwidth = 1.0 : f64, links = [], gemm_units = -1>} {
}

// -----

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

// expected-error @+1 {{has plait.configuration = "none", expected a #plait.configuration}}
module attributes {plait.configuration = "none"} {
}

// -----

// expected-error @+1 {{has plait.phase = 3 : i64, expected a #plait.phase}}
module attributes {plait.phase = 3} {
}

// -----

// expected-error @+1 {{has plait.model_flops = -1.000000e+00 : f64, expected an f64 of 0 or more}}
module attributes {plait.model_flops = -1.0} {
}

// -----

// expected-error @+1 {{has plait.colour = "red", expected another name: the dialect has no such attribute}}
module attributes {plait.colour = "red"} {
}

// -----

module {
  // expected-error @+1 {{has plait.phase, which is for modules}}
  func.func private @f() attributes {plait.phase = #plait.phase<shard>}
}
