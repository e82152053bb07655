// RUN: not plait-opt %s --nn-insert-document-mask 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not plait-opt %s --nn-remove-decay=parameters=w,v 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not plait-opt %s --nn-remove-decay=parameters=[ 2>&1 | FileCheck %s --check-prefix=PATTERN
// RUN: not plait-opt %s --dist-pin-shardings=shardings=w 2>&1 | FileCheck %s --check-prefix=FORM
// RUN: not plait-opt %s '--dist-pin-shardings=shardings=w=[{"tp"}' 2>&1 | FileCheck %s --check-prefix=AXES
// RUN: not plait-opt %s '--dist-pin-shardings=shardings=v=[{}]' 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=w=1,v=1 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=w 2>&1 | FileCheck %s --check-prefix=FACTOR
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=w=-1 2>&1 | FileCheck %s --check-prefix=LEAST
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=w=nan 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not plait-opt %s --nn-scale-learning-rate=factors=[=1 2>&1 | FileCheck %s --check-prefix=GLOB
// RUN: not plait-opt %s --nn-assign-optimizers=optimizers=w=sgd,v=sgd 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not plait-opt %s --nn-assign-optimizers=optimizers=w 2>&1 | FileCheck %s --check-prefix=UPDATER
// RUN: not plait-opt %s --nn-assign-optimizers=optimizers=w=adam 2>&1 | FileCheck %s --check-prefix=ADAM
// RUN: not plait-opt %s --nn-assign-optimizers=optimizers=[=sgd 2>&1 | FileCheck %s --check-prefix=OPTGLOB
// RUN: not plait-opt %s --nn-insert-balance=terms=load 2>&1 | FileCheck %s --check-prefix=ROUTER
// RUN: not plait-opt %s --nn-insert-balance=terms=load,pooled=0.1 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not plait-opt %s --nn-insert-balance=terms=bias=-1 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not plait-opt %s --nn-insert-balance=terms=z 2>&1 | FileCheck %s --check-prefix=BARE
// RUN: not plait-opt %s --nn-freeze-parameters=parameters=w,v 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not plait-opt %s --nn-freeze-parameters=parameters=[ 2>&1 | FileCheck %s --check-prefix=FREEZE

// ROUTER: error: @loss has no router whose experts `balance` would balance
// KIND: error: `balance` "pooled=0.1" is not bias=RATE, sequence=FACTOR or z=FACTOR with a number of 0 to 1,000,000, or load
// RATE: error: `balance` "bias=-1" is not
// BARE: error: `balance` "z" is not
// FORM: error: `shard` w is not NAME=AXES, such as *.c_fc.weight=[{},{"tp"}]
// AXES: error: `shard` w=[{"tp"}: {{.*}}; expected axes like [{}, {"tp"}]
// NONE: error: @loss has no attention for a document mask
// NAME: error: no parameter is called "v"
// PATTERN: error: `no-decay` "[": invalid glob pattern
// FREEZE: error: `freeze` "[": invalid glob pattern
// FACTOR: error: `lr-factor` "w" is not NAME=FACTOR with a factor of 0 to 1,000,000, such as *.wte.weight=0.1
// LEAST: error: `lr-factor` "w=-1" is not NAME=FACTOR with a factor of 0 to 1,000,000
// NUMBER: error: `lr-factor` "w=nan" is not NAME=FACTOR with a factor of 0 to 1,000,000
// GLOB: error: `lr-factor` "[": invalid glob pattern
// UPDATER: error: `optimizer-of` "w" is not NAME=OPTIMIZER: optimizer is "", expected adamw, sgd, lion, muon or muon-match-rms
// ADAM: error: `optimizer-of` "w=adam" is not NAME=OPTIMIZER: optimizer is "adam", expected adamw, sgd, lion, muon or muon-match-rms
// OPTGLOB: error: `optimizer-of` "[": invalid glob pattern
module {
  nn.parameter @w : tensor<8x4xf32> init<mean = 0.0, std = 0.02> decay
  func.func @loss(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    return %x : tensor<2x4xf32>
  }
}
