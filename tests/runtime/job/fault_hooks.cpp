// SPDX-License-Identifier: Apache-2.0
//
// Failures of MPI, of memory and of threads in fault_program, in place of the real functions:
// ORTHANT_TEST_FAULT="WHAT NUMBER RANK" makes the NUMBERth call of WHAT after MPI_Init fail on that rank (-1:
// on all).
//   dup     MPI_Comm_dup        size    MPI_Comm_size      thread  pthread_create
//   new     operator new        init    MPI_Init_thread    (each call counts from the start of the process)
//   probe   MPI_Iprobe takes NUMBER milliseconds, every time: a watchdog that answers late

#include "support/forms_of_new.inc"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mpi.h>
#include <new>
#include <pthread.h>
#include <thread>

namespace {

struct Fault {
  char what[16] = "";
  long number = 0;
  long rank = 0;
};

Fault read_fault() {
  Fault fault;
  auto const* const text = std::getenv("ORTHANT_TEST_FAULT");
  if (text == nullptr) return fault;
  auto const length = std::strcspn(text, " ");
  std::memcpy(fault.what, text, length < sizeof fault.what ? length : 0);
  char* end = nullptr;
  fault.number = std::strtol(text + length, &end, 10);
  fault.rank = std::strtol(end, nullptr, 10);
  return fault;
}

std::atomic<bool> is_armed{false}; // MPI runs, and this rank is meant
std::atomic<long> num_calls{0};

Fault const& fault() {
  static Fault const of_process = read_fault();
  return of_process;
}

bool is_about(char const* what) {
  return is_armed.load() && std::strcmp(fault().what, what) == 0;
}

bool fails(char const* what) {
  return is_about(what) && ++num_calls == fault().number;
}

void arm() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  is_armed = fault().rank < 0 || rank == fault().rank;
}

} // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  auto const* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (std::strcmp(fault().what, "init") == 0 && rank != nullptr && std::atol(rank) == fault().rank)
    return MPI_ERR_OTHER;
  int const code = PMPI_Init_thread(argc, argv, required, provided);
  arm();
  return code;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  return fails("dup") ? MPI_ERR_INTERN : PMPI_Comm_dup(comm, copy);
}

int MPI_Comm_size(MPI_Comm comm, int* size) {
  return fails("size") ? MPI_ERR_COMM : PMPI_Comm_size(comm, size);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  if (is_about("probe")) std::this_thread::sleep_for(std::chrono::milliseconds(fault().number));
  return PMPI_Iprobe(source, tag, comm, flag, status);
}

int pthread_create(pthread_t* thread, pthread_attr_t const* attributes, void* (*body)(void*),
                   void* argument) {
  if (fails("thread")) return EAGAIN;
  static auto const real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}

} // extern "C"

void* operator new(std::size_t size) {
  if (fails("new")) throw std::bad_alloc();
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
