#include "nccl_communicator.h"

#include "error.h"

#if defined(_WIN32)

namespace rlx {

std::shared_ptr<Group> on_gpu(const std::shared_ptr<Group>&, const Gpu& gpu, rlx_wait) {
  throw Error(gpu.engine, "Windows", "a system that has it", gpu.hint);
}

}  // namespace rlx

#else

#include <dlfcn.h>
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "communicator_table.h"
#include "schedule.h"

namespace rlx {

namespace {

// NCCL's interface (nccl.h): handles are pointers, types and reductions numbers.
using Handle = void*;
struct UniqueId {
  char bytes[128];
};
constexpr int kSuccess = 0, kInProgress = 7, kByte = 0;
constexpr int kReductions[] = {0, 1, 3, 2};  // by rlx_reduction

// Of the drivers of both kinds of GPUs: a stream has work left.
constexpr int kNotReady = 600;

struct Library {
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank)(Handle*, int, UniqueId, int);
  int (*comm_destroy)(Handle);
  int (*comm_abort)(Handle);
  int (*comm_get_async_error)(Handle, int*);
  const char* (*get_error_string)(int);
  int (*all_reduce)(const void*, void*, size_t, int, int, Handle, void*);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Handle, void*);
  int (*all_gather)(const void*, void*, size_t, int, Handle, void*);
  int (*broadcast)(const void*, void*, size_t, int, int, Handle, void*);
  int (*send)(const void*, size_t, int, int, Handle, void*);
  int (*recv)(void*, size_t, int, int, Handle, void*);
  int (*group_start)();
  int (*group_end)();
};

template <typename F>
void find(void* loaded, const std::string& path, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(loaded, name));
  if (function == nullptr) {
    throw Error("'" + path + "'", std::string("no ") + name, "NCCL's interface, of 2.7 or later");
  }
}

Library read(void* loaded, const std::string& path) {
  Library made{};
  find(loaded, path, "ncclGetUniqueId", made.get_unique_id);
  find(loaded, path, "ncclCommInitRank", made.comm_init_rank);
  find(loaded, path, "ncclCommDestroy", made.comm_destroy);
  find(loaded, path, "ncclCommAbort", made.comm_abort);
  find(loaded, path, "ncclCommGetAsyncError", made.comm_get_async_error);
  find(loaded, path, "ncclGetErrorString", made.get_error_string);
  find(loaded, path, "ncclAllReduce", made.all_reduce);
  find(loaded, path, "ncclReduceScatter", made.reduce_scatter);
  find(loaded, path, "ncclAllGather", made.all_gather);
  find(loaded, path, "ncclBroadcast", made.broadcast);
  find(loaded, path, "ncclSend", made.send);
  find(loaded, path, "ncclRecv", made.recv);
  find(loaded, path, "ncclGroupStart", made.group_start);
  find(loaded, path, "ncclGroupEnd", made.group_end);
  return made;
}

// The first of the libraries that can be loaded, once for each of its names.
const Library& library_of(const Gpu& gpu) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, Library>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string why;
  for (const std::string& path : gpu.libraries) {
    const auto found = known->find(path);
    if (found != known->end()) return found->second;
    void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded != nullptr) return known->emplace(path, read(loaded, path)).first->second;
    const char* said = dlerror();
    why += (why.empty() ? "" : "; ") + (said == nullptr ? path : std::string(said));
  }
  throw Error(gpu.engine, "no library (" + why + ")", "one with NCCL's interface", gpu.hint);
}

// What elements of a type are for a reduction: a type of NCCL's, and how many of it are one.
struct Elements {
  int type, each;
};

bool elements_of(DType dtype, int32_t reduction, Elements& found) {
  switch (dtype) {
    case DType::kF16: found = {6, 1}; return true;
    case DType::kBF16: found = {9, 1}; return true;
    case DType::kF32: found = {7, 1}; return true;
    case DType::kF64: found = {8, 1}; return true;
    case DType::kI8: found = {0, 1}; return true;
    case DType::kI32: found = {2, 1}; return true;
    case DType::kI64: found = {4, 1}; return true;
    case DType::kU8: found = {1, 1}; return true;
    case DType::kU32: found = {3, 1}; return true;
    case DType::kU64: found = {5, 1}; return true;
    case DType::kBool: found = {1, 1}; return reduction != RLX_SUM;
    case DType::kC64: found = {7, 2}; return reduction == RLX_SUM;
    case DType::kC128: found = {8, 2}; return reduction == RLX_SUM;
    default: return false;
  }
}

// NCCL's least and largest of floats leave out nan, where RLX's are nan.
bool leaves_out_nan(DType dtype, int32_t reduction) {
  const bool floats = dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
                      dtype == DType::kF64;
  return floats && (reduction == RLX_MIN || reduction == RLX_MAX);
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// One rank of a communicator of NCCL. Before each collective the ranks come together on the host,
// which has a limit and names a rank that is late; NCCL waits for ever, and names none.
class Ranks {
 public:
  Ranks(const std::shared_ptr<Group>& host, const Gpu& gpu, const Library& library, Handle comm)
      : host_(host), gpu_(gpu), library_(library), comm_(comm), ranks_(host->table.ranks) {}
  ~Ranks() {
    if (comm_ != nullptr) library_.comm_destroy(comm_);
  }

  int all_reduce(const void* in, void* out, int64_t count, DType dtype, int32_t reduction,
                 rlx_wait* wait) {
    if (leaves_out_nan(dtype, reduction)) return by_host(in, out, count, dtype, reduction, wait);
    Elements of{};
    if (!elements_of(dtype, reduction, of)) return refuse(dtype, wait);
    return carry_out(wait, [&] {
      return library_.all_reduce(in, out, elements(count, of), of.type, kReductions[reduction],
                                 comm_, gpu_.stream);
    });
  }

  int reduce_scatter(const void* in, void* out, int64_t count, DType dtype, rlx_wait* wait) {
    Elements of{};
    if (!elements_of(dtype, RLX_SUM, of)) return refuse(dtype, wait);
    return carry_out(wait, [&] {
      return library_.reduce_scatter(in, out, elements(count, of), of.type, kReductions[RLX_SUM],
                                     comm_, gpu_.stream);
    });
  }

  int all_gather(const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    return carry_out(wait, [&] {
      return library_.all_gather(in, out, static_cast<size_t>(bytes), kByte, comm_, gpu_.stream);
    });
  }

  int all_to_all(const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    return carry_out(wait, [&] {
      return together([&](int error) {
        for (int at = 0; at < ranks_ && error == kSuccess; ++at) {
          error = sent(static_cast<const std::byte*>(in) + at * bytes, bytes, at);
          if (error == kSuccess) error = got(static_cast<std::byte*>(out) + at * bytes, bytes, at);
        }
        return error;
      });
    });
  }

  int permute(const void* in, void* out, int64_t bytes, int32_t to, int32_t from, rlx_wait* wait) {
    return carry_out(wait, [&] {
      return together([&](int error) {
        if (error == kSuccess && to >= 0) error = sent(in, bytes, to);
        if (error == kSuccess && from >= 0) error = got(out, bytes, from);
        return error;
      });
    });
  }

  int broadcast(const void* in, void* out, int64_t bytes, int32_t root, rlx_wait* wait) {
    return carry_out(wait, [&] {
      return library_.broadcast(in, out, static_cast<size_t>(bytes), kByte, root, comm_,
                                gpu_.stream);
    });
  }

  int put(void* out, const void* data, int64_t bytes, rlx_wait* wait) {
    const int error = gpu_.copy_in(out, data, static_cast<size_t>(bytes), gpu_.stream);
    return error == 0 ? finished(wait) : driver_failed(error, wait);
  }

 private:
  static size_t elements(int64_t count, Elements of) {
    return static_cast<size_t>(count) * static_cast<size_t>(of.each);
  }

  int sent(const void* data, int64_t bytes, int to) {
    return library_.send(data, static_cast<size_t>(bytes), kByte, to, comm_, gpu_.stream);
  }
  int got(void* data, int64_t bytes, int from) {
    return library_.recv(data, static_cast<size_t>(bytes), kByte, from, comm_, gpu_.stream);
  }

  // Messages that are begun together, so that none waits for another.
  template <typename Messages>
  int together(Messages messages) {
    const int error = messages(library_.group_start());
    const int ended = library_.group_end();
    return error == kSuccess ? ended : error;
  }

  int by_host(const void* in, void* out, int64_t count, DType dtype, int32_t reduction,
              rlx_wait* wait) {
    const std::shared_ptr<Group> host = host_.lock();
    if (host == nullptr) return failed("its ranks have left", wait);
    const int64_t bytes = count * static_cast<int64_t>(dtype_size(dtype));
    std::vector<std::byte> own(static_cast<size_t>(bytes)), all(own.size());
    const int error = gpu_.copy_out(own.data(), in, own.size(), gpu_.stream);
    if (error != 0) return driver_failed(error, wait);
    int status = finished(wait);
    if (status != RLX_COMM_OK) return status;
    const rlx_communicator& table = host->table;
    status = table.all_reduce(table.context, own.data(), all.data(), count,
                              static_cast<int32_t>(dtype), reduction, wait);
    return status == RLX_COMM_OK ? put(out, all.data(), bytes, wait) : status;
  }

  template <typename Start>
  int carry_out(rlx_wait* wait, Start start) {
    if (comm_ == nullptr) {
      return failed("an earlier collective of this group failed, and its ranks are no longer in step",
                    wait);
    }
    const std::shared_ptr<Group> host = host_.lock();
    if (host == nullptr) return failed("its ranks have left", wait);
    char here = 0;
    std::vector<char> all(static_cast<size_t>(ranks_));
    const int status = host->table.all_gather(host->table.context, &here, all.data(), 1, wait);
    if (status != RLX_COMM_OK) {
      give_up();
      return status;
    }
    const int error = start();
    return error == kSuccess ? finished(wait) : failed(library_.get_error_string(error), wait);
  }

  // Ends what is in the stream, at once: until then it is never done, and whoever waits for it, as a
  // driver does before it frees memory, waits for ever.
  void give_up() {
    if (comm_ != nullptr) library_.comm_abort(comm_);
    comm_ = nullptr;
  }

  // Waits for the stream.
  int finished(rlx_wait* wait) {
    const int64_t began = now_ns();
    for (int64_t turn = 1;; ++turn) {
      const int state = gpu_.query(gpu_.stream);
      if (state == 0) return RLX_COMM_OK;
      if (state != kNotReady) return driver_failed(state, wait);
      if (turn % 256 != 0) {
        sched_yield();
        continue;
      }
      int error = kSuccess;
      const int asked = library_.comm_get_async_error(comm_, &error);
      if (asked != kSuccess) error = asked;
      if (error != kSuccess && error != kInProgress) {
        return failed(library_.get_error_string(error), wait);
      }
      if (now_ns() - began > wait->limit_ns) {
        give_up();
        return RLX_COMM_LATE;
      }
      if (wait->ends != nullptr && wait->ends(wait->asked) != 0) {
        give_up();
        return RLX_COMM_INTERRUPTED;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  int driver_failed(int error, rlx_wait* wait) {
    return failed("the GPU's driver reports error " + std::to_string(error), wait);
  }
  int refuse(DType dtype, rlx_wait* wait) {
    std::snprintf(wait->message, sizeof wait->message,
                  "%s has no such reduction of %s; RLX_NCCL=host has it go by way of the host",
                  gpu_.engine.c_str(), dtype_name(dtype));
    return RLX_COMM_FAILED;
  }
  int failed(const std::string& message, rlx_wait* wait) {
    give_up();
    std::snprintf(wait->message, sizeof wait->message, "%s: %s", gpu_.engine.c_str(),
                  message.c_str());
    return RLX_COMM_FAILED;
  }

  const std::weak_ptr<Group> host_;
  const Gpu gpu_;
  const Library& library_;
  Handle comm_;  // null once a collective failed
  const int ranks_;
};

}  // namespace

std::shared_ptr<Group> on_gpu(const std::shared_ptr<Group>& host, const Gpu& gpu, rlx_wait wait) {
  if (host->on_gpu != nullptr && host->stream == gpu.stream) return host->on_gpu;
  const Library& library = library_of(gpu);
  const auto refuse = [&](const std::string& found) {
    throw Error(gpu.engine, found, "a group of " + std::to_string(host->table.ranks) + " ranks",
                "each rank needs a GPU of its own, or set RLX_NCCL=host");
  };
  UniqueId own{}, first{};
  int error = host->table.rank == 0 ? library.get_unique_id(&own) : kSuccess;
  if (error != kSuccess) refuse(library.get_error_string(error));
  const int status =
      host->table.broadcast(host->table.context, &own, &first, sizeof first, 0, &wait);
  if (status != RLX_COMM_OK) refuse(comm_message(status, wait, *host));
  Handle comm = nullptr;
  error = library.comm_init_rank(&comm, host->table.ranks, first, host->table.rank);
  if (error != kSuccess) refuse(library.get_error_string(error));
  auto made = std::make_unique<Ranks>(host, gpu, library, comm);
  rlx_communicator table = table_of(made.get(), host->table.rank, host->table.ranks);
  table.put = [](void* of, void* out, const void* data, int64_t bytes, rlx_wait* late) {
    return static_cast<Ranks*>(of)->put(out, data, bytes, late);
  };
  host->on_gpu = std::make_shared<Group>(gpu.engine, table);
  host->stream = gpu.stream;
  made.release();
  return host->on_gpu;
}

}  // namespace rlx

#endif
