#include "mpi_communicator.h"

#if defined(_WIN32)
#include "error.h"
#else
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "communicator_table.h"
#include "error.h"
#include "reduction.h"
#include "schedule.h"
#endif

namespace rlx {

#if defined(_WIN32)

std::shared_ptr<Group> mpi_world(const std::vector<std::string>&) {
  throw Error("MPI", "Windows", "a system with the standard ABI of MPI");
}
std::shared_ptr<Group> mpi_split(const std::shared_ptr<Group>& group, int, int) { return group; }
void mpi_end() {}

#else

namespace {

// The standard ABI (MPI 5.0, chapter 20): handles are pointers, and those known beforehand are small
// numbers.
using Handle = void*;
using Count = int64_t;
Handle known(intptr_t number) { return reinterpret_cast<Handle>(number); }
const Handle kWorld = known(0x101), kNoInfo = known(0x130), kReturns = known(0x143),
             kByte = known(0x247), kInPlace = known(1);
constexpr int kThreadSerialized = 2048, kThreadMultiple = 4096, kTypeShared = 221, kLongestError = 512;

// From so many bytes on each rank combines a part for all of them.
constexpr int64_t kWhole = 8192;

struct Library {
  int (*initialized)(int*);
  int (*init_thread)(int*, char***, int, int*);
  int (*query_thread)(int*);
  int (*finalize)();
  int (*comm_rank)(Handle, int*);
  int (*comm_size)(Handle, int*);
  int (*comm_split)(Handle, int, int, Handle*);
  int (*comm_split_type)(Handle, int, int, Handle, Handle*);
  int (*comm_set_errhandler)(Handle, Handle);
  int (*win_allocate_shared)(intptr_t, int, Handle, Handle, void*, Handle*);
  int (*win_shared_query)(Handle, int, intptr_t*, int*, void*);
  int (*allgather)(const void*, int, Handle, void*, int, Handle, Handle);
  int (*iallgather)(const void*, Count, Handle, void*, Count, Handle, Handle, Handle*);
  int (*iallgatherv)(const void*, Count, Handle, void*, const Count*, const intptr_t*, Handle,
                     Handle, Handle*);
  int (*ialltoall)(const void*, Count, Handle, void*, Count, Handle, Handle, Handle*);
  int (*ialltoallv)(const void*, const Count*, const intptr_t*, Handle, void*, const Count*,
                    const intptr_t*, Handle, Handle, Handle*);
  int (*ibcast)(void*, Count, Handle, int, Handle, Handle*);
  int (*isend)(const void*, Count, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, Count, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);
  int (*error_string)(int, char*, int*);
  bool started = false;  // by this
  int threads = 0;       // a level of MPI: how threads may call it
  std::atomic<bool> failed{false};
};

Library* library = nullptr;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename F>
void find(void* loaded, const std::string& path, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(loaded, name));
  if (function == nullptr) {
    throw Error("'" + path + "'", std::string("no ") + name, "the standard ABI of MPI 5");
  }
}

void load(const std::vector<std::string>& paths) {
  if (library != nullptr) return;
  void* loaded = nullptr;
  std::string path, why;
  for (const std::string& name : paths) {
    loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
    path = name;
    if (loaded != nullptr) break;
    const char* said = dlerror();
    why = said == nullptr ? name : said;
  }
  if (loaded == nullptr) {
    throw Error("MPI", "no library (" + why + ")", "one with the standard ABI of MPI 5",
                "install one, as by `pip install mpich`, or name it in RLX_MPI");
  }
  auto made = std::make_unique<Library>();
  find(loaded, path, "MPI_Initialized", made->initialized);
  find(loaded, path, "MPI_Init_thread", made->init_thread);
  find(loaded, path, "MPI_Query_thread", made->query_thread);
  find(loaded, path, "MPI_Finalize", made->finalize);
  find(loaded, path, "MPI_Comm_rank", made->comm_rank);
  find(loaded, path, "MPI_Comm_size", made->comm_size);
  find(loaded, path, "MPI_Comm_split", made->comm_split);
  find(loaded, path, "MPI_Comm_split_type", made->comm_split_type);
  find(loaded, path, "MPI_Comm_set_errhandler", made->comm_set_errhandler);
  find(loaded, path, "MPI_Win_allocate_shared", made->win_allocate_shared);
  find(loaded, path, "MPI_Win_shared_query", made->win_shared_query);
  find(loaded, path, "MPI_Allgather", made->allgather);
  find(loaded, path, "MPI_Iallgather_c", made->iallgather);
  find(loaded, path, "MPI_Iallgatherv_c", made->iallgatherv);
  find(loaded, path, "MPI_Ialltoall_c", made->ialltoall);
  find(loaded, path, "MPI_Ialltoallv_c", made->ialltoallv);
  find(loaded, path, "MPI_Ibcast_c", made->ibcast);
  find(loaded, path, "MPI_Isend_c", made->isend);
  find(loaded, path, "MPI_Irecv_c", made->irecv);
  find(loaded, path, "MPI_Test", made->test);
  find(loaded, path, "MPI_Error_string", made->error_string);
  int running = 0, provided = 0;
  made->initialized(&running);
  if (running == 0) {
    if (made->init_thread(nullptr, nullptr, kThreadMultiple, &provided) != 0) {
      throw Error("MPI", "no start of '" + path + "'", "ranks that mpiexec has started");
    }
    made->started = true;
  }
  made->query_thread(&made->threads);
  library = made.release();
}

std::string said(int error) {
  char text[kLongestError + 1] = {};
  int length = 0;
  library->error_string(error, text, &length);
  return text;
}

void check(int error, const char* what) {
  if (error != 0) throw Error("MPI", std::string(what) + ": " + said(error), "no error");
}

// One rank of a communicator of MPI. Collectives move bytes, and are combined here: so bits are those
// of every other engine.
class Ranks {
 public:
  explicit Ranks(Handle comm) : comm_(comm) {
    check(library->comm_set_errhandler(comm, kReturns), "MPI_Comm_set_errhandler");
    check(library->comm_rank(comm, &rank), "MPI_Comm_rank");
    check(library->comm_size(comm, &ranks), "MPI_Comm_size");
    share_counters();
  }

  int all_reduce(const void* in, void* out, int64_t count, DType dtype, int32_t reduction,
                 rlx_wait* wait) {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    if (!begin(wait)) return status_;
    if (count * size <= kWhole) {
      std::byte* all = scratch(count * size * ranks);
      Handle request;
      if (started(library->iallgather(in, count * size, kByte, all, count * size, kByte, comm_,
                                      &request),
                  request)) {
        combine(dtype, reduction, all, count, out, count);
      }
      return status_;
    }
    const int64_t each = (count + ranks - 1) / ranks;
    const auto first = [&](int at) { return std::min(count, at * each); };
    const int64_t mine = first(rank + 1) - first(rank);
    std::byte* parts = scratch(mine * size * ranks);
    std::vector<Count> give, take;
    std::vector<intptr_t> from, to;
    for (int at = 0; at < ranks; ++at) {
      give.push_back((first(at + 1) - first(at)) * size);
      from.push_back(first(at) * size);
      take.push_back(mine * size);
      to.push_back(at * mine * size);
    }
    Handle request;
    if (!started(library->ialltoallv(in, give.data(), from.data(), kByte, parts, take.data(),
                                     to.data(), kByte, comm_, &request),
                 request)) {
      return status_;
    }
    combine(dtype, reduction, parts, mine, static_cast<std::byte*>(out) + first(rank) * size, mine);
    if (status_ != RLX_COMM_OK) return status_;
    started(library->iallgatherv(kInPlace, 0, kByte, out, give.data(), from.data(), kByte, comm_,
                                 &request),
            request);
    return status_;
  }

  int reduce_scatter(const void* in, void* out, int64_t count, DType dtype, rlx_wait* wait) {
    const int64_t bytes = count * static_cast<int64_t>(dtype_size(dtype));
    if (!begin(wait)) return status_;
    std::byte* parts = scratch(bytes * ranks);
    Handle request;
    if (started(library->ialltoall(in, bytes, kByte, parts, bytes, kByte, comm_, &request),
                request)) {
      combine(dtype, RLX_SUM, parts, count, out, count);
    }
    return status_;
  }

  int all_gather(const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    if (!begin(wait)) return status_;
    Handle request;
    started(library->iallgather(in, bytes, kByte, out, bytes, kByte, comm_, &request), request);
    return status_;
  }

  int all_to_all(const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    if (!begin(wait)) return status_;
    Handle request;
    started(library->ialltoall(in, bytes, kByte, out, bytes, kByte, comm_, &request), request);
    return status_;
  }

  int permute(const void* in, void* out, int64_t bytes, int32_t to, int32_t from, rlx_wait* wait) {
    if (!begin(wait)) return status_;
    Handle receive, send;
    const int received =
        from < 0 ? 0 : library->irecv(out, bytes, kByte, from, kTag, comm_, &receive);
    const int sent = to < 0 ? 0 : library->isend(in, bytes, kByte, to, kTag, comm_, &send);
    if (to >= 0 && !started(sent, send)) return status_;
    if (from >= 0) started(received, receive);
    return status_;
  }

  int broadcast(const void* in, void* out, int64_t bytes, int32_t root, rlx_wait* wait) {
    if (!begin(wait)) return status_;
    if (rank == root) std::memcpy(out, in, static_cast<size_t>(bytes));
    Handle request;
    started(library->ibcast(out, bytes, kByte, root, comm_, &request), request);
    return status_;
  }

  using Counter = std::atomic<uint32_t>;
  static_assert(Counter::is_always_lock_free, "processes share them");

  Handle comm() const { return comm_; }
  int rank = 0, ranks = 0;
  // Whether some ranks are on other machines.
  bool spread() const {
    return std::any_of(counters_.begin(), counters_.end(),
                       [](const Counter* counter) { return counter == nullptr; });
  }

 private:
  static constexpr int kTag = 7;

  // Memory of the ranks of this machine, in which each counts how often it has come: it says who is
  // late, though that one does nothing.
  void share_counters() {
    Handle node, window;
    check(library->comm_split_type(comm_, kTypeShared, rank, kNoInfo, &node),
          "MPI_Comm_split_type");
    int here = 0;
    check(library->comm_size(node, &here), "MPI_Comm_size");
    void* own = nullptr;
    check(library->win_allocate_shared(sizeof(Counter), 1, kNoInfo, node, &own, &window),
          "MPI_Win_allocate_shared");
    new (own) Counter(0);
    std::vector<int> named(static_cast<size_t>(here));
    check(library->allgather(&rank, sizeof rank, kByte, named.data(), sizeof rank, kByte, node),
          "MPI_Allgather");
    counters_.resize(static_cast<size_t>(ranks));
    for (int at = 0; at < here; ++at) {
      intptr_t size = 0;
      int unit = 0;
      void* data = nullptr;
      check(library->win_shared_query(window, at, &size, &unit, &data), "MPI_Win_shared_query");
      counters_[static_cast<size_t>(named[static_cast<size_t>(at)])] = static_cast<Counter*>(data);
    }
  }

  bool begin(rlx_wait* wait) {
    wait_ = wait;
    status_ = RLX_COMM_OK;
    if (broken_) {
      fail("an earlier collective of this group failed, and its ranks are no longer in step");
      return false;
    }
    counters_[static_cast<size_t>(rank)]->store(++times_, std::memory_order_release);
    return true;
  }

  void fail(const std::string& message) {
    status_ = RLX_COMM_FAILED;
    std::snprintf(wait_->message, sizeof wait_->message, "%s", message.c_str());
    end();
  }
  void end() {
    broken_ = true;
    library->failed = true;
  }

  std::byte* scratch(int64_t bytes) {
    if (scratch_.size() < static_cast<size_t>(bytes)) scratch_.resize(static_cast<size_t>(bytes));
    return scratch_.data();
  }

  void combine(DType dtype, int32_t reduction, const std::byte* parts, int64_t each, void* out,
               int64_t count) {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    std::vector<const void*> in;
    for (int at = 0; at < ranks; ++at) in.push_back(parts + at * each * size);
    if (!reduce(dtype, reduction, in.data(), ranks, out, count)) {
      fail(std::string("there is no such reduction of ") + dtype_name(dtype));
    }
  }

  // Waits for what was started; true when it is done.
  bool started(int error, Handle& request) {
    int done = 0;
    int64_t began = 0;
    for (int64_t turn = 0; error == 0; ++turn) {
      error = library->test(&request, &done, nullptr);
      if (done != 0 || error != 0) break;
      if (turn < 2000) continue;
      const int64_t now = now_ns();
      if (began == 0) began = now;
      if (now - began > wait_->limit_ns) return late();
      if (now - began < 5000000) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        if (turn % 64 == 0 && wait_->ends != nullptr && wait_->ends(wait_->asked) != 0) {
          status_ = RLX_COMM_INTERRUPTED;
          end();
          return false;
        }
      }
    }
    if (error == 0) return true;
    fail(said(error));
    return false;
  }

  bool late() {
    status_ = RLX_COMM_LATE;
    for (int at = 0; at < ranks; ++at) {
      const Counter* counter = counters_[static_cast<size_t>(at)];
      if (counter == nullptr) continue;  // of another machine
      if (static_cast<int32_t>(counter->load(std::memory_order_acquire) - times_) < 0) {
        wait_->late = at;
        break;
      }
    }
    end();
    return false;
  }

  const Handle comm_;
  std::vector<Counter*> counters_;  // by rank; null: of another machine
  uint32_t times_ = 0;
  std::vector<std::byte> scratch_;
  rlx_wait* wait_ = nullptr;
  int status_ = RLX_COMM_OK;
  bool broken_ = false;
};

std::shared_ptr<Group> group_of(Handle comm) {
  auto made = std::make_unique<Ranks>(comm);
  const rlx_communicator table = table_of(made.get(), made->rank, made->ranks);
  auto group = std::make_shared<Group>("MPI", table);
  group->one_thread = library->threads < kThreadSerialized;
  group->beside = made->spread() && !group->one_thread;
  made.release();
  return group;
}

}  // namespace

std::shared_ptr<Group> mpi_world(const std::vector<std::string>& libraries) {
  load(libraries);
  return group_of(kWorld);
}

std::shared_ptr<Group> mpi_split(const std::shared_ptr<Group>& group, int color, int key) {
  if (group->engine != "MPI") {
    throw Error("split", "a communicator of " + group->engine, "one of MPI");
  }
  Handle comm;
  check(library->comm_split(static_cast<Ranks*>(group->table.context)->comm(), color, key, &comm),
        "MPI_Comm_split");
  return group_of(comm);
}

void mpi_end() {
  if (library == nullptr || !library->started || library->failed) return;
  library->started = false;
  library->finalize();
}

#endif

}  // namespace rlx
