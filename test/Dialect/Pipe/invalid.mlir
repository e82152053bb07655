// RUN: plait-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{does not parse: }}
pipe.schedule @c1_word "1f1b" stages 1 microbatches 1 ["F0 X0"]

// -----

// expected-error @+1 {{does not parse: }}
pipe.schedule @c1_lists "1f1b" stages 2 microbatches 1 ["F0 B0"]

// -----

// expected-error @+1 {{does not parse: count 0 is not in 1 … 4294967295}}
pipe.schedule @c1_stages "1f1b" stages 0 microbatches 1 []

// -----

// One more than fits, which would wrap to one.
// expected-error @+1 {{does not parse: count 4294967297 is not in}}
pipe.schedule @c1_wrap "1f1b" stages 4294967297 microbatches 1 ["F0 B0"]

// -----

// expected-error @+1 {{is not sound: }}
pipe.schedule @c2_missing "1f1b" stages 1 microbatches 2 ["F0 B0 F1"]

// -----

// expected-error @+1 {{is not sound: }}
pipe.schedule @c2_order "1f1b" stages 1 microbatches 1 ["B0 F0"]

// -----

// expected-error @+1 {{has pipe.phase = "forward" but no pipe.stage}}
func.func @no_stage() attributes {pipe.phase = "forward"} {
  return
}

// -----

// expected-error @+1 {{has pipe.phase = 1 : i64, expected a string}}
func.func @phase_number() attributes {pipe.phase = 1, pipe.stage = 0} {
  return
}

// -----

// expected-error @+1 {{has pipe.stage = "0", expected an i64 of 0 or more}}
func.func @stage_word() attributes {pipe.stage = "0"} {
  return
}

// -----

// expected-error @+1 {{has pipe.stage = -1 : i64, expected an i64 of 0 or more}}
func.func @stage_negative() attributes {pipe.stage = -1} {
  return
}
