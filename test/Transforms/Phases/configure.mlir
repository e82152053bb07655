// RUN: plait-opt %s --plait-configure="schedule=gpipe layers=2,1 sequence-parallel=true" | FileCheck %s
// RUN: plait-opt %s --plait-configure | FileCheck %s --check-prefix=SAME
// RUN: not plait-opt %s --plait-configure=seq=0 2>&1 | FileCheck %s --check-prefix=BOUND
// RUN: not plait-opt %s --plait-configure=colour=red 2>&1 | FileCheck %s --check-prefix=NAME

// What is not given stays as it is.
// CHECK: plait.configuration = #plait.configuration<schedule = "gpipe", layers = [2, 1], sequence_parallel = true, seq = 32>
// SAME: plait.configuration = #plait.configuration<layers = [3], seq = 32>
// BOUND: error: seq is "0", expected 1 to 16777216
// NAME: no such option colour
module attributes {plait.configuration = #plait.configuration<layers = [3], seq = 32>} {
}
