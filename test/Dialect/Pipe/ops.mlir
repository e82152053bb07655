// RUN: plait-opt %s --verify-roundtrip | FileCheck %s

// CHECK: pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 2 ["F0 B0 F1 B1 REDUCE OPTIMIZER"]
pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 2 ["F0 B0 F1 B1 REDUCE OPTIMIZER"]

// The work alone, without the transfers.
// CHECK: pipe.schedule @two "1f1b" on <looped, ranks = 2, chunks = 1> microbatches 2 ["F0 F1 B0 B1", "F0 B0 F1 B1"]
pipe.schedule @two "1f1b" on <looped, ranks = 2, chunks = 1> microbatches 2 ["F0 F1 B0 B1", "F0 B0 F1 B1"]

// An order by hand is sound under any name, one that promises less included.
// CHECK: pipe.schedule @by_hand "by hand"
pipe.schedule @by_hand "by hand" on <looped, ranks = 1, chunks = 1> microbatches 2 ["F0 F1 B1 B0"]
// CHECK: pipe.schedule @kept "1f1b"
pipe.schedule @kept "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 2 ["F0 F1 B0 B1"]

// Two chunks a rank, in a V: the second rank hands over to itself.
// CHECK: pipe.schedule @v "v" on <v, ranks = 2, chunks = 2> microbatches 1 ["F0 1F0 1I0 1W0 I0 W0", "F0 1F0 1B0 B0"]
pipe.schedule @v "v" on <v, ranks = 2, chunks = 2> microbatches 1 ["F0 1F0 1I0 1W0 I0 W0", "F0 1F0 1B0 B0"]

// CHECK: module attributes {pipe.placement = #pipe.placement<v, ranks = 2, chunks = 2>}
module attributes {pipe.placement = #pipe.placement<v, ranks = 2, chunks = 2>} {
  // CHECK: func.func private @forward_3(tensor<2xi32> {pipe.port = #pipe.port<tokens>}, tensor<2xi32> {pipe.port = #pipe.port<targets>}, tensor<f32> {pipe.port = #pipe.port<input 1>}) -> (tensor<f32> {pipe.port = #pipe.port<output 0>}, tensor<f32> {pipe.port = #pipe.port<residual 7>}) attributes {pipe.function = #pipe.function<forward, 3>}
  func.func private @forward_3(tensor<2xi32> {pipe.port = #pipe.port<tokens>}, tensor<2xi32> {pipe.port = #pipe.port<targets>}, tensor<f32> {pipe.port = #pipe.port<input 1>}) -> (tensor<f32> {pipe.port = #pipe.port<output 0>}, tensor<f32> {pipe.port = #pipe.port<residual 7>}) attributes {pipe.function = #pipe.function<forward, 3>}
  // CHECK: func.func private @backward_input_3(tensor<f32> {pipe.port = #pipe.port<output_gradient 0>}, tensor<f32> {pipe.port = #pipe.port<residual 7>}) -> (tensor<f32> {pipe.port = #pipe.port<input_gradient 1>}, tensor<f32> {pipe.port = #pipe.port<residual 8>}) attributes {pipe.function = #pipe.function<backward_input, 3>}
  func.func private @backward_input_3(tensor<f32> {pipe.port = #pipe.port<output_gradient 0>}, tensor<f32> {pipe.port = #pipe.port<residual 7>}) -> (tensor<f32> {pipe.port = #pipe.port<input_gradient 1>}, tensor<f32> {pipe.port = #pipe.port<residual 8>}) attributes {pipe.function = #pipe.function<backward_input, 3>}
}

// CHECK: func.func private @alone() attributes {actions = #pipe.actions<"F0 1I0 1W0 SEND_F0">}
func.func private @alone() attributes {actions = #pipe.actions<"F0 1I0 1W0 SEND_F0">}
