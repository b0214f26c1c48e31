// furrowctl fs cat|export|import: files of a volume of kind fs, copied out and in.

#include <fcntl.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_fs.h"
#include "tools/progress.h"
#include "zone/aligned_buffer.h"

DECLARE_bool(rescue);

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;
namespace host = std::filesystem;

constexpr std::size_t kCopyBytes = 1 << 20;
constexpr std::uint64_t kMiB = 1 << 20;

// A descriptor of the host's, closed at the end; fd < 0: errno says why.
class HostFile {
 public:
  HostFile(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~HostFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Status host_error(const char* hint) { return {Code::io_error, Origin::tool, hint, errno}; }

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return host_error("cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

// What has been copied, and what was being copied when it failed.
struct Copy {
  std::uint64_t files = 0, directories = 0, bytes = 0, lost_bytes = 0;
  std::string at;
  struct Made {
    std::string path;
    bool directory;
  };
  std::vector<Made> made;  // by an import
};

// The next bytes, at most as many as there is memory for; 0: the end. For a rescue a part of the
// file, as one that is read whole is verified, or zeroes in its place.
Result<std::size_t> read_on(const FileContent& file, const std::string& path, std::uint64_t offset,
                            std::span<std::byte> memory, Copy& copy) {
  if (!FLAGS_rescue) return file.read(offset, memory);
  const std::uint64_t end = std::min(file.part_end(offset), offset + memory.size());
  memory = memory.first(static_cast<std::size_t>(end - std::min(end, offset)));
  if (memory.empty()) return std::size_t{0};
  const Result<std::size_t> read = file.read(offset, memory);
  if (read.ok()) return read;
  (void)report(fmt::format("{}: zeroes stand for bytes {} to {}", path, offset, end - 1),
               read.status());
  std::ranges::fill(memory, std::byte{0});
  copy.lost_bytes += memory.size();
  return memory.size();
}

Status copy_out(const FileVolume& volume, const std::string& path, int fd, Copy& copy,
                Progress* progress) {
  const auto file = volume.content(path);
  if (!file.ok()) return file.status();
  AlignedBuffer buffer(kCopyBytes);
  for (std::uint64_t offset = 0;;) {
    const Result<std::size_t> read = read_on(**file, path, offset, buffer.span(), copy);
    if (!read.ok()) return read.status();
    if (*read == 0) return {};
    const Status status = write_all(fd, buffer.span().first(*read));
    if (!status.ok()) return status;
    offset += *read;
    copy.bytes += *read;
    if (progress != nullptr) progress->count(copy.bytes / kMiB);
  }
}

}  // namespace

int fs_cat(const Arguments& arguments) {
  FilesToRead volume;
  if (const int status = open_files(arguments[0], volume); status != kExitDone) return status;
  Copy copy;
  const Status status = copy_out(*volume, arguments[1], STDOUT_FILENO, copy, nullptr);
  if (!status.ok()) return report("cannot print " + arguments[1], status);
  return copy.lost_bytes != 0 ? kExitFailed : done(*volume);
}

namespace {

Status export_tree(const FileVolume& volume, const std::string& from, const std::string& to,
                   Copy& copy, Progress& progress) {
  copy.at = from;
  const Result<FileInfo> info = volume.stat(from);
  if (!info.ok()) return info.status();
  if (!info->directory) {
    const HostFile file(to, O_WRONLY | O_CREAT | O_EXCL);
    if (file.fd() < 0) return host_error("cannot make the file to export to");
    const Status status = copy_out(volume, from, file.fd(), copy, &progress);
    if (!status.ok()) return status;
    ++copy.files;
    return ::fsync(file.fd()) == 0 ? Status() : host_error("cannot sync");
  }
  std::error_code error;
  host::create_directory(to, error);
  if (error) return {Code::io_error, Origin::tool, "cannot make the directory", error.value()};
  ++copy.directories;
  const auto all = volume.list(from);
  if (!all.ok()) return all.status();
  for (const FileInfo& each : *all) {
    const Status status =
        export_tree(volume, from + "/" + each.name, to + "/" + each.name, copy, progress);
    if (!status.ok()) return status;
  }
  return {};
}

Status import_file(FileVolume& volume, const std::string& from, const std::string& to, Copy& copy,
                   Progress& progress) {
  const HostFile file(from, O_RDONLY);
  if (file.fd() < 0) return host_error("cannot open the file to import");
  auto made = volume.create(to, FileVolume::Existing::refuse);
  if (!made.ok()) return made.status();
  copy.made.push_back({to, false});
  AlignedBuffer buffer(kCopyBytes);
  for (;;) {
    const ssize_t read = ::read(file.fd(), buffer.data(), buffer.size());
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return host_error("cannot read the file to import");
    if (read == 0) break;
    const auto bytes = static_cast<std::size_t>(read);
    const Status status = (*made)->append(buffer.span().first(bytes));
    if (!status.ok()) return status;
    copy.bytes += bytes;
    progress.count(copy.bytes / kMiB);
  }
  ++copy.files;
  return (*made)->close();
}

Status import_tree(FileVolume& volume, const std::string& from, const std::string& to, Copy& copy,
                   Progress& progress) {
  copy.at = from;
  std::error_code error;
  const host::file_status kind = host::status(from, error);
  if (error) return {Code::not_found, Origin::tool, "cannot look at it", error.value()};
  if (host::is_regular_file(kind)) return import_file(volume, from, to, copy, progress);
  if (!host::is_directory(kind)) {
    return {Code::unsupported, Origin::tool, "only files and directories can be imported"};
  }
  const Status made = volume.make_directory(to);
  if (!made.ok() && (made.code() != Code::exists || to.find_first_not_of('/') != to.npos)) {
    return made;
  }
  if (made.ok()) copy.made.push_back({to, true});
  ++copy.directories;
  std::vector<std::string> names;
  for (host::directory_iterator each(from, error), end; !error && each != end;
       each.increment(error)) {
    names.push_back(each->path().filename().string());
  }
  if (error) return {Code::io_error, Origin::tool, "cannot list the directory", error.value()};
  for (const std::string& name : names) {
    const Status status = import_tree(volume, from + "/" + name, to + "/" + name, copy, progress);
    if (!status.ok()) return status;
  }
  return {};
}

int report_copy(const char* what, const Copy& copy, const Status& status) {
  if (!status.ok()) return report(fmt::format("cannot {} {}", what, copy.at), status);
  Json said = {{"files", copy.files}, {"directories", copy.directories}, {"bytes", copy.bytes}};
  if (FLAGS_rescue) said["lost_bytes"] = copy.lost_bytes;
  const int printed = print(said);
  return copy.lost_bytes != 0 ? kExitFailed : printed;
}

std::uint64_t bytes_below(const FileVolume& volume, const std::string& path) {
  const Result<FileInfo> info = volume.stat(path);
  if (!info.ok() || !info->directory) return info.ok() ? info->bytes : 0;
  std::uint64_t bytes = 0;
  const auto all = volume.list(path);
  if (!all.ok()) return 0;
  for (const FileInfo& each : *all) bytes += bytes_below(volume, path + "/" + each.name);
  return bytes;
}

// As far as they can be seen: copying says what is wrong.
std::uint64_t host_bytes_below(const std::string& path) {
  std::error_code error;
  std::uint64_t bytes = 0;
  if (!host::is_directory(path, error)) {
    bytes = host::file_size(path, error);
    return error ? 0 : bytes;
  }
  for (host::recursive_directory_iterator each(path, error), end; !error && each != end;
       each.increment(error)) {
    std::error_code its;
    const std::uint64_t more = each->is_regular_file(its) ? each->file_size(its) : 0;
    if (!its) bytes += more;
  }
  return bytes;
}

}  // namespace

int fs_export(const Arguments& arguments) {
  FilesToRead volume;
  if (const int status = open_files(arguments[0], volume); status != kExitDone) return status;
  Copy copy;
  Progress progress(fmt::format("exporting {} MiB", bytes_below(*volume, arguments[1]) / kMiB),
                    "MiB");
  return done(*volume,
              report_copy("export", copy,
                          export_tree(*volume, arguments[1], arguments[2], copy, progress)));
}

namespace {

// What an import that failed has made, so that it can be tried again.
Status take_back(FileVolume& volume, const std::vector<Copy::Made>& made) {
  for (auto each = made.rbegin(); each != made.rend(); ++each) {
    const Status gone =
        each->directory ? volume.remove_directory(each->path) : volume.remove(each->path);
    if (!gone.ok()) return gone;
  }
  return volume.sync_names();
}

}  // namespace

int fs_import(const Arguments& arguments) {
  std::shared_ptr<FileVolume> volume;
  if (const int status = mount_files(arguments[0], volume); status != kExitDone) return status;
  Copy copy;
  Progress progress(fmt::format("importing {} MiB", host_bytes_below(arguments[1]) / kMiB), "MiB");
  Status status = import_tree(*volume, arguments[1], arguments[2], copy, progress);
  if (status.ok()) status = volume->sync_names();
  if (!status.ok() && !copy.made.empty()) {
    const Status gone = take_back(*volume, copy.made);
    if (gone.ok()) {
      fmt::print(stderr, "furrowctl: what had been imported is removed again\n");
    } else {
      (void)report("what had been imported is still there; see furrowctl fs rm", gone);
    }
  }
  return report_copy("import", copy, status);
}

}  // namespace furrow::tools
