// Errors and events.
#include <new>

#include "../error.h"
#include "pjrt.h"

namespace rlx::pjrt {

PJRT_Error* error_of(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const Refusal& refusal) {
    return new PJRT_Error{refusal.code, refusal.message};
  } catch (const Error& error) {
    const bool memory = error.found == "no memory";
    return new PJRT_Error{
        memory ? PJRT_Error_Code_RESOURCE_EXHAUSTED : PJRT_Error_Code_INVALID_ARGUMENT,
        std::string("RLX: ") + error.what()};
  } catch (const std::bad_alloc&) {
    return new PJRT_Error{PJRT_Error_Code_RESOURCE_EXHAUSTED, "RLX: there is no memory"};
  } catch (const std::exception& error) {
    return new PJRT_Error{PJRT_Error_Code_INTERNAL, std::string("RLX: ") + error.what()};
  }
}

bool Signal::happened() {
  const std::lock_guard lock(mutex_);
  return happened_;
}

void Signal::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return happened_; });
}

PJRT_Error* Signal::error() {
  const std::lock_guard lock(mutex_);
  return error_ == nullptr ? nullptr : new PJRT_Error(*error_);
}

void Signal::set(std::unique_ptr<PJRT_Error> error) {
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting;
  {
    const std::lock_guard lock(mutex_);
    happened_ = true;
    error_ = std::move(error);
    waiting.swap(waiting_);
    changed_.notify_all();
  }
  for (const auto& [callback, argument] : waiting) callback(this->error(), argument);
}

void Signal::call(PJRT_Event_OnReadyCallback callback, void* argument) {
  {
    const std::lock_guard lock(mutex_);
    if (!happened_) {
      waiting_.emplace_back(callback, argument);
      return;
    }
  }
  callback(error(), argument);
}

PJRT_Event* ready_event() {
  static PJRT_Event event;
  return &event;
}

void add_events(PJRT_Api& api) {
  api.PJRT_Error_Destroy = [](PJRT_Error_Destroy_Args* args) { delete args->error; };
  api.PJRT_Error_Message = [](PJRT_Error_Message_Args* args) {
    args->message = args->error->message.c_str();
    args->message_size = args->error->message.size();
  };
  api.PJRT_Error_GetCode = [](PJRT_Error_GetCode_Args* args) -> PJRT_Error* {
    args->code = args->error->code;
    return nullptr;
  };

  api.PJRT_Event_Create = [](PJRT_Event_Create_Args* args) -> PJRT_Error* {
    return guarded([&] { args->event = new PJRT_Event{std::make_shared<Signal>()}; });
  };
  api.PJRT_Event_Set = [](PJRT_Event_Set_Args* args) -> PJRT_Error* {
    return guarded([&] {
      if (args->event->signal == nullptr || args->event->signal->happened()) {
        throw invalid("an event is set once");
      }
      std::unique_ptr<PJRT_Error> error;
      if (args->error_code != PJRT_Error_Code_OK) {
        error.reset(new PJRT_Error{args->error_code, std::string(args->error_message,
                                                                 args->error_message_size)});
      }
      args->event->signal->set(std::move(error));
    });
  };
  api.PJRT_Event_Destroy = [](PJRT_Event_Destroy_Args* args) -> PJRT_Error* {
    if (args->event != ready_event()) delete args->event;
    return nullptr;
  };
  api.PJRT_Event_IsReady = [](PJRT_Event_IsReady_Args* args) -> PJRT_Error* {
    args->is_ready = args->event->signal == nullptr || args->event->signal->happened();
    return nullptr;
  };
  api.PJRT_Event_Error = [](PJRT_Event_Error_Args* args) -> PJRT_Error* {
    return args->event->signal == nullptr ? nullptr : args->event->signal->error();
  };
  api.PJRT_Event_Await = [](PJRT_Event_Await_Args* args) -> PJRT_Error* {
    if (args->event->signal == nullptr) return nullptr;
    args->event->signal->wait();
    return args->event->signal->error();
  };
  api.PJRT_Event_OnReady = [](PJRT_Event_OnReady_Args* args) -> PJRT_Error* {
    return guarded([&] {
      if (args->event->signal == nullptr) {
        args->callback(nullptr, args->user_arg);
      } else {
        args->event->signal->call(args->callback, args->user_arg);
      }
    });
  };
}

}  // namespace rlx::pjrt
