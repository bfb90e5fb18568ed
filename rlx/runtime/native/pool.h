// The thread pool. A launch is cut into chunks that are claimed one by one; its end waits for the
// chunks, never for the workers, so a worker that the system has put aside delays nobody, unless it
// holds a chunk: then the caller, which has nothing else to do, lends it its CPU.
//
// Neighbouring chunks go to one thread as far as they can: each thread has a part of them to itself,
// and helps with the others' when that is done. What a kernel requests of the memory for the next
// chunk is then in the cache of the thread that has it, and so is what the last launch left there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "affinity.h"
#include "fork.h"
#include "memory.h"

namespace rlx {

// Kernel ABI, version 2: computes the indices [begin, end) of the launch's range. The result of an
// index must not depend on how the range is cut.
inline constexpr int kKernelAbi = 2;
inline constexpr int kOldestKernelAbi = 1;  // whose kernels run here too: they never ask for rounds
// Its calling convention is that of the System V ABI on every system, as artifacts are the same there.
#if defined(_WIN32) && defined(__x86_64__)
#define RLX_KERNEL_CALL __attribute__((sysv_abi))
#else
#define RLX_KERNEL_CALL
#endif
using Kernel = void(RLX_KERNEL_CALL*)(int64_t begin, int64_t end, void* const* buffers,
                                      const int64_t* sizes, void* scratch);

// One launch. Everything it points at must outlive Pool::run.
struct Task {
  Kernel kernel = nullptr;
  int64_t range = 0;   // indices, >= 0
  int64_t grain = 1;   // the fewest indices worth a chunk, >= 1
  size_t scratch = 0;  // bytes for each thread
  void* const* buffers = nullptr;
  const int64_t* sizes = nullptr;
  uint32_t traced = 0;  // the number of the launch, if its chunks are to be traced
  int64_t first = 0;    // the index that the range begins with
};

// Safe to use from any number of threads. A caller that finds the pool at work for another one runs
// all its chunks itself.
class Pool final : public ForkAware {
 public:
  // The pool of this process. It is never destroyed: its workers may sleep in it until the process
  // ends.
  static Pool& instance();

  // Runs a task to its end. Throws Error when there is no memory for scratch, or when
  // RLX_NUM_THREADS is unusable and the number of threads was never set.
  void run(const Task& task);

  // The number of threads, callers' included, from the next launch on. Waits for the launch in
  // flight. Throws Error unless 1 <= count <= kMaxThreads.
  void set_threads(int64_t count);
  int threads();

  void reset_after_fork() noexcept override;

 private:
  Pool() : crew_(new Crew) {}

  // What workers share with the caller whose task they run. A forked child starts a new one; the
  // parent's, whose threads do not exist there, is left as it lies.
  class Crew {
   public:
    bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
    void release() { busy_.store(false, std::memory_order_release); }
    // These need an acquired crew.
    void resize(int workers);
    bool run(const Task& task, uint32_t chunks);

   private:
    struct Worker {
      const Affinity allowed;  // of the thread that made the worker, and so the worker's too
      std::thread thread;
      int64_t run_ns = 0;  // what lend_cpu has seen of its CPU time
      bool moved = false;  // to the caller's CPU, by lend_cpu
      // A hint: a wrong one costs time and nothing else.
      alignas(kCacheLine) std::atomic<bool> drains{false};
    };

    void work(Worker& self, int number);
    bool sleep_until_new(uint32_t seen);
    void make_way(const Worker& self);
    void drain(int number);
    void drain_part(size_t part);
    void publish(const Task& task, uint32_t chunks);
    void wait_for_chunks(uint32_t chunks);
    void lend_cpu();
    void take_cpu_back();

    // Neighbouring chunks of a job.
    struct alignas(kCacheLine) Part {
      // Generation << kChunkBits | chunks left to claim. No claim can succeed on an ended job: its
      // tickets say that nothing is left. Generations make the compare-exchange immune to a ticket
      // that came back; 48 bits do not wrap within a machine's life.
      std::atomic<uint64_t> ticket{0};
      uint32_t end = 0;  // the chunk after the last one
    };

    // The job. Written by the publisher before it stores a ticket with chunks left, as the ends of
    // its parts are. Read only by one that has claimed a chunk, and so before the job can end and
    // be overwritten.
    const Task* task_ = nullptr;
    uint32_t chunks_ = 0;

    static constexpr size_t kMostParts = 16;
    std::array<Part, kMostParts> parts_;
    // Those with chunks, the first ones. The publisher reads what it wrote; a worker that reads
    // another job's leaves chunks to others.
    std::atomic<size_t> part_count_{1};
    alignas(kCacheLine) std::atomic<uint32_t> done_{0};  // chunks finished of the current job
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<int> caller_cpu_{-1};  // where the caller was when it published, or lent its CPU
    std::atomic<bool> out_of_memory_{false};
    alignas(kCacheLine) std::atomic<uint32_t> epoch_{0};  // workers sleep on this word
    std::atomic<int> sleepers_{0};
    std::atomic<bool> quit_{false};
    alignas(kCacheLine) std::atomic<bool> busy_{false};
    std::vector<std::unique_ptr<Worker>> workers_;
  };

  Crew* crew_;
  std::atomic<int> threads_{0};  // 0: not asked for yet
};

}  // namespace rlx
