// RUN: plait-opt %s --plait-configure=recompute=selective --nn-checkpoint -verify-diagnostics

// expected-error @+1 {{recompute is selective, which cannot be compiled, expected none or full}}
module {
}
