// RUN: plait-opt %s --nn-checkpoint=recompute=half -verify-diagnostics

// expected-error @+1 {{recompute is "half", expected none or full}}
module {
}
