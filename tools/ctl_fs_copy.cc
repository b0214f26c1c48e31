// furrowctl fs cat|export: files of a volume of kind fs, copied out.

#include "tools/ctl_fs_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_fs.h"
#include "tools/host_file.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "zone/aligned_buffer.h"

DECLARE_bool(rescue);

namespace furrow::tools {

HostFile::HostFile(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

HostFile::~HostFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status host_error(const char* hint) { return {file_error().code(), Origin::tool, hint, errno}; }

int report_copy(const char* what, const Copy& copy, const Status& status) {
  if (!status.ok()) {
    return report(fmt::format("cannot {} {} to {}", what, copy.from, copy.to), status);
  }
  nlohmann::ordered_json said = {
      {"files", copy.files}, {"directories", copy.directories}, {"bytes", copy.bytes}};
  if (FLAGS_rescue) said["lost_bytes"] = copy.lost_bytes;
  const int printed = print(said);
  return copy.lost_bytes != 0 ? kExitFailed : printed;
}

namespace {

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return host_error("cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

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
  if (status.sys_errno() == EPIPE) return kExitFailed;  // as print_text()
  if (!status.ok()) return report("cannot print " + arguments[1], status);
  return copy.lost_bytes != 0 ? kExitFailed : done(*volume);
}

namespace {

// Of a directory: the names in it.
Status sync_host(const std::string& path) {
  const HostFile opened(path, O_RDONLY);
  if (opened.fd() < 0) return host_error("cannot open, to sync it");
  return ::fsync(opened.fd()) == 0 ? Status() : host_error("cannot sync");
}

// The directory that a name is in, which may end with slashes.
std::string directory_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::string in = std::filesystem::path(path).parent_path().string();
  return in.empty() ? "." : in;
}

// A copy out, of files that may have several names.
class Export {
 public:
  Export(const FileVolume& volume, Copy& copy, Progress& progress)
      : volume_(volume), copy_(copy), progress_(progress) {}

  // All of it is durable when it returns, its own name included.
  Status run(const std::string& from, const std::string& to) {
    const Status status = tree(from, to);
    return status.ok() ? sync_host(directory_of(to)) : status;
  }

 private:
  Status tree(const std::string& from, const std::string& to) {
    copy_.from = from;
    copy_.to = to;
    const Result<FileInfo> info = volume_.stat(from);
    if (!info.ok()) return info.status();
    if (!info->directory) return file(*info, from, to);
    if (::mkdir(to.c_str(), 0777) != 0) return host_error("cannot make the directory");
    copy_.made.push_back({to, true});
    ++copy_.directories;
    const auto all = volume_.list(from);
    if (!all.ok()) return all.status();
    for (const FileInfo& each : *all) {
      const Status status = tree(from + "/" + each.name, to + "/" + each.name);
      if (!status.ok()) return status;
    }
    return sync_host(to);
  }
  Status file(const FileInfo& info, const std::string& from, const std::string& to) {
    ++copy_.files;
    if (const auto first = linked_.find(info.inode); first != linked_.end()) {
      copy_.made.push_back({to, false});
      if (::link(first->second.c_str(), to.c_str()) == 0) return {};
      copy_.made.pop_back();  // the file system may have none, or no more: another file, then
    }
    const HostFile made(to, O_WRONLY | O_CREAT | O_EXCL);
    if (made.fd() < 0) return host_error("cannot make the file to export to");
    copy_.made.push_back({to, false});
    if (info.links > 1) linked_.emplace(info.inode, to);
    const Status status = copy_out(volume_, from, made.fd(), copy_, &progress_);
    if (!status.ok()) return status;
    const timespec time{static_cast<time_t>(info.modified_s), 0};
    const timespec times[] = {time, time};
    const bool known = info.modified_s != 0;  // not of one that has lost its record
    if (known && ::futimens(made.fd(), times) != 0) return host_error("cannot set its time");
    return ::fsync(made.fd()) == 0 ? Status() : host_error("cannot sync");
  }

  const FileVolume& volume_;
  Copy& copy_;
  Progress& progress_;
  std::map<std::uint64_t, std::string> linked_;  // by inode: where the first name's bytes went
};

// What an export that failed has made, so that it can be tried again.
Status take_back(const std::vector<Copy::Made>& made) {
  for (auto each = made.rbegin(); each != made.rend(); ++each) {
    if (std::remove(each->path.c_str()) != 0) return host_error("cannot remove it");
  }
  return {};
}

// Without recursion: a tree may be deeper than the stack.
std::uint64_t bytes_below(const FileVolume& volume, const std::string& path) {
  std::uint64_t bytes = 0;
  std::vector<std::string> left{path};
  while (!left.empty()) {
    const std::string at = std::move(left.back());
    left.pop_back();
    const Result<FileInfo> info = volume.stat(at);
    if (!info.ok()) continue;
    bytes += info->bytes;  // of a directory: none
    if (!info->directory) continue;
    const auto all = volume.list(at);
    if (!all.ok()) continue;
    for (const FileInfo& each : *all) left.push_back(at + "/" + each.name);
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
  const Status status = Export(*volume, copy, progress).run(arguments[1], arguments[2]);
  if (!status.ok() && !copy.made.empty()) {
    const Status gone = take_back(copy.made);
    if (gone.ok()) tell("furrowctl: what had been exported is removed again\n");
    if (!gone.ok()) (void)report("what had been exported is still there", gone);
  }
  return done(*volume, report_copy("export", copy, status));
}

}  // namespace furrow::tools
