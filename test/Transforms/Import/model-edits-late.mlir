// RUN: not plait-opt %s --nn-remove-dropout 2>&1 | FileCheck %s --check-prefix=DROPOUT
// RUN: not plait-opt %s --nn-insert-document-mask 2>&1 | FileCheck %s --check-prefix=MASK
// RUN: not plait-opt %s --nn-weigh-targets 2>&1 | FileCheck %s --check-prefix=WEIGHTS
// RUN: not plait-opt %s --nn-add-adapters=rank=2 2>&1 | FileCheck %s --check-prefix=ADAPTERS
// RUN: not plait-opt %s --nn-remove-decay=parameters=w 2>&1 | FileCheck %s --check-prefix=DECAY
// RUN: not plait-opt %s '--dist-pin-shardings=shardings=w=[{}]' 2>&1 | FileCheck %s --check-prefix=SHARD
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=w=2 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not plait-opt %s --nn-assign-optimizers=optimizers=w=sgd 2>&1 | FileCheck %s --check-prefix=UPDATER
// RUN: not plait-opt %s --nn-insert-balance=terms=load 2>&1 | FileCheck %s --check-prefix=BALANCE
// RUN: not plait-opt %s --nn-freeze-parameters=parameters=w 2>&1 | FileCheck %s --check-prefix=FREEZE

// BALANCE: error: the input is IR after phase stage, in which experts are not balanced any more
// SHARD: error: the input is IR after phase stage, in which shardings are not pinned any more
// DROPOUT: error: the input is IR after phase stage, from which dropout is not removed any more
// MASK: error: the input is IR after phase stage, in which documents are not masked any more
// WEIGHTS: error: the input is IR after phase stage, in which targets are not weighed any more
// ADAPTERS: error: the input is IR after phase stage, in which adapters are not added any more
// DECAY: error: the input is IR after phase stage, in which weight decay is not taken off any more
// FREEZE: error: the input is IR after phase stage, in which parameters are not frozen any more
// RATE: error: the input is IR after phase stage, in which learning rates are not set any more
// UPDATER: error: the input is IR after phase stage, in which optimizers are not assigned any more
module attributes {plait.phase = #plait.phase<stage>} {
}
