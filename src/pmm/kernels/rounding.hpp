#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Conversion of arrays between fp32 and 16-bit formats (runtime/numbers/formats.hpp).

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

namespace orthant::pmm {

/// to[i] := from[i], rounded to nearest, ties to even. Number: runtime::Bf16Number or runtime::Fp16Number. Throws Error if `from` is
/// shorter than `to`, and on the host if a finite number does not fit fp16; on a device such a number becomes infinite. Enqueues on
/// exec; on the host it is complete on return. Cost: 6 bytes per number.
template<class Number>
void round_numbers(runtime::DefaultExec const& exec, runtime::Vector<float> const& from,
                   runtime::Vector<Number> const& to);

/// Like the function above, but a finite number that does not fit fp16 becomes infinite, as in results of products. Does not fence.
/// `label`: label of the kernel.
template<class Number>
void round_or_overflow(runtime::DefaultExec const& exec, char const* label,
                       runtime::Vector<float> const& from, runtime::Vector<Number> const& to);

/// to[i] := from[i], exactly. Throws Error unless both have the same length. Enqueues on exec; on the host it is complete on return.
template<class Number>
void widen_numbers(runtime::DefaultExec const& exec, runtime::Vector<Number> const& from,
                   runtime::Vector<float> const& to);

} // namespace orthant::pmm
