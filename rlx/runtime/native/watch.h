// A watch for what may end a call early, such as a signal: asked between launches, and by kernels
// that may run for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace rlx {

// One call's, on the thread that makes it.
class Watch {
 public:
  virtual ~Watch() = default;

  // Whether the call is to end here. Most times this is one decrement: a clock is read after every
  // launch that takes long, and after every few others.
  bool ends() { return --launches_left_ > 0 ? ended_ : look(); }
  // As that, at once.
  bool look();
  // What these said last. It stays true.
  bool ended() const { return ended_; }

 protected:
  // Asked every 100 ms of a call, and never of a shorter one.
  virtual bool end_now() = 0;

 private:
  int64_t seen_ns_ = 0, due_ns_ = 0;
  int launches_left_ = 2, stride_ = 1;  // a call of one launch reads no clock
  bool ended_ = false;
};

// The record of a call's failure, and what a kernel that runs for long asks. Kernels know it as
// four words.
struct Record {
  int64_t code = 0, site = 0;  // of the first failure, if there was one
  // How many rounds a loop may run before it asks again; 0: it is to end.
  int64_t (*rounds)(Record*) = &Record::watched_rounds;
  Watch* watch = nullptr;

  static int64_t watched_rounds(Record* record);
};
static_assert(std::is_standard_layout_v<Record> && sizeof(void*) == sizeof(int64_t));
static_assert(offsetof(Record, site) == 8 && offsetof(Record, rounds) == 16);

}  // namespace rlx
