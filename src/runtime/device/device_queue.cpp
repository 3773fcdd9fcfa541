// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_queue.hpp"

#include <Kokkos_Macros.hpp>

namespace orthant::runtime {

DeviceQueue const& training_queue() {
  static auto const* const queue = new DeviceQueue; // never deleted: the device may end before statics do
  return *queue;
}

} // namespace orthant::runtime

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
#include "runtime/device/device_runtime.hpp"

#include <exception>

namespace orthant::runtime {
namespace {

using device::NativeStream;
using NativeGraph = ORTHANT_DEVICE_API(Graph_t);
using NativeGraphExec = ORTHANT_DEVICE_API(GraphExec_t);
using NativeNode = ORTHANT_DEVICE_API(GraphNode_t);
using NativeNodeType = ORTHANT_DEVICE_API(GraphNodeType);

struct DestroyGraph {
  void operator()(NativeGraph graph) const noexcept {
    static_cast<void>(ORTHANT_DEVICE_API(GraphDestroy)(graph));
  }
};
using Graph = UniqueHandle<NativeGraph, nullptr, DestroyGraph>;

/// CUDA and older HIP have different names for it.
template<class Attributes>
auto type_of(Attributes const& memory) {
  if constexpr (requires { memory.type; })
    return memory.type;
  else
    return memory.memoryType;
}

bool is_device_memory(void const* address) {
  device::PointerAttributes attributes{};
  return ORTHANT_DEVICE_API(PointerGetAttributes)(&attributes, address) == device::success &&
         type_of(attributes) == ORTHANT_DEVICE_API(MemoryTypeDevice);
}

/// A recorded copy from host memory reads the memory's content at the time of the launch, not of the recording. This includes the arguments
/// of Kokkos's large kernels (more than 512 bytes), which go through a buffer that all kernels share.
void require_device_copies(NativeGraph graph) {
  std::size_t count = 0;
  ORTHANT_DEVICE(GraphGetNodes(graph, nullptr, &count));
  std::vector<NativeNode> nodes(count);
  ORTHANT_DEVICE(GraphGetNodes(graph, nodes.data(), &count));
  for (auto* const node : nodes) {
    NativeNodeType type{};
    ORTHANT_DEVICE(GraphNodeGetType(node, &type));
    if (type != ORTHANT_DEVICE_API(GraphNodeTypeMemcpy)) continue;
    ORTHANT_DEVICE_API(Memcpy3DParms) copy{};
    ORTHANT_DEVICE(GraphMemcpyNodeGetParams(node, &copy));
    if (copy.srcPtr.ptr == nullptr || copy.dstPtr.ptr == nullptr)
      throw_internal("it has a copy that cannot be looked into", std::source_location::current());
    if (!is_device_memory(copy.srcPtr.ptr) || !is_device_memory(copy.dstPtr.ptr))
      throw_internal("it copies from or to host memory", std::source_location::current());
  }
}

/// Records what `enqueue` enqueues. Ends the capture also if `enqueue` throws, so that the queue stays usable.
Graph record(NativeStream stream, std::function<void()> const& enqueue) {
  // The capture concerns this thread only, because another thread may allocate at the same time.
  ORTHANT_DEVICE(StreamBeginCapture(stream, ORTHANT_DEVICE_API(StreamCaptureModeThreadLocal)));
  NativeGraph graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    static_cast<void>(ORTHANT_DEVICE_API(StreamEndCapture)(stream, &graph));
    Graph const unfinished(graph);
    throw;
  }
  ORTHANT_DEVICE(StreamEndCapture(stream, &graph));
  return Graph(graph);
}

} // namespace

void DeviceQueue::Destroy::operator()(void* stream) const noexcept {
  static_cast<void>(ORTHANT_DEVICE_API(StreamDestroy)(static_cast<NativeStream>(stream)));
}

DeviceQueue::DeviceQueue() {
  NativeStream stream = nullptr;
  ORTHANT_DEVICE(StreamCreateWithFlags(&stream, ORTHANT_DEVICE_API(StreamNonBlocking)));
  stream_ = decltype(stream_)(stream);
}

void DeviceGraph::Destroy::operator()(void* graph) const noexcept {
  static_cast<void>(ORTHANT_DEVICE_API(GraphExecDestroy)(static_cast<NativeGraphExec>(graph)));
}

std::string DeviceGraph::capture(DeviceQueue const& queue, std::function<void()> const& enqueue) {
  graph_.reset();
  try {
    auto const recorded = record(static_cast<NativeStream>(queue.native()), enqueue);
    require_device_copies(recorded.get());
    NativeGraphExec graph = nullptr;
    ORTHANT_DEVICE(GraphInstantiateWithFlags(&graph, recorded.get(), 0));
    graph_ = decltype(graph_)(graph);
    return {};
  } catch (std::exception const& error) {
    static_cast<void>(ORTHANT_DEVICE_API(GetLastError)()); // clears the error for the next check
    return error.what();
  }
}

void DeviceGraph::launch(DeviceQueue const& queue) const {
  ORTHANT_DEVICE(
      GraphLaunch(static_cast<NativeGraphExec>(graph_.get()), static_cast<NativeStream>(queue.native())));
}

} // namespace orthant::runtime

#else
namespace orthant::runtime {

void DeviceQueue::Destroy::operator()(void*) const noexcept {}
DeviceQueue::DeviceQueue() = default;
void DeviceGraph::Destroy::operator()(void*) const noexcept {}
std::string DeviceGraph::capture(DeviceQueue const&, std::function<void()> const&) {
  return "this build has no device backend";
}
void DeviceGraph::launch(DeviceQueue const&) const {}

} // namespace orthant::runtime
#endif

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
#include "runtime/device/device_runtime.hpp"

namespace orthant::runtime {

void DeviceClock::DestroyEvent::operator()(void* event) const noexcept {
  static_cast<void>(ORTHANT_DEVICE_API(EventDestroy)(static_cast<device::NativeEvent>(event)));
}

std::shared_ptr<DeviceClock> DeviceClock::create(void* native_stream) {
  return std::shared_ptr<DeviceClock>(native_stream == nullptr ? nullptr : new DeviceClock(native_stream));
}

std::size_t DeviceClock::stamp() {
  if (num_stamps_ == events_.size()) {
    device::NativeEvent event = nullptr;
    ORTHANT_DEVICE(EventCreate(&event));
    events_.emplace_back(event);
  }
  ORTHANT_DEVICE(EventRecord(static_cast<device::NativeEvent>(events_[num_stamps_].get()),
                             static_cast<device::NativeStream>(stream_)));
  return num_stamps_++;
}

double DeviceClock::seconds(std::size_t begin, std::size_t end) const {
  auto milliseconds = 0.0F;
  ORTHANT_DEVICE(EventElapsedTime(&milliseconds, static_cast<device::NativeEvent>(events_[begin].get()),
                                  static_cast<device::NativeEvent>(events_[end].get())));
  return static_cast<double>(milliseconds) / 1000;
}

} // namespace orthant::runtime

#else
namespace orthant::runtime {

void DeviceClock::DestroyEvent::operator()(void*) const noexcept {}
std::shared_ptr<DeviceClock> DeviceClock::create(void*) {
  return nullptr;
}
std::size_t DeviceClock::stamp() {
  return num_stamps_++;
}
double DeviceClock::seconds(std::size_t, std::size_t) const {
  return 0;
}

} // namespace orthant::runtime
#endif
