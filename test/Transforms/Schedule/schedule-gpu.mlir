// RUN: plait-opt %s --pipe-schedule -split-input-file | FileCheck %s
// RUN: sed 's/cuda, name = "sm_90", cubin = "sm_90"/cpu, name = "x86-64-v3"/' %s > %t.mlir
// RUN: plait-opt %t.mlir --pipe-schedule -split-input-file | FileCheck %s --check-prefix=CPU

// On a GPU a send ends with its receive. Here the first stage sends four messages before it receives any: its last
// one would wait for the second stage, which comes to it after its second message back, which waits for the first
// stage. So the second stage receives one message earlier. The order of the work stays.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp"] = [2]
  // CHECK: pipe.schedule @schedule "mine"
  // CHECK-SAME: ["F0 SEND_F0 F1
  // CHECK-SAME: "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1 B1 RECV_F2 SEND_B1 F2
  // CPU: pipe.schedule @schedule "mine"
  // CPU-SAME: "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1 B1 SEND_B1 RECV_F2 F2
  pipe.schedule @given "mine" on <looped, ranks = 2, chunks = 1> microbatches 4 ["F0 F1 F2 F3 B0 B1 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
}

// -----

// Lists with transfers stay as they are.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp"] = [2]
  // CHECK: pipe.schedule @schedule "mine"
  // CHECK-SAME: "RECV_F1 F1 RECV_F0 F0
  // CPU: pipe.schedule @schedule "mine"
  // CPU-SAME: "RECV_F1 F1 RECV_F0 F0
  pipe.schedule @given "mine" on <looped, ranks = 2, chunks = 1> microbatches 2 [
    "F0 SEND_F0 F1 SEND_F1 RECV_B0 B0 RECV_B1 B1 WAIT_F0 WAIT_F1 REDUCE OPTIMIZER",
    "RECV_F1 F1 RECV_F0 F0 B0 SEND_B0 B1 SEND_B1 WAIT_B0 WAIT_B1 REDUCE OPTIMIZER"]
}

// -----

// Where stages send two tensors, the second one waits until the first one is received: the second stage sends nothing
// back before it has begun to receive.
module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
  dist.mesh @mesh ["pp"] = [2]
  func.func @forward_0(%x: tensor<2xf32> {pipe.port = #pipe.port<tokens>}) -> (tensor<2xf32> {pipe.port = #pipe.port<output 0>}, tensor<2xf32> {pipe.port = #pipe.port<output 1>}) attributes {pipe.function = #pipe.function<forward, 0>} {
    return %x, %x : tensor<2xf32>, tensor<2xf32>
  }
  func.func @backward_1(%x: tensor<2xf32> {pipe.port = #pipe.port<input 0>}) -> (tensor<2xf32> {pipe.port = #pipe.port<input_gradient 0>}, tensor<2xf32> {pipe.port = #pipe.port<input_gradient 1>}) attributes {pipe.function = #pipe.function<backward, 1>} {
    return %x, %x : tensor<2xf32>, tensor<2xf32>
  }
  // CHECK: pipe.schedule @schedule "mine"
  // CHECK-SAME: "RECV_F0 F0 B0 RECV_F1 SEND_B0 F1
  // CPU: pipe.schedule @schedule "mine"
  // CPU-SAME: "RECV_F0 F0 B0 SEND_B0 RECV_F1 F1
  pipe.schedule @given "mine" on <looped, ranks = 2, chunks = 1> microbatches 2 ["F0 F1 B0 B1", "F0 B0 F1 B1"]
}
