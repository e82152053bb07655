// RUN: plait-opt %s --nn-fuse-epilogues=kinds=relu -verify-diagnostics

// expected-error @+1 {{epilogues are "relu", expected none, bias, all}}
module {
}
