//===- FakeContexts.h - Which GPU a call goes to ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Primary contexts as the driver counts them. What is made belongs to the GPU
// that is current on the calling thread; work goes to streams of that GPU only,
// as the libraries above the driver want it. What a context had is gone when
// nobody holds it any more.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKECONTEXTS_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKECONTEXTS_H

namespace plait::fake {

/// Prints `why` and ends the process: for misuse that no result reports.
[[noreturn]] void refuse(const char *why);

/// Of this thread, or -1 where none is, or it is not held any more.
int currentGpu();

/// The number of the context that `gpu` has or had last.
int contextOf(int gpu);

/// Whether somebody holds the context of `gpu`.
bool isHeld(int gpu);

} // namespace plait::fake

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKECONTEXTS_H
