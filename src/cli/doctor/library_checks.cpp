// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/library_checks.hpp"

#include "pmm/cost/machine_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

std::string text_of(char const* value) {
  return value == nullptr ? std::string() : std::string(value);
}

/// Of libraries for messages: each names a file or a folder.
constexpr std::array file_variables{"NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "FI_PROVIDER_PATH",
                                    "MPICH_RANK_REORDER_FILE"};
/// Of Orthant: each names a machine or a file.
constexpr std::array machine_variables{"ORTHANT_MACHINE", "ORTHANT_EMULATE"};

} // namespace

Diagnosis check_blas(pmm::BlasLibrary const& library, runtime::Processor const& processor,
                     Variable const& variable) {
  Diagnosis check{"BLAS", fmt::format("{}{} on {}", library.name,
                                      library.core.empty() ? "" : ", kernels of " + library.core,
                                      processor.name.empty() ? "this processor" : processor.name)};
  if (!pmm::has_slow_core(library, processor)) return check;
  auto const better = pmm::better_core(library, processor, std::nullopt);
  auto const coretype = text_of(variable("OPENBLAS_CORETYPE"));
  check.findings.push_back(
      {fmt::format("the kernels of {} use {}, and the processor has {}", library.core,
                   name_of(pmm::vectors_of_core(library.core)), name_of(processor.vectors)),
       !better            ? "it was built for these alone: use an OpenBLAS that was built with DYNAMIC_ARCH=1"
       : coretype.empty() ? fmt::format("set OPENBLAS_CORETYPE={}", *better)
                          : fmt::format("unset OPENBLAS_CORETYPE, which is {}: the program then takes {}",
                                        coretype, *better)});
  return check;
}

Diagnosis check_device_mpi(bool has_devices, bool is_device_aware) {
  if (!has_devices) return {"GPU-aware MPI", "not needed: ranks compute on host processors"};
  Diagnosis check{"GPU-aware MPI",
                  is_device_aware ? "MPI reads device memory" : "MPI reads host memory only"};
  if (!is_device_aware)
    check.findings.push_back({"messages of devices are copied through host memory",
                              "set MPICH_GPU_SUPPORT_ENABLED=1 (Cray MPICH), take an Open MPI that was built "
                              "with CUDA or ROCm, or build "
                              "with ORTHANT_ENABLE_NCCL"});
  return check;
}

Diagnosis check_nccl(bool has_nccl, int num_hosts, bool has_slingshot, Variable const& variable,
                     std::function<bool(std::string const&)> const& can_load) {
  if (!has_nccl) return {"NCCL", "not in this build"};
  auto const plugin = text_of(variable("NCCL_NET_PLUGIN"));
  if (plugin == "none") return {"NCCL", "its network plug-in is turned off by NCCL_NET_PLUGIN=none"};
  auto const file = plugin.empty()                            ? std::string("libnccl-net.so")
                    : plugin.find(".so") != std::string::npos ? plugin
                                                              : fmt::format("libnccl-net-{}.so", plugin);
  auto const is_there = can_load(file);
  Diagnosis check{"NCCL",
                  fmt::format("network plug-in {} {}", file, is_there ? "can be loaded" : "is not there")};
  if (is_there) return check;
  if (!plugin.empty())
    check.findings.push_back(
        {fmt::format("NCCL_NET_PLUGIN={}, but {} cannot be loaded: NCCL falls back to sockets", plugin, file),
         "put its folder in LD_LIBRARY_PATH, or unset NCCL_NET_PLUGIN"});
  else if (has_slingshot && num_hosts > 1)
    check.findings.push_back(
        {"the network is Slingshot, and NCCL has no plug-in for it: it falls back to sockets",
         "load the module of aws-ofi-nccl (aws-ofi-rccl), or put its folder in LD_LIBRARY_PATH"});
  return check;
}

bool is_known_machine(std::string const& name_or_path) {
  auto const machines = pmm::built_in_machines();
  return std::ranges::find(machines, name_or_path, &pmm::BuiltInMachine::name) != machines.end() ||
         std::filesystem::exists(name_or_path);
}

Diagnosis check_fabric_files(std::string const& machine, Variable const& variable) {
  Diagnosis check{"fabric files", ""};
  std::vector<std::string> found;
  for (auto const* const name : file_variables) {
    auto const path = text_of(variable(name));
    if (path.empty()) continue;
    if (std::filesystem::exists(path))
      found.emplace_back(name);
    else
      check.findings.push_back(
          {fmt::format("{} names '{}', which is not there", name, path),
           fmt::format("correct it, or unset {}: the library then finds out by itself", name)});
  }
  auto const add_machine = [&](std::string const& name, std::string const& value) {
    if (value.empty()) return;
    std::vector<std::string_view> names;
    for (auto const& each : pmm::built_in_machines())
      names.push_back(each.name);
    if (is_known_machine(value))
      found.push_back(name);
    else
      check.findings.push_back(
          {fmt::format("{} names the machine file '{}', which is not there", name, value),
           fmt::format(
               "give one of {}, or write a file with `mpirun -n 2 orthant bench machine -o FILE.toml`",
               fmt::join(names, ", "))});
  };
  add_machine("--machine", machine);
  for (auto const* const name : machine_variables)
    if (auto const value = text_of(variable(name)); value != machine) add_machine(name, value);
  check.fact = found.empty() ? "none is named" : fmt::format("{} found", fmt::join(found, ", "));
  if (!check.findings.empty() && found.empty()) check.fact = "named, and missing";
  return check;
}

} // namespace orthant::cli
