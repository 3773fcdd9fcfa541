#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// toml++ without its assertions. Some of them fail on bad input ("[#") that the parser would reject shortly afterwards with the line and
// the reason. With NDEBUG, toml++ would turn them into assumptions for clang.

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
