//===- SharedLibraryTest.cpp - Libraries that may be missing --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/SharedLibrary.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;

namespace {

constexpr char override[] = "PLAIT_TEST_LIBRARY";

TEST(SharedLibraryTest, SaysWhatIsMissing) {
  auto missing = SharedLibrary::open("libplait-nothing.so.1", override);
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(missing.status().message().starts_with(
      "this plan is for CUDA; libplait-nothing.so.1 cannot be loaded: "))
      << missing.status().message();
}

TEST(SharedLibraryTest, TheEnvironmentNamesAnother) {
  setenv(override, "libc.so.6", 1);
  auto library = SharedLibrary::open("libplait-nothing.so.1", override);
  unsetenv(override);
  ASSERT_TRUE(library.ok()) << library.status().message();
  int (*absolute)(int) = nullptr;
  ASSERT_TRUE(library->bind("abs", absolute).ok());
  EXPECT_EQ(absolute(-3), 3);
  EXPECT_EQ(library->bind("plait_no_such_function", absolute).message(),
            "this plan is for CUDA; libc.so.6 is too old: it has no "
            "plait_no_such_function");
}

} // namespace
