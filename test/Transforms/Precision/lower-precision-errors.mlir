// RUN: plait-opt %s --plait-configure=precision=bf16 --nn-lower-precision -split-input-file -verify-diagnostics

// expected-error @below {{has no function @loss to compute in bf16}}
module {
}
