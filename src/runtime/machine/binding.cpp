// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/binding.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/observe/position.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sched.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime_api.h>
#elif defined(KOKKOS_ENABLE_HIP)
#include <hip/hip_runtime_api.h>
#endif

namespace orthant::runtime {

std::vector<int> allowed_cores() {
  // A mask of the default size holds 1,024 cores; the kernel refuses it on larger machines.
  for (int num_cores = 1024; num_cores <= 1 << 20; num_cores *= 2) {
    auto* const mask = CPU_ALLOC(static_cast<std::size_t>(num_cores));
    if (mask == nullptr) break;
    auto const size = CPU_ALLOC_SIZE(static_cast<std::size_t>(num_cores));
    std::vector<int> cores;
    auto const has_mask = sched_getaffinity(0, size, mask) == 0;
    for (int core = 0; has_mask && core < num_cores; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), size, mask)) cores.push_back(core);
    CPU_FREE(mask);
    if (has_mask) return cores;
  }
  return {};
}

std::int64_t num_cores_of(Communicator const& node) {
  auto const own = allowed_cores();
  std::vector<std::int64_t> is_allowed(static_cast<std::size_t>(
      all_reduced(node, own.empty() ? std::int64_t{0} : std::int64_t{own.back()} + 1, Reduction::max)));
  for (auto const core : own)
    is_allowed[static_cast<std::size_t>(core)] = 1;
  all_reduce(host, node, std::span(is_allowed), Reduction::max);
  return std::ranges::count(is_allowed, 1);
}

bool is_oversubscribed(Communicator const& comm) {
  auto const node = comm.split_by_node();
  auto const num_cores = num_cores_of(node);
  auto const is_here = num_cores > 0 && node.size() > num_cores;
  return all_reduced(comm, is_here ? 1 : 0, Reduction::max) == 1;
}

namespace {

template<std::size_t Size>
void assign(std::array<char, Size>& field, std::string_view text) {
  auto const fits = text.size() < Size;
  auto const length = fits ? text.size() : Size - 3;
  std::copy_n(text.data(), length, field.data());
  std::copy_n(fits ? "" : "..", fits ? 1 : 3, field.data() + length);
}

std::vector<int> numa_nodes_of(std::vector<int> const& cores) {
  std::vector<int> nodes;
  std::error_code error;
  auto const is_ours = [&](int core) { return std::ranges::binary_search(cores, core); };
  std::filesystem::path const folder = "/sys/devices/system/node";
  for (auto const& name : folder_entries(folder, error)) {
    int node = -1;
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ptr != name.data() + name.size())
      continue;
    std::string list;
    std::getline(std::ifstream(folder / name / "cpulist"), list);
    if (std::ranges::any_of(parse_cpu_list(list), is_ours)) nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  return nodes;
}

std::string pci_address([[maybe_unused]] int device) {
  [[maybe_unused]] std::array<char, 32> address{};
#if defined(KOKKOS_ENABLE_CUDA)
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) == cudaSuccess)
    return address.data();
#elif defined(KOKKOS_ENABLE_HIP)
  if (hipDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) == hipSuccess)
    return address.data();
#endif
  return {};
}

} // namespace

int num_visible_devices() {
  int count = 0;
#if defined(KOKKOS_ENABLE_CUDA)
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
#elif defined(KOKKOS_ENABLE_HIP)
  if (hipGetDeviceCount(&count) != hipSuccess) return 0;
#endif
  return count;
}

int current_device() {
  int device = -1;
#if defined(KOKKOS_ENABLE_CUDA)
  if (cudaGetDevice(&device) != cudaSuccess) return -1;
#elif defined(KOKKOS_ENABLE_HIP)
  if (hipGetDevice(&device) != hipSuccess) return -1;
#endif
  return device;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> numbers;
  auto const* at = text.data();
  auto const* const end = text.data() + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{}) break;
    int last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc{}) break;
    for (int number = first; number <= last; ++number)
      numbers.push_back(number);
    if (parsed.ptr == end || *parsed.ptr != ',') break;
    at = parsed.ptr + 1;
  }
  return numbers;
}

Binding find_binding(int rank, int node_rank, int device) {
  Binding binding;
  binding.rank = rank;
  binding.node_rank = node_rank;
  binding.device = device;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) std::strcpy(name.data(), "?");
  assign(binding.host, name.data());
  auto const cores = allowed_cores();
  assign(binding.cores, cores.empty() ? "?" : format_ranges(cores));
  auto const nodes = numa_nodes_of(cores);
  assign(binding.numa, nodes.empty() ? "-" : format_ranges(nodes));
  if (device >= 0) assign(binding.device_id, pci_address(device));
  return binding;
}

std::vector<Binding> gather_bindings(Communicator const& comm, Binding const& own) {
  static_assert(std::is_trivially_copyable_v<Binding>);
  std::vector<Binding> all(comm.is_root() ? static_cast<std::size_t>(comm.size()) : 0);
  WaitingScope const waiting(comm.instruments().position, "gather_bindings");
  ORTHANT_MPI(MPI_Gather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, 0, comm.mpi()));
  return all;
}

bool has_spare_cores(Communicator const& comm) {
  auto const node = comm.split_by_node();
  auto const own = allowed_cores();
  auto const num_cores = num_cores_of(node);
  auto const num_wanted = std::int64_t{Kokkos::DefaultHostExecutionSpace().concurrency()} + 1;
  auto const has_own = own.empty() || std::ssize(own) >= num_wanted;
  auto const all_have_own = all_reduced(node, has_own ? 1 : 0, Reduction::min) == 1;
  auto const num_wanted_by_all = all_reduced(node, num_wanted);
  return all_have_own && (num_cores == 0 || num_cores >= num_wanted_by_all);
}

std::string format_bindings(std::span<Binding const> bindings) {
  std::vector<std::array<std::string, 5>> rows{{"rank", "host", "cores", "numa", "device"}};
  for (auto const& b : bindings) {
    auto device = b.device < 0 ? std::string("-") : fmt::format("{} {}", b.device, b.device_id.data());
    while (device.ends_with(' '))
      device.pop_back();
    rows.push_back(
        {fmt::format("{}", b.rank), b.host.data(), b.cores.data(), b.numa.data(), std::move(device)});
  }
  std::array<std::size_t, 5> widths{};
  for (auto const& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string table;
  for (auto const& row : rows)
    table += fmt::format("{:>{}}  {:<{}}  {:<{}}  {:<{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2],
                         widths[2], row[3], widths[3], row[4]);
  return table;
}

std::vector<std::string> find_shared_devices(std::span<Binding const> bindings) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_of;
  for (auto const& b : bindings) {
    if (b.device < 0) continue;
    // Without an address, the device number is used.
    auto const device = b.device_id[0] != '\0' ? std::string(b.device_id.data()) : std::to_string(b.device);
    ranks_of[{b.host.data(), device}].push_back(b.rank);
  }
  std::vector<std::string> lines;
  for (auto const& [place, ranks] : ranks_of)
    if (ranks.size() > 1)
      lines.push_back(fmt::format("ranks {} share device {} of {}: start one rank a device",
                                  format_ranges(ranks), place.second, place.first));
  return lines;
}

} // namespace orthant::runtime
