// RUN: plait-opt %s --plait-configure=global-batch=6 --pipe-schedule -split-input-file | FileCheck %s
// RUN: plait-opt %s "--plait-configure=schedule=gpipe global-batch=6" --pipe-schedule -split-input-file | \
// RUN:   FileCheck %s --check-prefix=GPIPE

// One schedule for as many stages as the mesh has ranks on pp; dp
// divides the batch, and other axes do not matter. That it is sound is verified by the op (test/Dialect/Pipe) and its
// order by test/Unit/Schedule.

dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]
// 1F1B: the first stage is one forward pass ahead of the last, which turns
// around at once.
// CHECK: pipe.schedule @schedule "1f1b" on <looped, ranks = 2, chunks = 1> microbatches 3
// CHECK-SAME: ["{{[^"]*}}F0 {{[^"]*}}F1 {{[^"]*}}B0 {{[^"]*}}F2 {{[^"]*}}B1 {{[^"]*}}B2 {{[^"]*}}REDUCE OPTIMIZER",
// CHECK-SAME: "RECV_F0 F0 B0 {{[^"]*}}F1 B1 {{[^"]*}}F2 B2 {{[^"]*}}REDUCE OPTIMIZER"]
// GPipe: all forward passes, then all backward passes.
// GPIPE: pipe.schedule @schedule "gpipe" on <looped, ranks = 2, chunks = 1> microbatches 3
// GPIPE-SAME: "RECV_F0 F0 {{[^"B]*}} F1 {{[^"B]*}} F2 {{[^"]*}}B2

// -----

// A mesh without pp is one stage, which sends nothing.
dist.mesh @mesh ["dp", "tp"] = [2, 2]
// CHECK: pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 3 ["F0 B0 F1 B1 F2 B2 REDUCE OPTIMIZER"]
// GPIPE: pipe.schedule @schedule "gpipe" on <looped, ranks = 1, chunks = 1> microbatches 3 ["F0 F1 F2 B

// -----

// A rank with a function that gathers does so first, once.
dist.mesh @mesh ["pp", "dp"] = [2, 2]
func.func @gather_1() attributes {pipe.function = #pipe.function<gather, 1>} {
  return
}
// CHECK: pipe.schedule @schedule "1f1b" on <looped, ranks = 2, chunks = 1> microbatches 3
// CHECK-SAME: ["F0 {{[^"G]*}}OPTIMIZER",
// CHECK-SAME: "GATHER RECV_F0 {{[^"G]*}}OPTIMIZER"]

// -----

dist.mesh @mesh ["dp"] = [2]
func.func @gather_0() attributes {pipe.function = #pipe.function<gather, 0>} {
  return
}
pipe.schedule @given "mine" on <looped, ranks = 1, chunks = 1> microbatches 1 ["F0 B0 REDUCE OPTIMIZER"]
// CHECK: pipe.schedule @schedule "mine" {{.*}} ["GATHER F0 B0 REDUCE OPTIMIZER"]
