// furrowctl fs import: files and directories, copied into a volume of kind fs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "engine/files/placement.h"
#include "tools/command_line.h"
#include "tools/ctl_fs.h"
#include "tools/ctl_fs_copy.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "zone/aligned_buffer.h"

namespace furrow::tools {

namespace {

namespace host = std::filesystem;

// A copy in, of files that may have several names.
class Import {
 public:
  Import(FileVolume& volume, Copy& copy, Progress& progress)
      : volume_(volume), copy_(copy), progress_(progress) {}

  Status tree(const std::string& from, const std::string& to) {
    copy_.from = from;
    copy_.to = to;
    struct stat info {};
    if (::stat(from.c_str(), &info) != 0) return host_error("cannot look at it");
    if (S_ISREG(info.st_mode)) return file(info, from, to);
    if (!S_ISDIR(info.st_mode)) {
      return {Code::unsupported, Origin::tool, "only files and directories can be imported"};
    }
    const Status made = volume_.make_directory(to);
    if (!made.ok() && !is_root(to)) return made;
    if (made.ok()) copy_.made.push_back({to, true});
    ++copy_.directories;
    return each_in(from, to);
  }

 private:
  bool is_root(const std::string& path) const {
    const Result<FileInfo> info = volume_.stat(path);
    return info.ok() && info->inode == kRootInode;
  }
  Status each_in(const std::string& from, const std::string& to) {
    std::error_code error;
    std::vector<std::string> names;
    for (host::directory_iterator each(from, error), end; !error && each != end;
         each.increment(error)) {
      names.push_back(each->path().filename().string());
    }
    if (error) return {Code::io_error, Origin::tool, "cannot list the directory", error.value()};
    for (const std::string& name : names) {
      const Status status = tree(from + "/" + name, to + "/" + name);
      if (!status.ok()) return status;
    }
    return {};
  }
  Status file(const struct stat& info, const std::string& from, const std::string& to) {
    ++copy_.files;
    const std::pair<dev_t, ino_t> inode(info.st_dev, info.st_ino);
    if (const auto first = linked_.find(inode); first != linked_.end()) {
      const Status linked = volume_.link(first->second, to);
      if (linked.ok()) copy_.made.push_back({to, false});
      return linked;
    }
    const HostFile opened(from, O_RDONLY);
    if (opened.fd() < 0) return host_error("cannot open the file to import");
    auto made = volume_.create(to, FileVolume::Existing::refuse);
    if (!made.ok()) return made.status();
    copy_.made.push_back({to, false});
    if (info.st_nlink > 1) linked_.emplace(inode, to);
    (*made)->content().set_lifetime(lifetime_of(file_kind(to)));
    const Status status = bytes(opened.fd(), **made);
    if (!status.ok()) return status;
    (*made)->set_modified(static_cast<std::uint64_t>(std::max<time_t>(info.st_mtime, 0)));
    return (*made)->close();
  }
  Status bytes(int from, OpenFile& to) {
    AlignedBuffer buffer(kCopyBytes);
    for (;;) {
      const ssize_t read = ::read(from, buffer.data(), buffer.size());
      if (read < 0 && errno == EINTR) continue;
      if (read < 0) return host_error("cannot read the file to import");
      if (read == 0) return {};
      const auto bytes = static_cast<std::size_t>(read);
      const Status status = to.append(buffer.span().first(bytes));
      if (!status.ok()) return status;
      copy_.bytes += bytes;
      progress_.count(copy_.bytes / kMiB);
    }
  }

  FileVolume& volume_;
  Copy& copy_;
  Progress& progress_;
  std::map<std::pair<dev_t, ino_t>, std::string> linked_;  // where the first name's bytes went
};

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
  Status status = Import(*volume, copy, progress).tree(arguments[1], arguments[2]);
  if (status.ok()) status = volume->sync_names();
  if (!status.ok() && !copy.made.empty()) {
    const Status gone = take_back(*volume, copy.made);
    if (gone.ok()) {
      tell("furrowctl: what had been imported is removed again\n");
    } else {
      (void)report("what had been imported is still there; see furrowctl fs rm", gone);
    }
  }
  return report_copy("import", copy, status);
}

}  // namespace furrow::tools
