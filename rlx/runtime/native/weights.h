// Weights: params, and the packed memory that a prologue makes of them, shared by any number of
// programs and used from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "executor.h"
#include "file_pages.h"
#include "gate.h"
#include "mapping.h"
#include "memory.h"
#include "schedule.h"

namespace rlx {

class Weights {
 public:
  // Throws Error when the prologue is malformed.
  explicit Weights(Prologue prologue);

  const Prologue& prologue() const { return prologue_; }
  const LaunchNumbers& launches() const { return launches_; }

  // Uses the memory at `data` in place as a param; `owner` keeps it alive. Waits for the calls in
  // flight. The prologue steps that follow the param are run again before the next call. Returns
  // the owner of what the param was before. Throws Error for an index out of range.
  std::shared_ptr<void> set_param(size_t index, const void* data, std::shared_ptr<void> owner);

  // Uses what the prologue made of the params, as it lies behind `packed`, instead of running it:
  // its packed bytes and kSlack more. Of params that are set later, the steps that follow them run
  // as ever, in memory of the process. Throws Error for another number of bytes.
  void use_packed(Constant packed);

  // The packed memory, once the prologue steps that are due have run. It stays where it is until a
  // param is set. Throws as enter().
  const std::byte* packed();

  // Holds off changes for as long as the lock lives, once the prologue steps that are due have run.
  // Throws Error when a param was never set or memory ran out, Fault when a step failed, and
  // Interrupted when `watch` ended them; then they are due again.
  std::shared_lock<Gate> enter(Watch* watch = nullptr);

  // Names a mapped file that params lie in. Once the prologue has run, the memory of its pages is
  // given back: what was packed is not read again, and other pages are read from the file again.
  void release_when_packed(Constant file);

  // Under the lock: a number that changes with every param, and where packed memory and params lie.
  uint64_t version() const { return version_; }
  void place(Frame& frame) const;

  // The arenas that no call is at work in. Programs on the same weights share them: the first call
  // at new sizes has no new pages to fault in, and what is kept grows with the calls at once and the
  // largest sizes, not with the number of sizes.
  FreeList<AlignedBuffer>& arenas() { return arenas_; }

 private:
  struct Param {
    std::byte* data = nullptr;
    std::shared_ptr<void> owner;
    bool set = false;
  };

  void refresh(Watch* watch);
  void run_step(Executor& executor, const PrologueStep& step, const FilePages& files) const;
  void require_params() const;
  bool is_needed(size_t param) const;
  void make_writable();

  const LaunchNumbers launches_;
  const Prologue prologue_;

  Gate gate_;  // shared: a call; exclusive: what changes the fields below
  Frame frame_;
  std::vector<Param> params_;
  uint64_t version_ = 1;
  std::byte* packed_ = nullptr;  // in one of the next two
  Constant given_;
  std::optional<Mapping> own_;
  Constant file_;
  bool stale_ = true;  // the prologue, or a check of the params, is due
  std::vector<bool> stale_steps_;
  FreeList<AlignedBuffer> arenas_;
};

}  // namespace rlx
