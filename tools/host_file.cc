#include "tools/host_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace furrow::tools {

namespace {

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return file_error();
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

// Some file systems say only now that there was no room.
Status close_written(int fd, Status written) {
  return close(fd) == 0 || !written.ok() ? written : file_error();
}

Status write_in_place(const std::string& path, std::span<const std::byte> bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return file_error();
  return close_written(fd, write_all(fd, bytes));
}

mode_t mode_of_new_files() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// Another file in its place would be nobody else's, and have no other names.
bool may_be_replaced(const std::string& path, bool exists, const struct stat& old) {
  struct stat link {};
  if (!exists) return lstat(path.c_str(), &link) != 0;  // a link to nothing is followed
  return S_ISREG(old.st_mode) && old.st_nlink == 1 && old.st_uid == geteuid() &&
         old.st_gid == getegid();
}

bool is_no_room_beside(int error) {
  return error == EACCES || error == EPERM || error == ENAMETOOLONG;
}

// Where a link leads to, so that it stays one.
std::string followed(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  std::string result = real == nullptr ? path : real;
  std::free(real);
  return result;
}

}  // namespace

Status file_error() {
  const Code code = errno == ENOENT                     ? Code::not_found
                    : errno == EACCES || errno == EROFS ? Code::permission
                    : errno == ENOSPC                   ? Code::no_space
                    : errno == EEXIST                   ? Code::exists
                                                        : Code::io_error;
  return {code, Origin::tool, "", errno};
}

Status replace_file(const std::string& path, std::span<const std::byte> bytes) {
  struct stat old {};
  const bool exists = stat(path.c_str(), &old) == 0;
  if (!may_be_replaced(path, exists, old)) return write_in_place(path, bytes);
  if (exists && access(path.c_str(), W_OK) != 0) return file_error();
  const std::string target = exists ? followed(path) : path;
  std::string beside = target + ".XXXXXX";
  const int fd = mkostemp(beside.data(), O_CLOEXEC);
  if (fd < 0 && exists && is_no_room_beside(errno)) return write_in_place(path, bytes);
  if (fd < 0) return file_error();
  Status status = write_all(fd, bytes);
  if (status.ok() && fchmod(fd, exists ? old.st_mode & 07777 : mode_of_new_files()) != 0) {
    status = file_error();
  }
  if (status.ok() && fsync(fd) != 0) status = file_error();
  status = close_written(fd, status);
  if (status.ok() && rename(beside.c_str(), target.c_str()) != 0) status = file_error();
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace furrow::tools
