// RUN: plait-opt %s --plait-configure=precision=fp16 --nn-checkpoint -verify-diagnostics

// expected-error @+1 {{precision is fp16, which cannot be compiled, expected fp32 or bf16}}
module {
}
