// RUN: plait-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{'func.func' op has plan.slots = 1 : i64, expected another name: the dialect has no such attribute}}
func.func @f() attributes {plan.slots = 1} {
  return
}

// -----

// expected-error @+1 {{'func.func' op has plan.slot_bytes = [64], expected an array of i64, 0 or more}}
func.func @f() attributes {plan.slot_bytes = [64]} {
  return
}

// -----

// expected-error @+1 {{has plan.slot_bytes = array<i64: 64, -1>, expected an array of i64, 0 or more}}
func.func @f() attributes {plan.slot_bytes = array<i64: 64, -1>} {
  return
}

// -----

// expected-error @+1 {{has plan.slot_names = ["a"], expected a string for each of plan.slot_bytes}}
func.func @f() attributes {plan.slot_bytes = array<i64: 64, 64>, plan.slot_names = ["a"]} {
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'nn.fill' op has plan.places = "nowhere", expected a #plan.place for each result}}
  %0 = nn.fill 1.0 {plan.places = "nowhere"} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has plan.places = [], expected a #plan.place for each result}}
  %0 = nn.fill 1.0 {plan.places = []} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{a place at offset -64 of a buffer, expected 0 to below 281474976710656}}
  %0 = nn.fill 1.0 {plan.places = [#plan.place<slot 0, -64>]} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{a place is in slot -1, expected 0 or more, or a buffer}}
  %0 = nn.fill 1.0 {plan.places = [#plan.place<slot -1, 0>]} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{a place at offset 9223372036854775807 of a buffer, expected 0 to below 281474976710656}}
  %0 = nn.fill 1.0 {plan.places = [#plan.place<slot 0, 9223372036854775807>]} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has plan.accumulate = 3 : i32, expected an i32 that is 0, 1 or 2}}
  %0 = nn.fill 1.0 {plan.accumulate = 3 : i32} : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has plan.pitch = array<i64: 3>, expected an i64 for each result: 0, or the extent of its rows and up to 128 more}}
  %0 = nn.fill 1.0 {plan.pitch = array<i64: 3>} : tensor<2x4xf32>
  return
}

// -----

// expected-error @+1 {{'func.func' op has argument 0 with plan.pitch = 133 : i64, expected 0, or the extent of its rows and up to 128 more}}
func.func @f(%x: tensor<2x4xf32> {plan.pitch = 133 : i64}) {
  return
}

// -----

// expected-error @+1 {{'func.func' op has argument 0 with plan.sorted = 12 : i64, expected an i64 on i32, 0 or more and below 2147483647}}
func.func @f(%x: tensor<2x4xf32> {plan.sorted = 12 : i64}) {
  return
}

// -----

// expected-error @+1 {{'func.func' op has argument 0 with plan.sorted = -1 : i64, expected an i64 on i32, 0 or more and below 2147483647}}
func.func @f(%x: tensor<2x4xi32> {plan.sorted = -1 : i64}) {
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has plan.sorted = 12 : i64, expected an i64 on a buffer, above 0 and below 2147483647}}
  %0 = nn.fill 1.0 {plan.sorted = 12 : i64} : tensor<2x4xf32>
  return
}

// -----

// expected-error @+1 {{has argument 0 with plan.place = "slot 0", expected a #plan.place}}
func.func @f(%x: tensor<2x4xf32> {plan.place = "slot 0"}) {
  return
}

// -----

// expected-error @+1 {{has argument 0 with plan.slot = 0 : i64, expected another name: the dialect has no such attribute}}
func.func @f(%x: tensor<2x4xf32> {plan.slot = 0}) {
  return
}
