// State that starts afresh in a forked child: only the forking thread lives on there, so a lock that
// another thread held, or a worker that was running, is gone for good.
#pragma once

namespace rlx {

// Registers itself for the lifetime of the object; `reset_after_fork` runs in the child, before
// fork() returns there, with no other thread alive.
class ForkAware {
 public:
  ForkAware();
  virtual ~ForkAware();
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;

  virtual void reset_after_fork() noexcept = 0;

 private:
  friend struct ForkRegistry;
  ForkAware* previous_ = nullptr;
  ForkAware* next_ = nullptr;
};

}  // namespace rlx
