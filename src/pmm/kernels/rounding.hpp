#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of numbers in 16 bits (runtime/numbers/formats.hpp).

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

namespace orthant::pmm {

/// to[i] := from[i], rounded to nearest, ties to even. `from` is as long as `to` or longer (Error).
/// Number: runtime::Bf16Number or runtime::Fp16Number. Throws Error if a finite number does not fit fp16; on a
/// device it becomes infinite. Enqueues on exec; on the host it is complete on return. Cost: 6 bytes per number.
template<class Number>
void round_numbers(runtime::DefaultExec const& exec, runtime::Vector<float> const& from,
                   runtime::Vector<Number> const& to);

/// The same, but a finite number that does not fit fp16 becomes infinite, as in results of products. Waits for nothing.
/// `label`: of the kernel.
template<class Number>
void round_or_overflow(runtime::DefaultExec const& exec, char const* label,
                       runtime::Vector<float> const& from, runtime::Vector<Number> const& to);

/// to[i] := from[i], which loses nothing. As long (Error). Enqueues on exec; on the host it is complete on return.
template<class Number>
void widen_numbers(runtime::DefaultExec const& exec, runtime::Vector<Number> const& from,
                   runtime::Vector<float> const& to);

} // namespace orthant::pmm
