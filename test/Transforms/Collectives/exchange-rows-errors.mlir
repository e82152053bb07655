// RUN: plait-opt %s --dist-exchange-rows -verify-diagnostics

// Who sends rows reads ids.
// expected-error @+1 {{rows of experts are exchanged between processors only (`expert-exchange` rows), since who sends them has to read ids; expected tokens for a GPU}}
module attributes {plait.expert_rows, plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
}
