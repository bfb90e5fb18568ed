#include "thread_count.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"

namespace rlx {
namespace {

// A directory that stands for the root of a system, with the files that a test writes.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "rlx-root-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path full = path_ + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(no_cgroup_means_no_quota) {
  FakeRoot root;
  CHECK(cgroup_cpu_quota(root.path()) == 0);
}

TEST(a_quota_of_version_2_is_rounded_up) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/a/b");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000");
  CHECK(cgroup_cpu_quota(root.path()) == 2);
  root.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  CHECK(cgroup_cpu_quota(root.path()) == 0);
}

TEST(the_tightest_ancestor_counts) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/a/b");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "800000 100000");
  root.write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  CHECK(cgroup_cpu_quota(root.path()) == 3);
}

TEST(a_quota_of_version_1_is_found_by_its_controller) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/job");
  root.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000");
  root.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  CHECK(cgroup_cpu_quota(root.path()) == 3);
}

// In a container the group's own path is not there, but the mount's root is the group.
TEST(a_container_sees_its_quota_at_the_root) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/1234");
  root.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000");
  root.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(cgroup_cpu_quota(root.path()) == 1);
}

TEST(thread_counts_are_whole_positive_numbers) {
  CHECK(parse_thread_count("here", "3") == 3);
  for (const char* bad : {"", "0", "-1", "two", "3 ", "2.5", "99999"}) {
    CHECK_REFUSED("here", parse_thread_count("here", bad));
  }
}

}  // namespace
}  // namespace rlx
