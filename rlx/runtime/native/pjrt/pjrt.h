// RLX behind the C interface of PJRT, by which JAX calls it: what the interface's opaque types are.
//
// Calls run to their end in the thread that makes them, so an event has happened as it is handed
// out; the one exception is an event of memory that was lent. There is one device, and one memory,
// the host's, in which buffers lie as rows (the last dim is the fastest).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../element_types.h"
#include "../kept_blocks.h"
#include "../program.h"
#include "../third_party/pjrt_c_api.h"

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

namespace rlx::pjrt {

// What a function of the table refuses to do.
class Refusal : public std::exception {
 public:
  Refusal(PJRT_Error_Code code, std::string message) : code(code), message(std::move(message)) {}
  const char* what() const noexcept override { return message.c_str(); }

  PJRT_Error_Code code;
  std::string message;
};

inline Refusal unimplemented(const std::string& message) {
  return {PJRT_Error_Code_UNIMPLEMENTED, "RLX: " + message};
}
inline Refusal invalid(const std::string& message) {
  return {PJRT_Error_Code_INVALID_ARGUMENT, "RLX: " + message};
}

// The error of what `body` throws, else null.
PJRT_Error* error_of(const std::exception_ptr& failure) noexcept;

template <typename Body>
PJRT_Error* guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return error_of(std::current_exception());
  }
}

// Something that happens once, and who waits for it.
class Signal {
 public:
  bool happened();
  void wait();
  // Null unless what happened is a failure; the caller owns it.
  PJRT_Error* error();
  void set(std::unique_ptr<PJRT_Error> error);
  // At once if it has happened already.
  void call(PJRT_Event_OnReadyCallback callback, void* argument);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  std::unique_ptr<PJRT_Error> error_;
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting_;
};

// An event that has happened. It is one for all: nothing is allocated for it.
PJRT_Event* ready_event();

// The type, the dims and the order of a buffer in memory.
struct Layout {
  PJRT_Buffer_Type type;
  size_t item;  // bytes
  size_t bytes;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;  // in bytes
  std::vector<int64_t> minor_to_major;
};

// Throws Refusal for a type that RLX does not have.
std::shared_ptr<const Layout> make_layout(PJRT_Buffer_Type type, const int64_t* dims, size_t rank);
PJRT_Buffer_Type buffer_type(DType dtype);

// Host memory: our own, which is taken again when it is let go, or lent by the caller.
class HostMemory {
 public:
  // Throws Refusal where there is no memory.
  static std::shared_ptr<HostMemory> make(size_t bytes);
  HostMemory(std::byte* data, std::function<void()> give_back)
      : data(data), give_back_(std::move(give_back)) {}
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  // Whether results may be written over it.
  bool is_own() const { return block_ != nullptr; }

  std::byte* const data;

 private:
  explicit HostMemory(KeptBlocks::Block block)
      : data(block->data()), block_(std::move(block)) {}

  KeptBlocks::Block block_;
  std::function<void()> give_back_;
};

// What a compiled module is, and what runs it. `explain` says what a fault means.
struct Code {
  std::string name, fingerprint, source;
  Program* program = nullptr;   // none where there are no results
  std::shared_ptr<void> owner;  // of the program
  std::function<std::string(int64_t code, int64_t site, const std::string& detail)> explain;
  std::vector<std::shared_ptr<const Layout>> inputs, outputs;
  std::vector<int64_t> over;       // by output: the input that it is written over, or -1
  std::vector<int64_t> donated;    // inputs that are gone after a call

  // As the table hands them out.
  std::vector<PJRT_Buffer_Type> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
  std::vector<const char*> memory_kinds;
  std::vector<size_t> memory_kind_sizes;
};

// Compiles a module. Throws Refusal.
using Compile = std::function<std::shared_ptr<const Code>(std::string source, std::string format)>;

// What the table needs of Python: set once, before the table is handed out.
struct Host {
  Compile compile;
  std::string version;
  int64_t current[3], minimum[3];  // versions of StableHLO that are read
};
Host& host();

// Fills its part of the table.
void add_events(PJRT_Api& api);
void add_client(PJRT_Api& api);
void add_buffers(PJRT_Api& api);
void add_transfers(PJRT_Api& api);
void add_executables(PJRT_Api& api);
void add_refused(PJRT_Api& api);

// The table; it lives as long as the process.
const PJRT_Api* table();

constexpr char kMemoryKind[] = "device";

}  // namespace rlx::pjrt

struct PJRT_Event {
  std::shared_ptr<rlx::pjrt::Signal> signal;  // none: it has happened
};

struct PJRT_DeviceDescription {};
struct PJRT_Memory {};
struct PJRT_Device {};
struct PJRT_TopologyDescription {};
struct PJRT_Client {};

struct PJRT_Buffer {
  PJRT_Buffer(std::shared_ptr<const rlx::pjrt::Layout> layout,
              std::shared_ptr<rlx::pjrt::HostMemory> memory)
      : layout(std::move(layout)), memory_(std::move(memory)) {}

  // Throws Refusal if the buffer was deleted or donated.
  std::shared_ptr<rlx::pjrt::HostMemory> memory();
  bool is_deleted();
  void remove();
  // Its memory, if no other has it but the one reference that the caller holds already.
  bool take_over(const std::shared_ptr<rlx::pjrt::HostMemory>& held);
  // References from outside, for which memory stays what it is.
  void hold();
  void let_go();

  const std::shared_ptr<const rlx::pjrt::Layout> layout;

 private:
  std::mutex mutex_;
  std::shared_ptr<rlx::pjrt::HostMemory> memory_, held_;
  int64_t holders_ = 0;
};

struct PJRT_Executable {
  std::shared_ptr<const rlx::pjrt::Code> code;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const rlx::pjrt::Code> code;
  std::atomic<bool> deleted{false};
};

// The parts of the one client.
extern PJRT_Client pjrt_client;
extern PJRT_Device pjrt_device;
extern PJRT_Memory pjrt_memory;
