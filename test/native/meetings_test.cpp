// Collectives that are apart, with an engine of one rank.
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "check.h"
#include "executor.h"
#include "group.h"

namespace rlx {
namespace {

// Gives what it takes, and throws for no elements.
int copied(void*, const void* in, void* out, int64_t count, int32_t, int32_t, rlx_wait*) {
  if (count == 0) throw std::bad_alloc();
  std::memcpy(out, in, static_cast<size_t>(count));
  return RLX_COMM_OK;
}

Collective sum_of(int64_t count) {
  Collective step;
  step.ranks = 1;
  step.count = count;
  step.apart = true;
  return step;
}

void bind_one(bool beside) {
  rlx_communicator table{};
  table.ranks = 1;
  table.all_reduce = copied;
  table.all_gather = [](void*, const void* in, void* out, int64_t bytes, rlx_wait*) {
    std::memcpy(out, in, static_cast<size_t>(bytes));
    return static_cast<int>(RLX_COMM_OK);
  };
  auto group = std::make_shared<Group>("copies", table);
  group->beside = beside;
  bind_thread({{"", std::move(group)}});
}

TEST(what_a_collective_throws_comes_to_its_caller) {
  for (const bool beside : {false, true}) {
    bind_one(beside);
    const Collective good = sum_of(4), bad = sum_of(0);
    Meetings meetings({&good, &bad}, 1, nullptr);
    const char from[] = "abc";
    char first[4] = {}, behind[4] = {};
    std::string why;
    meetings.start(good, from, first);
    meetings.start(bad, from, behind);
    meetings.start(good, from, behind);
    bool thrown = false;
    try {
      meetings.finish(nullptr, why);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    CHECK(thrown && std::string(first) == "abc" && behind[0] == 0);
    meetings.abandon();
    meetings.start(good, from, behind);
    CHECK(meetings.finish(nullptr, why) == nullptr && std::string(behind) == "abc");
  }
  bind_thread({});
}

}  // namespace
}  // namespace rlx
