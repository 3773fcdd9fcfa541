// SPDX-License-Identifier: Apache-2.0
//
// A configuration file in TOML, against the options of two commands.

#include "runtime/job/config.hpp"
#include "fuzz/fuzz_target.hpp"

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant::runtime;
  static std::vector<CommandDescription> const commands{{"train",
                                                         {{"graph", ValueKind::text},
                                                          {"hidden", ValueKind::integer},
                                                          {"lr", ValueKind::number},
                                                          {"bias", ValueKind::flag},
                                                          {"batch", ValueKind::integer_or_word},
                                                          {"sampler", ValueKind::text},
                                                          {"batch-edges", ValueKind::text},
                                                          {"roc-auc", ValueKind::flag},
                                                          {"random-split", ValueKind::list}}},
                                                        {"bench collectives", {{"sizes", ValueKind::text}}}};
  return orthant::fuzz::accept_or_refuse([&] {
    for (auto const& command : commands) {
      auto const settings =
          parse_settings(orthant::fuzz::text_of(data, size), "run.toml", {}, command.name, commands);
      static_cast<void>(resolved_json(settings, command).dump());
    }
  });
}
