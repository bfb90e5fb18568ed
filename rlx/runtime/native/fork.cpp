#include "fork.h"

#include <mutex>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace rlx {

// An intrusive list, so that the child's handler allocates nothing.
struct ForkRegistry {
  std::mutex mutex;
  ForkAware* head = nullptr;

  // Never destroyed: a fork may come after static destructors have started.
  static ForkRegistry& instance() {
    static ForkRegistry* registry = [] {
      auto* fresh = new ForkRegistry;
#if !defined(_WIN32)
      // Holding the mutex across fork() keeps the list whole in the child.
      pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] { instance().after_fork(); });
#endif
      return fresh;
    }();
    return *registry;
  }

  void add(ForkAware* item) {
    std::lock_guard<std::mutex> lock(mutex);
    item->next_ = head;
    if (head != nullptr) head->previous_ = item;
    head = item;
  }

  void remove(ForkAware* item) {
    std::lock_guard<std::mutex> lock(mutex);
    if (item->next_ != nullptr) item->next_->previous_ = item->previous_;
    (item->previous_ != nullptr ? item->previous_->next_ : head) = item->next_;
  }

  void after_fork() noexcept {
    for (ForkAware* item = head; item != nullptr; item = item->next_) item->reset_after_fork();
    mutex.unlock();  // held by this very thread since the prepare handler
  }
};

ForkAware::ForkAware() { ForkRegistry::instance().add(this); }
ForkAware::~ForkAware() { ForkRegistry::instance().remove(this); }

}  // namespace rlx
