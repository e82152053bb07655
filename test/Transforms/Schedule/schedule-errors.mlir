// RUN: not plait-opt %s --pipe-schedule=kind=gripe 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not plait-opt %s --pipe-schedule=microbatches=0 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not plait-opt %s --pipe-schedule=microbatches=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE

dist.mesh @mesh ["pp"] = [2]
// KIND: error: unknown schedule 'gripe', expected one of {{.*}}gpipe
// NONE: error: {{.*}}microbatches
// NEGATIVE: for the --microbatches option: '-1' value invalid
