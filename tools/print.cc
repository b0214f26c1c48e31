#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/safe_text.h"
#include "tools/tell.h"

DEFINE_bool(json, false, "print JSON");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

std::string cell(const Json& value) {
  return value.is_string() ? safe_text(value.get<std::string>()) : json_text(value, -1);
}

// "536870912 (512MiB)" for a number of bytes that is a whole number of a larger unit.
std::string line_value(const std::string& name, const Json& value) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  if (!name.ends_with("_bytes") || !value.is_number_unsigned()) return cell(value);
  std::uint64_t number = value.get<std::uint64_t>();
  unsigned unit = 0;
  while (number != 0 && number % 1024 == 0 && unit < 4) {
    number /= 1024;
    ++unit;
  }
  return unit == 0 ? cell(value) : fmt::format("{} ({}{})", cell(value), number, kUnits[unit]);
}

std::string object_text(const Json& object) {
  std::size_t width = 0;
  for (const auto& item : object.items()) width = std::max(width, safe_text(item.key()).size());
  std::string text;
  for (const auto& item : object.items()) {
    const std::string name = safe_text(item.key());
    text += fmt::format("{:<{}}  {}\n", name, width, line_value(name, item.value()));
  }
  return text;
}

// A row need not have all columns.
std::string table_text(const Json& rows) {
  std::vector<std::string> columns;
  for (const Json& row : rows) {
    for (const auto& item : row.items()) {
      if (std::ranges::find(columns, item.key()) == columns.end()) columns.push_back(item.key());
    }
  }
  std::vector<std::vector<std::string>> table(1);
  for (const std::string& name : columns) table[0].push_back(safe_text(name));
  for (const Json& row : rows) {
    auto& cells = table.emplace_back();
    for (const std::string& name : columns) {
      cells.push_back(row.contains(name) ? cell(row[name]) : "-");
    }
  }
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& row : table) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string text_of(const Json& result) {
  if (result.is_object()) return object_text(result);
  if (!result.is_array()) return cell(result) + '\n';
  if (!result.empty() && result.front().is_object()) return table_text(result);
  std::string text;
  for (const Json& element : result) text += cell(element) + '\n';
  return text;
}

}  // namespace

bool json_asked() { return FLAGS_json; }

// A name need not be UTF-8, which JSON is.
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return safe_json(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

int print(const nlohmann::ordered_json& result) {
  return print_text(FLAGS_json ? json_text(result, 2) + '\n' : text_of(result));
}

int print_text(std::string_view text) {
  { const WithoutProgress gone; }  // not meanwhile: who reads stdout may take long
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return kExitDone;
  if (errno == EPIPE) return kExitFailed;  // who reads no more, as head(1), need not be told
  return report("cannot write to stdout", Status(Code::io_error, Origin::tool, "", errno));
}

}  // namespace furrow::tools
