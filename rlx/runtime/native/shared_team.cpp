#include "shared_team.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "communicator_table.h"
#include "error.h"
#include "futex.h"
#include "memory.h"
#include "reduction.h"
#include "schedule.h"

namespace rlx {

namespace {

// Bytes of a rank that pass through the shared memory at a time.
constexpr int64_t kChunk = 256 * 1024;
// From so many ranks and bytes on a rank combines a part for all of them.
constexpr int32_t kManyRanks = 3;
constexpr int64_t kPart = 4096;
constexpr int32_t kMostSeats = 1024;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What a rank does, which must be what the others do.
struct Deed {
  int32_t kind, dtype, detail, unused;
  int64_t bytes;

  bool operator!=(const Deed& other) const { return std::memcmp(this, &other, sizeof other) != 0; }
};

enum Kind : int32_t { kReduces = 1, kScatters, kGathers, kExchanges, kMoves, kSpreads };
const char* const kNames[] = {"nothing",    "all_reduce", "reduce_scatter", "all_gather",
                              "all_to_all", "permute",    "broadcast"};

// What a rank shows the others. All zeros are its beginning, so that a new file is a team.
struct alignas(kCacheLine) Seat {
  std::atomic<uint32_t> came;  // how many times
  std::atomic<uint32_t> left;  // not 0: it failed, and comes no more
  Deed deeds[2];               // of its last two
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share them");

// The shared memory: seats, then two rows of chunks. A rank that writes a row has met all that read
// it before: they were in the other row in between. So a chunk takes one meeting.
class Memory {
 public:
  Memory(std::byte* data, int32_t ranks) : data_(data), ranks_(ranks) {}

  static size_t size(int32_t ranks) {
    const auto n = static_cast<size_t>(ranks);
    return n * sizeof(Seat) + 2 * n * static_cast<size_t>(kChunk);
  }
  Seat& seat(int32_t rank) { return reinterpret_cast<Seat*>(data_)[rank]; }
  std::byte* chunk(uint32_t row, int32_t rank) {
    return data_ + static_cast<size_t>(ranks_) * sizeof(Seat) +
           (static_cast<size_t>(row & 1) * static_cast<size_t>(ranks_) +
            static_cast<size_t>(rank)) *
               static_cast<size_t>(kChunk);
  }

 private:
  std::byte* data_;
  int32_t ranks_;
};

class Team {
 public:
  Team(std::shared_ptr<void> owner, std::byte* data, int32_t ranks, int32_t rank)
      : owner_(std::move(owner)),
        memory_(data, ranks),
        ranks_(ranks),
        rank_(rank),
        crowded_(static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()),
        pointers_(static_cast<size_t>(ranks)) {}

  void leave() { memory_.seat(rank_).left.store(1, std::memory_order_release); }

  int all_reduce(const void* in, void* out, int64_t count, DType dtype, int32_t reduction,
                 rlx_wait* wait) {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    begin({kReduces, static_cast<int32_t>(dtype), reduction, 0, count * size}, wait);
    for (int64_t at = 0; at < count && ok(); at += kChunk / size) {
      const int64_t some = std::min(count - at, kChunk / size);
      put(bytes(in) + at * size, some * size, 0);
      if (!meet()) break;
      if (ranks_ < kManyRanks || some * size <= kPart) {
        combine(dtype, reduction, bytes(out) + at * size, 0, some);
      } else {
        in_parts(dtype, reduction, bytes(out) + at * size, some, size);
      }
    }
    return end();
  }

  int reduce_scatter(const void* in, void* out, int64_t count, DType dtype, rlx_wait* wait) {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    const int64_t most = std::max<int64_t>(kChunk / ranks_ / size, 1);
    begin({kScatters, static_cast<int32_t>(dtype), 0, 0, count * size}, wait);
    for (int64_t at = 0; at < count && ok(); at += most) {
      const int64_t some = std::min(count - at, most);
      for (int32_t to = 0; to < ranks_; ++to) {
        put(bytes(in) + (to * count + at) * size, some * size, to * some * size);
      }
      if (!meet()) break;
      combine(dtype, RLX_SUM, bytes(out) + at * size, rank_ * some * size, some);
    }
    return end();
  }

  int all_gather(const void* in, void* out, int64_t size, rlx_wait* wait) {
    begin({kGathers, 0, 0, 0, size}, wait);
    for (int64_t at = 0; at < size && ok(); at += kChunk) {
      const int64_t some = std::min(size - at, kChunk);
      put(bytes(in) + at, some, 0);
      if (!meet()) break;
      for (int32_t from = 0; from < ranks_; ++from) {
        take(from, 0, bytes(out) + from * size + at, some);
      }
    }
    return end();
  }

  int all_to_all(const void* in, void* out, int64_t size, rlx_wait* wait) {
    const int64_t most = std::max<int64_t>(kChunk / ranks_, 1);
    begin({kExchanges, 0, 0, 0, size}, wait);
    for (int64_t at = 0; at < size && ok(); at += most) {
      const int64_t some = std::min(size - at, most);
      for (int32_t to = 0; to < ranks_; ++to) put(bytes(in) + to * size + at, some, to * some);
      if (!meet()) break;
      for (int32_t from = 0; from < ranks_; ++from) {
        take(from, rank_ * some, bytes(out) + from * size + at, some);
      }
    }
    return end();
  }

  int permute(const void* in, void* out, int64_t size, int32_t to, int32_t from, rlx_wait* wait) {
    return move({kMoves, 0, 0, 0, size}, in, out, to >= 0, from, wait);
  }

  int broadcast(const void* in, void* out, int64_t size, int32_t root, rlx_wait* wait) {
    return move({kSpreads, 0, root, 0, size}, in, out, true, root, wait);
  }

  // `gives` says whether others want what this rank has.
  int move(Deed deed, const void* in, void* out, bool gives, int32_t from, rlx_wait* wait) {
    begin(deed, wait);
    for (int64_t at = 0; at < deed.bytes && ok(); at += kChunk) {
      const int64_t some = std::min(deed.bytes - at, kChunk);
      if (gives) put(bytes(in) + at, some, 0);
      if (!meet()) break;
      if (from >= 0) take(from, 0, bytes(out) + at, some);
    }
    return end();
  }

 private:
  static const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
  static std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }

  void begin(const Deed& deed, rlx_wait* wait) {
    deed_ = deed;
    wait_ = wait;
    status_ = RLX_COMM_OK;
    if (memory_.seat(rank_).left.load(std::memory_order_relaxed) != 0) {
      fail("an earlier collective of this group failed, and its ranks are no longer in step");
    }
  }
  bool ok() const { return status_ == RLX_COMM_OK; }
  int end() {
    if (!ok()) leave();
    return status_;
  }
  void fail(const std::string& message) {
    status_ = RLX_COMM_FAILED;
    std::snprintf(wait_->message, sizeof wait_->message, "%s", message.c_str());
  }

  uint32_t row() { return memory_.seat(rank_).came.load(std::memory_order_relaxed) + 1; }
  void put(const std::byte* from, int64_t size, int64_t at) {
    std::memcpy(memory_.chunk(row(), rank_) + at, from, static_cast<size_t>(size));
  }
  // After the meeting, whose row is that of the number of times that this rank came.
  std::byte* given(int32_t rank) { return memory_.chunk(row() - 1, rank); }
  void take(int32_t from, int64_t at, std::byte* to, int64_t size) {
    std::memcpy(to, given(from) + at, static_cast<size_t>(size));
  }

  void combine(DType dtype, int32_t reduction, std::byte* out, int64_t at, int64_t count) {
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      pointers_[static_cast<size_t>(rank)] = given(rank) + at;
    }
    if (!reduce(dtype, reduction, pointers_.data(), ranks_, out, count)) {
      fail(std::string("there is no such reduction of ") + dtype_name(dtype));
    }
  }

  // Each rank combines a part of what lies there, which the others then take.
  void in_parts(DType dtype, int32_t reduction, std::byte* out, int64_t count, int64_t size) {
    const int64_t each = (count + ranks_ - 1) / ranks_;
    const auto first = [&](int32_t rank) { return std::min(count, rank * each); };
    const int64_t mine = first(rank_), some = first(rank_ + 1) - mine;
    combine(dtype, reduction, out + mine * size, mine * size, some);
    put(out + mine * size, some * size, 0);
    if (!meet()) return;
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      const int64_t begin = first(rank);
      if (rank != rank_) take(rank, 0, out + begin * size, (first(rank + 1) - begin) * size);
    }
  }

  // Waits until all ranks have come as many times as this one now has.
  bool meet() {
    if (!ok()) return false;
    Seat& own = memory_.seat(rank_);
    const uint32_t times = row();
    own.deeds[times & 1] = deed_;
    own.came.store(times, std::memory_order_release);
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      if (!wait_for(rank, times)) return false;
      const Deed other = memory_.seat(rank).deeds[times & 1];
      if (other != deed_) {
        fail("rank " + std::to_string(rank) + " is at " + described(other) + ", rank " +
             std::to_string(rank_) + " at " + described(deed_));
        return false;
      }
    }
    return true;
  }

  static std::string described(const Deed& deed) {
    const bool known = deed.kind > 0 && deed.kind <= kSpreads;
    return std::string(kNames[known ? deed.kind : 0]) + " of " + std::to_string(deed.bytes) +
           " bytes";
  }

  bool wait_for(int32_t rank, uint32_t times) {
    Seat& seat = memory_.seat(rank);
    const auto came = [&] {
      return static_cast<int32_t>(seat.came.load(std::memory_order_acquire) - times) >= 0;
    };
    // Where each rank has a core it is there in a moment.
    for (int i = crowded_ ? 20 : 4000; i > 0; --i) {
      if (came()) return true;
      spin_pause();
    }
    const int64_t began = now_ns();
    for (int64_t turn = 0;; ++turn) {
      if (came()) return true;
      if (seat.left.load(std::memory_order_acquire) != 0 && !came()) {
        fail("rank " + std::to_string(rank) + " of " + std::to_string(ranks_) + " has left");
        return false;
      }
      const int64_t waited = now_ns() - began;
      if (waited > wait_->limit_ns) {
        status_ = RLX_COMM_LATE;
        wait_->late = rank;
        return false;
      }
      if (waited < 1000000) {
        sched_yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(waited < 20000000 ? 50 : 500));
      if (turn % 16 == 0 && wait_->ends != nullptr && wait_->ends(wait_->asked) != 0) {
        status_ = RLX_COMM_INTERRUPTED;
        return false;
      }
    }
  }

  const std::shared_ptr<void> owner_;
  Memory memory_;
  const int32_t ranks_, rank_;
  const bool crowded_;
  std::vector<const void*> pointers_;
  Deed deed_{};
  rlx_wait* wait_ = nullptr;
  int status_ = RLX_COMM_OK;
};

rlx_communicator table_for(Team* made, int32_t ranks, int32_t rank) {
  rlx_communicator table = table_of(made, rank, ranks);
  table.leave = [](void* self) { static_cast<Team*>(self)->leave(); };
  return table;
}

void check_ranks(int32_t ranks) {
  if (ranks >= 1 && ranks <= kMostSeats) return;
  throw Error("ranks", std::to_string(ranks), "1.." + std::to_string(kMostSeats));
}

}  // namespace

std::vector<std::shared_ptr<Group>> team_of_threads(int32_t ranks) {
  check_ranks(ranks);
  const auto memory = std::make_shared<AlignedBuffer>();
  std::byte* data = memory->reserve(Memory::size(ranks));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, static_cast<size_t>(ranks) * sizeof(Seat));
  std::vector<std::shared_ptr<Group>> groups;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    auto* made = new Team(memory, data, ranks, rank);
    groups.push_back(std::make_shared<Group>("threads", table_for(made, ranks, rank)));
  }
  return groups;
}

std::shared_ptr<Group> team_of_processes(const std::string& path, int32_t ranks, int32_t rank) {
  check_ranks(ranks);
  if (rank < 0 || rank >= ranks) {
    throw Error("rank", std::to_string(rank), "one below " + std::to_string(ranks));
  }
  const auto failed = [&](const char* what) {
    throw Error("'" + path + "'", std::string(what) + ": " + std::strerror(errno),
                "a file that the ranks share");
  };
  const size_t size = Memory::size(ranks);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) failed("open");
  // The same for all of them, whoever comes first: new bytes are zeros.
  const bool sized = ftruncate(file, static_cast<off_t>(size)) == 0;
  void* data = sized ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = errno;
  close(file);
  errno = error;
  if (data == MAP_FAILED) failed(sized ? "mmap" : "ftruncate");
  std::shared_ptr<void> memory(data, [size](void* mapped) { munmap(mapped, size); });
  auto* made = new Team(memory, static_cast<std::byte*>(data), ranks, rank);
  return std::make_shared<Group>("processes", table_for(made, ranks, rank));
}

}  // namespace rlx
