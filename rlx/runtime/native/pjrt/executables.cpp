// Compiled modules, and their calls.
#include <cstring>

#include "../error.h"
#include "pjrt.h"

namespace rlx::pjrt {

namespace {

constexpr char kSerialized[] = "RLX of StableHLO\n";

PJRT_LoadedExecutable* compiled(std::string source, std::string format) {
  auto executable = std::make_unique<PJRT_LoadedExecutable>();
  executable->code = host().compile(std::move(source), std::move(format));
  return executable.release();
}

// What a call reads and writes. It is kept by each thread, so that a call allocates results alone.
struct Call {
  std::vector<std::shared_ptr<HostMemory>> inputs, outputs;
  std::vector<void*> in, out;

  void clear() {
    inputs.clear();
    outputs.clear();
    in.clear();
    out.clear();
  }
};

bool may_be_donated(const PJRT_ExecuteOptions* options, int64_t input) {
  if (options == nullptr) return true;
  for (size_t i = 0; i < options->num_non_donatable_input_indices; ++i) {
    if (options->non_donatable_input_indices[i] == input) return false;
  }
  return true;
}

void check_call(const PJRT_LoadedExecutable_Execute_Args& args) {
  const Code& code = *args.executable->code;
  if (args.executable->deleted) throw invalid("the executable was deleted");
  if (args.num_devices != 1) throw invalid("there is one device");
  if (args.options != nullptr && args.options->num_send_ops + args.options->num_recv_ops != 0) {
    throw unimplemented("a call does not talk with its host");
  }
  if (args.num_args != code.inputs.size()) {
    throw invalid(code.name + " takes " + std::to_string(code.inputs.size()) + " arguments, found " +
                  std::to_string(args.num_args));
  }
}

void take_inputs(Call& call, const Code& code, PJRT_Buffer* const* arguments) {
  for (size_t i = 0; i < code.inputs.size(); ++i) {
    const Layout &found = *arguments[i]->layout, &expected = *code.inputs[i];
    if (&found != &expected && (found.type != expected.type || found.dims != expected.dims)) {
      throw invalid("argument " + std::to_string(i) + " of " + code.name +
                    " is not of the type that it was compiled for");
    }
    call.inputs.push_back(arguments[i]->memory());
    call.in.push_back(call.inputs.back()->data);
  }
}

// A donated input becomes the output that is written over it, where nobody else has its memory.
void make_outputs(Call& call, const Code& code, PJRT_Buffer* const* arguments,
                  const PJRT_ExecuteOptions* options) {
  for (size_t o = 0; o < code.outputs.size(); ++o) {
    const size_t bytes = code.outputs[o]->bytes;
    const int64_t over = code.over[o];
    if (over < 0) {
      call.outputs.push_back(HostMemory::make(bytes));
    } else {
      const auto i = static_cast<size_t>(over);
      if (may_be_donated(options, over) && arguments[i]->take_over(call.inputs[i])) {
        call.outputs.push_back(call.inputs[i]);
      } else {
        call.outputs.push_back(HostMemory::make(bytes));
        if (bytes != 0) std::memcpy(call.outputs[o]->data, call.in[i], bytes);
      }
    }
    call.out.push_back(call.outputs.back()->data);
  }
}

void run(const Code& code, const Call& call) {
  if (code.program == nullptr) return;
  try {
    code.program->run(call.in.data(), call.out.data());
  } catch (const Fault& fault) {
    throw Refusal(PJRT_Error_Code_INTERNAL, code.explain(fault.code, fault.site, fault.detail));
  }
}

void execute(PJRT_LoadedExecutable_Execute_Args* args) {
  check_call(*args);
  const Code& code = *args->executable->code;
  PJRT_Buffer* const* arguments = args->argument_lists[0];
  thread_local Call call;
  struct Cleared {
    ~Cleared() { call.clear(); }
  } cleared;
  take_inputs(call, code, arguments);
  make_outputs(call, code, arguments, args->options);
  for (const int64_t i : code.donated) {
    if (may_be_donated(args->options, i)) arguments[i]->remove();
  }
  run(code, call);
  for (size_t o = 0; o < code.outputs.size(); ++o) {
    args->output_lists[0][o] = new PJRT_Buffer(code.outputs[o], std::move(call.outputs[o]));
  }
  if (args->device_complete_events != nullptr) args->device_complete_events[0] = ready_event();
}

void memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  const Code& code = *args->executable->code;
  int64_t in = 0, out = 0, alias = 0;
  for (const auto& layout : code.inputs) in += static_cast<int64_t>(layout->bytes);
  for (size_t o = 0; o < code.outputs.size(); ++o) {
    out += static_cast<int64_t>(code.outputs[o]->bytes);
    if (code.over[o] >= 0) alias += static_cast<int64_t>(code.outputs[o]->bytes);
  }
  const int64_t between = code.program == nullptr ? 0 : code.program->schedule().arena_bytes;
  args->generated_code_size_in_bytes = 0;
  args->argument_size_in_bytes = in;
  args->output_size_in_bytes = out;
  args->alias_size_in_bytes = alias;
  args->temp_size_in_bytes = between;
  args->host_generated_code_size_in_bytes = args->host_argument_size_in_bytes = 0;
  args->host_output_size_in_bytes = args->host_alias_size_in_bytes = 0;
  args->host_temp_size_in_bytes = 0;
  args->peak_memory_in_bytes = args->total_size_in_bytes = in + out - alias + between;
}

// A module as it was given: what is compiled of it is found in RLX's own cache.
void serialize(PJRT_Executable_Serialize_Args* args) {
  auto text = std::make_unique<std::string>(kSerialized + args->executable->code->source);
  args->serialized_bytes = text->data();
  args->serialized_bytes_size = text->size();
  args->serialized_executable = reinterpret_cast<PJRT_SerializedExecutable*>(text.release());
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* owner) {
    delete reinterpret_cast<std::string*>(owner);
  };
}

void deserialize(PJRT_Executable_DeserializeAndLoad_Args* args) {
  std::string text(args->serialized_executable, args->serialized_executable_size);
  const size_t start = sizeof kSerialized - 1;
  if (text.compare(0, start, kSerialized) != 0) throw invalid("these bytes are no executable");
  args->loaded_executable = compiled(text.substr(start), "mlir");
}

// DeviceAssignmentProto of one replica on device 0.
void assignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  static const char bytes[] = {0x08, 1, 0x10, 1, 0x1a, 3, 0x0a, 1, 0};
  args->serialized_bytes = bytes;
  args->serialized_bytes_size = sizeof bytes;
  args->serialized_device_assignment = nullptr;
  args->serialized_device_assignment_deleter = [](auto*) {};
}

void add_facts(PJRT_Api& api) {
  api.PJRT_Executable_Name = [](auto* args) -> PJRT_Error* {
    args->executable_name = args->executable->code->name.data();
    args->executable_name_size = args->executable->code->name.size();
    return nullptr;
  };
  api.PJRT_Executable_NumReplicas = [](auto* args) -> PJRT_Error* {
    args->num_replicas = 1;
    return nullptr;
  };
  api.PJRT_Executable_NumPartitions = [](auto* args) -> PJRT_Error* {
    args->num_partitions = 1;
    return nullptr;
  };
  api.PJRT_Executable_NumOutputs = [](auto* args) -> PJRT_Error* {
    args->num_outputs = args->executable->code->outputs.size();
    return nullptr;
  };
  api.PJRT_Executable_SizeOfGeneratedCodeInBytes = [](auto* args) -> PJRT_Error* {
    args->size_in_bytes = -1;  // not known
    return nullptr;
  };
  api.PJRT_Executable_GetCostAnalysis = [](auto* args) -> PJRT_Error* {
    args->properties = nullptr;
    args->num_properties = 0;
    return nullptr;
  };
  api.PJRT_Executable_OutputMemoryKinds = [](auto* args) -> PJRT_Error* {
    const Code& code = *args->executable->code;
    args->num_outputs = code.outputs.size();
    args->memory_kinds = code.memory_kinds.data();
    args->memory_kind_sizes = code.memory_kind_sizes.data();
    return nullptr;
  };
  api.PJRT_Executable_OutputElementTypes = [](auto* args) -> PJRT_Error* {
    args->output_types = const_cast<PJRT_Buffer_Type*>(args->executable->code->types.data());
    args->num_output_types = args->executable->code->types.size();
    return nullptr;
  };
  api.PJRT_Executable_OutputDimensions = [](auto* args) -> PJRT_Error* {
    const Code& code = *args->executable->code;
    args->num_outputs = code.outputs.size();
    args->dims = code.dims.data();
    args->dim_sizes = code.ranks.data();
    return nullptr;
  };
  api.PJRT_Executable_Fingerprint = [](auto* args) -> PJRT_Error* {
    args->executable_fingerprint = args->executable->code->fingerprint.data();
    args->executable_fingerprint_size = args->executable->code->fingerprint.size();
    return nullptr;
  };
  api.PJRT_Executable_GetCompiledMemoryStats = [](auto* args) -> PJRT_Error* {
    memory_stats(args);
    return nullptr;
  };
}

}  // namespace

void add_executables(PJRT_Api& api) {
  add_facts(api);
  api.PJRT_Client_Compile = [](auto* args) -> PJRT_Error* {
    return guarded([&] {
      const PJRT_Program& program = *args->program;
      args->executable = compiled({program.code, program.code_size},
                                  {program.format, program.format_size});
    });
  };
  api.PJRT_Executable_Serialize = [](auto* args) -> PJRT_Error* {
    return guarded([&] { serialize(args); });
  };
  api.PJRT_Executable_DeserializeAndLoad = [](auto* args) -> PJRT_Error* {
    return guarded([&] { deserialize(args); });
  };
  api.PJRT_Executable_Destroy = [](auto* args) -> PJRT_Error* {
    delete args->executable;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Destroy = [](auto* args) -> PJRT_Error* {
    delete args->executable;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_GetExecutable = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->executable = new PJRT_Executable{args->loaded_executable->code}; });
  };
  api.PJRT_LoadedExecutable_AddressableDevices = [](auto* args) -> PJRT_Error* {
    static PJRT_Device* devices[] = {&pjrt_device};
    args->addressable_devices = devices;
    args->num_addressable_devices = 1;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_GetDeviceAssignment = [](auto* args) -> PJRT_Error* {
    assignment(args);
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Delete = [](auto* args) -> PJRT_Error* {
    args->executable->deleted = true;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_IsDeleted = [](auto* args) -> PJRT_Error* {
    args->is_deleted = args->executable->deleted;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Execute = [](auto* args) -> PJRT_Error* {
    return guarded([&] { execute(args); });
  };
  api.PJRT_ExecuteContext_Create = [](auto* args) -> PJRT_Error* {
    args->context = nullptr;
    return nullptr;
  };
  api.PJRT_ExecuteContext_Destroy = [](auto*) -> PJRT_Error* { return nullptr; };
}

}  // namespace rlx::pjrt
