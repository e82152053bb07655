// RUN: plait-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{action 1: 'X0' is not a schedule action}}
pipe.schedule @word "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 X0"]

// -----

// expected-error @+1 {{is none: there are actions of 1 ranks, expected 2}}
pipe.schedule @c1_lists "1f1b" on <looped, ranks = 2, chunks = 1> microbatches 1 ["F0 B0"]

// -----

// expected-error @+1 {{is none: count 0 is not in 1 … 4294967295}}
pipe.schedule @c1_microbatches "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 0 [""]

// -----

// One more than fits, which would wrap to one.
// expected-error @+1 {{is none: count 4294967297 is not in}}
pipe.schedule @c1_wrap "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 4294967297 ["F0 B0"]

// -----

// expected-error @+1 {{is none: rank 0, action 1: '1F0' names chunk 1, the schedule has 1}}
pipe.schedule @c1_chunk "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 1F0"]

// -----

// expected-error @+1 {{is not sound: }}
pipe.schedule @c2_missing "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 2 ["F0 B0 F1"]

// -----

// expected-error @+1 {{is not sound: }}
pipe.schedule @c2_order "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 1 ["B0 F0"]

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

// -----

// expected-error @+1 {{has an attribute "pipe.phase", which the pipe dialect does not know}}
func.func @unknown() attributes {pipe.phase = "forward"} {
  return
}

// -----

// expected-error @+1 {{has "pipe.function" = "forward", expected a pipe.function}}
func.func @function_word() attributes {pipe.function = "forward"} {
  return
}

// -----

// expected-error @+1 {{has "pipe.placement" = 2 : i64, expected a pipe.placement}}
module attributes {pipe.placement = 2} {
}

// -----

// expected-error @+1 {{has pipe.function but is no function}}
module attributes {pipe.function = #pipe.function<forward, 0>} {
}

// -----

// expected-error @+1 {{function does "send", which is a transfer}}
func.func private @function_c1() attributes {pipe.function = #pipe.function<send, 0>}

// -----

// expected-error @+1 {{function is for -1, expected 0 or more}}
func.func private @function_c2() attributes {pipe.function = #pipe.function<forward, -1>}

// -----

// expected-error @+1 {{unknown port "sideways"}}
func.func private @port_word(tensor<f32> {pipe.port = #pipe.port<sideways 0>})

// -----

// expected-error @+1 {{port input has index -1, expected 0 or more}}
func.func private @port_c1(tensor<f32> {pipe.port = #pipe.port<input -1>})

// -----

// expected-error @+1 {{has "pipe.port" = 0 : i64, expected a pipe.port}}
func.func private @port_number(tensor<f32> {pipe.port = 0})

// -----

// expected-error @+1 {{placement has 0 ranks of 1 chunks, expected 1 or more of each}}
module attributes {pipe.placement = #pipe.placement<looped, ranks = 0, chunks = 1>} {
}

// -----

// expected-error @+1 {{placement has 4294967297 ranks of 4294967297 chunks, expected 1 or more of each and at most 4194304 in all}}
module attributes {pipe.placement = #pipe.placement<v, ranks = 4294967297, chunks = 4294967297>} {
}

// -----

// expected-error @+1 {{has a port but no pipe.function}}
func.func @c2_port(%x: tensor<f32> {pipe.port = #pipe.port<input 0>}) {
  return
}

// -----

// expected-error @+1 {{argument 1 has no port; expected the attribute pipe.port}}
func.func @c2_argument(%x: tensor<f32> {pipe.port = #pipe.port<input 0>}, %y: tensor<f32>) attributes {pipe.function = #pipe.function<joint, 0>} {
  return
}

// -----

// expected-error @+1 {{result 0 has no port; expected the attribute pipe.port}}
func.func @c2_result(%x: tensor<f32> {pipe.port = #pipe.port<input 0>}) -> tensor<f32> attributes {pipe.function = #pipe.function<joint, 0>} {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{argument 1 is a second input 0}}
func.func @c3_twice(%x: tensor<f32> {pipe.port = #pipe.port<input 0>}, %y: tensor<f32> {pipe.port = #pipe.port<input 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}

// -----

// expected-error @+1 {{argument 0 is output_gradient 0, which no forward function takes}}
func.func @c3_forward(%x: tensor<f32> {pipe.port = #pipe.port<output_gradient 0>}) attributes {pipe.function = #pipe.function<forward, 0>} {
  return
}

// -----

// expected-error @+1 {{result 0 is input_gradient 0, which no backward_weight function gives}}
func.func @c3_weight(%x: tensor<f32> {pipe.port = #pipe.port<residual 0>}) -> (tensor<f32> {pipe.port = #pipe.port<input_gradient 0>}) attributes {pipe.function = #pipe.function<backward_weight, 0>} {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{argument 0 is tokens, which no optimizer function takes}}
func.func @c3_optimizer(%x: tensor<f32> {pipe.port = #pipe.port<tokens>}) attributes {pipe.function = #pipe.function<optimizer, 0>} {
  return
}

// -----

// expected-error @+1 {{action 1: 'F' is not a schedule action}}
func.func private @alone() attributes {actions = #pipe.actions<"F0 F">}

// -----

// What is wrong with the function itself is its own verifier's to say.
// expected-error @+1 {{requires attribute 'function_type'}}
"func.func"() <{arg_attrs = [{pipe.port = #pipe.port<input 0>}], sym_name = "f"}> ({
}) {pipe.function = #pipe.function<joint, 0>} : () -> ()

// -----

// expected-error @+1 {{expects argument attribute array to have the same number of elements as the number of function arguments, got 1, but expected 2}}
"func.func"() <{arg_attrs = [{pipe.port = #pipe.port<input 0>}], function_type = (tensor<f32>, tensor<f32>) -> (), sym_name = "f"}> ({
^bb0(%x: tensor<f32>, %y: tensor<f32>):
  "func.return"() : () -> ()
}) {pipe.function = #pipe.function<joint, 0>} : () -> ()

// -----

// expected-error @+1 {{expects result attribute array to have the same number of elements as the number of function results, got 0, but expected 1}}
"func.func"() <{res_attrs = [], function_type = (tensor<f32>) -> tensor<f32>, arg_attrs = [{pipe.port = #pipe.port<input 0>}], sym_name = "f"}> ({
^bb0(%x: tensor<f32>):
  "func.return"(%x) : (tensor<f32>) -> ()
}) {pipe.function = #pipe.function<joint, 0>} : () -> ()
