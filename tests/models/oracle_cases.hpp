#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The cases of oracle/figures.json: their settings as the program takes them, and comparisons with the
// figures.

#include "formula_parameters.hpp"
#include "models_fixture.hpp"
#include "support/test_sources.hpp"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace orthant::testing {

/// Cases of the script in `folder`: "full" or "mini_batch".
inline nlohmann::json oracle_cases(std::filesystem::path const& folder, char const* kind) {
  return nlohmann::json::parse(std::ifstream(folder / "figures.json")).at(kind);
}

inline models::NetworkSettings model_of_case(nlohmann::json const& figures) {
  auto const& given = figures.at("model");
  models::NetworkSettings settings;
  settings.projected_width = given.at("projected_width").get<std::int64_t>();
  settings.hidden_widths = given.at("hidden_widths").get<std::vector<std::int64_t>>();
  settings.has_head = given.at("has_head").get<bool>();
  settings.has_bias = given.at("has_bias").get<bool>();
  settings.has_residuals = given.at("has_residuals").get<bool>();
  settings.norm = models::parse_norm(given.at("norm").get<std::string>());
  settings.dropout = given.at("dropout").get<double>();
  settings.seed = figures.at("seed").get<std::uint64_t>();
  return settings;
}

inline models::TrainSettings training_of_case(nlohmann::json const& figures) {
  auto const& given = figures.at("training");
  models::TrainSettings settings;
  settings.optimizer.kind = models::parse_optimizer(given.at("optimizer").get<std::string>());
  settings.optimizer.learning_rate = given.at("learning_rate").get<double>();
  settings.optimizer.momentum = given.value("momentum", 0.0);
  settings.weight_decay = given.at("weight_decay").get<double>();
  if (given.contains("weight_decay_first_layer"))
    settings.weight_decay_first_layer = given.at("weight_decay_first_layer").get<double>();
  if (given.contains("clip_norm")) settings.clip_norm = given.at("clip_norm").get<double>();
  settings.num_epochs = given.at("num_epochs").get<std::int64_t>();
  return settings;
}

inline graph::GraphStore store_of_case(runtime::Communicator const& comm, std::filesystem::path const& folder,
                                       nlohmann::json const& figures) {
  auto const graph = figures.at("graph").get<std::string>();
  if (graph == "karate") return store_of_dataset(comm, graph);
  return store_of_folder(comm, folder / graph);
}

/// The gradient norms of a step: of every matrix, in the order of the model's list.
template<class T>
void expect_gradient_norms(std::vector<double> const& found, nlohmann::json const& expected,
                           std::vector<models::Parameter<T>> const& parameters, double tolerance) {
  std::size_t next = 0;
  for (auto const& parameter : parameters) {
    if (parameter.is_vector()) continue;
    ASSERT_LT(next, found.size()) << "no norm of " << parameter.name;
    EXPECT_NEAR(found[next++], expected.at(parameter.name).template get<double>(), tolerance)
        << parameter.name;
  }
  EXPECT_EQ(next, found.size());
}

/// The norms of all parameters, and that they are the figures' and no others. Collective over the grid's
/// group.
template<class T>
void expect_parameter_norms(pmm::ProcessGrid const& grid, std::vector<models::Parameter<T>> const& parameters,
                            nlohmann::json const& expected, double tolerance) {
  std::vector<double> squares(parameters.size());
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto const& parameter = parameters[p];
    if (!(parameter.is_vector() ? parameter.vector.is_first_replica() : parameter.matrix.is_first_replica()))
      continue;
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for_each_element(parameter, [&](std::int64_t, std::int64_t, std::size_t place) {
      squares[p] += static_cast<double>(numbers(place)) * static_cast<double>(numbers(place));
    });
  }
  runtime::all_reduce(runtime::host, grid.group(), squares);
  EXPECT_EQ(expected.size(), parameters.size());
  for (std::size_t p = 0; p < parameters.size(); ++p)
    EXPECT_NEAR(std::sqrt(squares[p]), expected.at(parameters[p].name).template get<double>(), tolerance)
        << parameters[p].name;
}

} // namespace orthant::testing
