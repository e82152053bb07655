//===- NoCompiler.cpp - The C interface of a runtime alone ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What needs a compiler, of a library that was built without one: all functions
// are there, so that a program for either links with it.
//
//===----------------------------------------------------------------------===//

#include "Objects.h"

using namespace plait;
using namespace plait::capi;

static plait_error *refuse() {
  return guarded([] {
    return makeError(fail(Code::WrongCall, "this library of plait was built "
                                           "without the compiler "
                                           "(PLAIT_BUILD_COMPILER)"));
  });
}

plait_error *plait_model_import(plait_session *, const char *, const char *,
                                plait_model **) {
  return refuse();
}

plait_error *plait_model_plan(plait_model *, const char *, char **) {
  return refuse();
}

plait_error *plait_model_compile(plait_model *, const char *, const char *,
                                 plait_plan **) {
  return refuse();
}

plait_error *plait_cluster_describe(plait_session *, const char *, char **) {
  return refuse();
}

plait_error *plait_model_emit(plait_model *, const char *, const char *,
                              char **) {
  return refuse();
}

plait_error *plait_job_audit(plait_session *, const char *, const char *,
                             plait_model *, const char *, char **) {
  return refuse();
}
