#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Why a job failed, in the words of its log.

#include <string>

namespace orthant::cli {

/// The first line of the program's own error. If there is none, the first line of the log that explains the end: an error of the
/// scheduler, of the launcher or of the shell, with the rest of its sentence if the launcher breaks it into lines. Else the
/// last line, with what the launcher says of any failure; empty if there is no line.
[[nodiscard]] std::string reason_in_log(std::string const& log);

} // namespace orthant::cli
