// Sleeping until a 32-bit word changes: futexes on Linux, condition variables elsewhere.
#pragma once

#include <atomic>
#include <cstdint>

namespace rlx {

// Blocks while `word` holds `value`, for so many nanoseconds at most, if any are given. May return
// early: callers re-check in a loop.
void wait_while_equal(std::atomic<uint32_t>& word, uint32_t value, int64_t at_most_ns = -1);

// Wakes up to `count` threads blocked on `word`. Callers change the word first.
void wake(std::atomic<uint32_t>& word, int count);
void wake_all(std::atomic<uint32_t>& word);

// Tells the CPU that this is a spin loop.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#elif defined(__riscv)
  asm volatile(".insn i 0x0f, 0, x0, x0, 0x010" ::: "memory");  // pause, a hint to any assembler
#endif
}

}  // namespace rlx
