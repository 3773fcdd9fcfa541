#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the library of inject_plan.cpp share: which event is due, and what a call on a file is told.

#include <dlfcn.h>

// Hidden, so that the program into which the library is loaded sees none of these names.
#pragma GCC visibility push(hidden)
namespace injection {

/// Whether events are counted: this rank is chosen, and its main() runs.
bool is_watching();

/// Whether the address lies in the program itself (`own`), or in it or the library of Kokkos (otherwise).
bool is_called_by(void* address, bool own);

/// Counts an allocation; true for the one that is to fail, which is then reported.
bool fails_alloc(char const* call);

/// How a call on a file can fail.
struct Traits {
  bool needs_space;
  bool is_lasting;
  bool may_be_interrupted;
  bool may_be_unready;
};
constexpr Traits opening{false, false, true, false};
constexpr Traits creating{true, false, true, false};
constexpr Traits reading{false, false, true, true};
constexpr Traits writing{true, true, true, true};
constexpr Traits reserving{true, true, true, false};
constexpr Traits syncing{true, false, true, false};
constexpr Traits naming{true, false, false, false};
constexpr Traits buffered_reading{false, false, false, false};
constexpr Traits buffered_writing{true, true, false, false};

/// The error that this call on `path`, or on the file of `descriptor`, fails with, or 0. `caller` is CALLER.
int failure_of(char const* call, char const* path, Traits traits, void* caller);
int failure_of(char const* call, int descriptor, Traits traits, void* caller);

/// The function of that name that this library stands before.
template<class Function>
Function* next(Function*, char const* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

} // namespace injection
#pragma GCC visibility pop

#define CALLER __builtin_return_address(0)
#define REAL(name) static auto* const real = injection::next(&::name, #name)
