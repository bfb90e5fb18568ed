#include "affinity.h"

#include <thread>

#include "check.h"

namespace rlx {
namespace {

TEST(a_thread_leaves_the_cpu_that_it_avoids) {
  // A thread of its own, as the set stays with it.
  std::thread([] {
    const Affinity allowed;
    const int here = current_cpu();
    if (here < 0) return;
    allowed.avoid(here);
    if (allowed.count() == 1) {
      CHECK(Affinity().count() == 1);
      return;
    }
    CHECK(current_cpu() != here);
    CHECK(Affinity().count() == allowed.count() - 1);
    // What is avoided next may be used again afterwards.
    const int there = current_cpu();
    allowed.avoid(there);
    CHECK(current_cpu() != there);
    CHECK(Affinity().count() == allowed.count() - 1);
  }).join();
}

TEST(no_cpu_is_none_to_avoid) {
  const Affinity allowed;
  for (int cpu : {-1, 1 << 30}) allowed.avoid(cpu);
  CHECK(Affinity().count() == allowed.count());
}

}  // namespace
}  // namespace rlx
