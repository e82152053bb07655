// RUN: not plait-opt %s --plait-configure=global-batch=3 --pipe-schedule 2>&1 | FileCheck %s --check-prefix=BATCH
// RUN: not plait-opt %s --plait-configure="schedule=zb-v global-batch=2" --pipe-schedule 2>&1 | FileCheck %s --check-prefix=CHUNKS

// BATCH: error: global batch 3 is not divisible by micro batch 1 times 2 replicas = 2
// CHUNKS: error: schedule zb-v orders exactly 2 chunk(s) per rank, got 1
dist.mesh @mesh ["pp", "dp"] = [2, 2]
