// The client, and its one device and memory.
#include <cstring>
#include <iterator>

#include "pjrt.h"

PJRT_Client pjrt_client;
PJRT_Device pjrt_device;
PJRT_Memory pjrt_memory;

namespace rlx::pjrt {

namespace {

PJRT_DeviceDescription description;
PJRT_TopologyDescription topology;
PJRT_Device* devices[] = {&pjrt_device};
PJRT_Memory* memories[] = {&pjrt_memory};
PJRT_DeviceDescription* descriptions[] = {&description};

constexpr char kPlatform[] = "rlx";
constexpr char kDevice[] = "RlxDevice(id=0)";

PJRT_NamedValue version_value(const char* name, const int64_t* version) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = PJRT_NamedValue_kInt64List;
  value.int64_array_value = version;
  value.value_size = 3;
  return value;
}

PJRT_Error* attributes(PJRT_Plugin_Attributes_Args* args) {
  static const PJRT_NamedValue values[] = {
      version_value("stablehlo_current_version", host().current),
      version_value("stablehlo_minimum_version", host().minimum)};
  args->attributes = values;
  args->num_attributes = std::size(values);
  return nullptr;
}

template <typename Size>
void say(const char*& text, Size& size, const char* value) {
  text = value;
  size = std::strlen(value);
}

void add_devices(PJRT_Api& api) {
  api.PJRT_DeviceDescription_Id = [](auto* args) -> PJRT_Error* {
    args->id = 0;
    return nullptr;
  };
  api.PJRT_DeviceDescription_ProcessIndex = [](auto* args) -> PJRT_Error* {
    args->process_index = 0;
    return nullptr;
  };
  api.PJRT_DeviceDescription_Attributes = [](auto* args) -> PJRT_Error* {
    args->attributes = nullptr;
    args->num_attributes = 0;
    return nullptr;
  };
  api.PJRT_DeviceDescription_Kind = [](auto* args) -> PJRT_Error* {
    say(args->device_kind, args->device_kind_size, "cpu");
    return nullptr;
  };
  api.PJRT_DeviceDescription_DebugString = [](auto* args) -> PJRT_Error* {
    say(args->debug_string, args->debug_string_size, kDevice);
    return nullptr;
  };
  api.PJRT_DeviceDescription_ToString = [](auto* args) -> PJRT_Error* {
    say(args->to_string, args->to_string_size, kDevice);
    return nullptr;
  };
  api.PJRT_Device_GetDescription = [](auto* args) -> PJRT_Error* {
    args->device_description = &description;
    return nullptr;
  };
  api.PJRT_Device_IsAddressable = [](auto* args) -> PJRT_Error* {
    args->is_addressable = true;
    return nullptr;
  };
  api.PJRT_Device_LocalHardwareId = [](auto* args) -> PJRT_Error* {
    args->local_hardware_id = 0;
    return nullptr;
  };
  api.PJRT_Device_AddressableMemories = [](auto* args) -> PJRT_Error* {
    args->memories = memories;
    args->num_memories = 1;
    return nullptr;
  };
  api.PJRT_Device_DefaultMemory = [](auto* args) -> PJRT_Error* {
    args->memory = &pjrt_memory;
    return nullptr;
  };
}

void add_memories(PJRT_Api& api) {
  api.PJRT_Memory_Id = [](auto* args) -> PJRT_Error* {
    args->id = 0;
    return nullptr;
  };
  api.PJRT_Memory_Kind = [](auto* args) -> PJRT_Error* {
    say(args->kind, args->kind_size, kMemoryKind);
    return nullptr;
  };
  api.PJRT_Memory_Kind_Id = [](auto* args) -> PJRT_Error* {
    args->kind_id = 0;
    return nullptr;
  };
  api.PJRT_Memory_DebugString = [](auto* args) -> PJRT_Error* {
    say(args->debug_string, args->debug_string_size, "memory of the host");
    return nullptr;
  };
  api.PJRT_Memory_ToString = [](auto* args) -> PJRT_Error* {
    say(args->to_string, args->to_string_size, "memory of the host");
    return nullptr;
  };
  api.PJRT_Memory_AddressableByDevices = [](auto* args) -> PJRT_Error* {
    args->devices = devices;
    args->num_devices = 1;
    return nullptr;
  };
}

void add_topology(PJRT_Api& api) {
  api.PJRT_TopologyDescription_Create = [](auto* args) -> PJRT_Error* {
    args->topology = &topology;
    return nullptr;
  };
  api.PJRT_TopologyDescription_Destroy = [](auto*) -> PJRT_Error* { return nullptr; };
  api.PJRT_TopologyDescription_PlatformName = [](auto* args) -> PJRT_Error* {
    say(args->platform_name, args->platform_name_size, kPlatform);
    return nullptr;
  };
  api.PJRT_TopologyDescription_PlatformVersion = [](auto* args) -> PJRT_Error* {
    say(args->platform_version, args->platform_version_size, host().version.c_str());
    return nullptr;
  };
  api.PJRT_TopologyDescription_GetDeviceDescriptions = [](auto* args) -> PJRT_Error* {
    args->descriptions = descriptions;
    args->num_descriptions = 1;
    return nullptr;
  };
  api.PJRT_TopologyDescription_Attributes = [](auto* args) -> PJRT_Error* {
    args->attributes = nullptr;
    args->num_attributes = 0;
    return nullptr;
  };
}

}  // namespace

Host& host() {
  static auto* host = new Host{};
  return *host;
}

void add_client(PJRT_Api& api) {
  api.PJRT_Plugin_Initialize = [](auto*) -> PJRT_Error* { return nullptr; };
  api.PJRT_Plugin_Attributes = attributes;
  api.PJRT_Client_Create = [](auto* args) -> PJRT_Error* {
    args->client = &pjrt_client;
    return nullptr;
  };
  api.PJRT_Client_Destroy = [](auto*) -> PJRT_Error* { return nullptr; };
  api.PJRT_Client_PlatformName = [](auto* args) -> PJRT_Error* {
    say(args->platform_name, args->platform_name_size, kPlatform);
    return nullptr;
  };
  api.PJRT_Client_PlatformVersion = [](auto* args) -> PJRT_Error* {
    say(args->platform_version, args->platform_version_size, host().version.c_str());
    return nullptr;
  };
  api.PJRT_Client_ProcessIndex = [](auto* args) -> PJRT_Error* {
    args->process_index = 0;
    return nullptr;
  };
  api.PJRT_Client_Devices = [](auto* args) -> PJRT_Error* {
    args->devices = devices;
    args->num_devices = 1;
    return nullptr;
  };
  api.PJRT_Client_AddressableDevices = [](auto* args) -> PJRT_Error* {
    args->addressable_devices = devices;
    args->num_addressable_devices = 1;
    return nullptr;
  };
  api.PJRT_Client_LookupDevice = [](auto* args) -> PJRT_Error* {
    return guarded([&] {
      if (args->id != 0) throw invalid("there is device 0 alone");
      args->device = &pjrt_device;
    });
  };
  api.PJRT_Client_LookupAddressableDevice = [](auto* args) -> PJRT_Error* {
    return guarded([&] {
      if (args->local_hardware_id != 0) throw invalid("there is device 0 alone");
      args->addressable_device = &pjrt_device;
    });
  };
  api.PJRT_Client_AddressableMemories = [](auto* args) -> PJRT_Error* {
    args->addressable_memories = memories;
    args->num_addressable_memories = 1;
    return nullptr;
  };
  api.PJRT_Client_DefaultDeviceAssignment = [](auto* args) -> PJRT_Error* {
    return guarded([&] {
      if (args->default_assignment_size != 1) throw invalid("there is one device");
      args->default_assignment[0] = 0;
    });
  };
  api.PJRT_Client_TopologyDescription = [](auto* args) -> PJRT_Error* {
    args->topology = &topology;
    return nullptr;
  };
  add_devices(api);
  add_memories(api);
  add_topology(api);
}

}  // namespace rlx::pjrt
