// SPDX-License-Identifier: Apache-2.0
#include "runtime/error.hpp"
#include "tokens/documents/documents.hpp"

namespace orthant::tokens::detail {

std::unique_ptr<ByteStream> open_zstd(std::filesystem::path const& path) {
  runtime::throw_user("cannot read {}: this orthant was built without libzstd; `zstd -d` decompresses it",
                      path.string());
}

} // namespace orthant::tokens::detail
