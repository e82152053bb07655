// RUN: plait-opt %s --verify-roundtrip | FileCheck %s

// CHECK: pipe.schedule @schedule "1f1b" stages 1 microbatches 2 ["F0 B0 F1 B1 REDUCE OPTIMIZER"]
pipe.schedule @schedule "1f1b" stages 1 microbatches 2 ["F0 B0 F1 B1 REDUCE OPTIMIZER"]

// The work alone, without the transfers.
// CHECK: pipe.schedule @two "1f1b" stages 2 microbatches 2 ["F0 F1 B0 B1", "F0 B0 F1 B1"]
pipe.schedule @two "1f1b" stages 2 microbatches 2 ["F0 F1 B0 B1", "F0 B0 F1 B1"]

// An order by hand is sound under any name, one that promises less included.
// CHECK: pipe.schedule @by_hand "by hand"
pipe.schedule @by_hand "by hand" stages 1 microbatches 2 ["F0 F1 B1 B0"]
// CHECK: pipe.schedule @kept "1f1b"
pipe.schedule @kept "1f1b" stages 1 microbatches 2 ["F0 F1 B0 B1"]
