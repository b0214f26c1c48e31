#include "tools/token_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

namespace furrow::tools {

Result<std::string> read_token(const std::string& path) {
  constexpr std::size_t kMin = 16, kMax = 256;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) {
    if (errno == EACCES) {
      return Status(Code::permission, Origin::tool,
                    "this user may not read it, or not look into its folder", errno);
    }
    return Status(errno == ENOENT ? Code::not_found : Code::io_error, Origin::tool, "", errno);
  }
  struct stat facts;  // of what was opened, whatever has its name by now
  if (fstat(fileno(file.get()), &facts) != 0) {
    return Status(Code::io_error, Origin::tool, "", errno);
  }
  if (S_ISDIR(facts.st_mode)) {
    return Status(Code::invalid_argument, Origin::tool, "it is a directory");
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(Code::permission, Origin::tool,
                  "others than its owner may use the token in it; chmod 600 it");
  }
  std::string token(kMax + 2, '\0');  // no more than that, and a line's end, is looked at
  token.resize(std::fread(token.data(), 1, token.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Status(Code::io_error, Origin::tool, "cannot be read", errno);
  }
  if (const std::size_t end = token.find('\n'); end != std::string::npos) {
    token.resize(end != 0 && token[end - 1] == '\r' ? end - 1 : end);
  }
  const bool printable = std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kMin || token.size() > kMax || !printable) {
    return Status(Code::invalid_argument, Origin::tool,
                  "its first line must be a token of 16 to 256 characters without spaces, as "
                  "`openssl rand -hex 32` makes");
  }
  return token;
}

}  // namespace furrow::tools
