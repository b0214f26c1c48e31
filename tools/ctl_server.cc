#include "tools/ctl_server.h"

#include <fmt/format.h>
#include <gflags/gflags.h>
#include <httplib.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "tools/token_file.h"
#include "tools/volume_json.h"

DEFINE_string(server, "", "HOST:PORT of a running furrowd's --admin, in the place of DEVICE-URI");
DEFINE_string(token_file, "", "the file that furrowd has as --admin_token_file");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

// What was asked for, or nothing: then `status` is the exit status, and the reason was reported.
struct Client {
  explicit Client(bool changes) {
    const Result<Endpoint> endpoint = parse_endpoint(FLAGS_server);
    if (!endpoint.ok()) {
      status = report_usage("--server: " + endpoint.status().describe());
      return;
    }
    if (changes) {
      if (FLAGS_token_file.empty()) {
        status = report_usage("--token_file is needed to change something on a server");
        return;
      }
      const Result<std::string> token = read_token(FLAGS_token_file);
      if (!token.ok()) {
        status = report("cannot use " + FLAGS_token_file, token.status());
        return;
      }
      headers.emplace("Authorization", "Bearer " + *token);
    }
    http.emplace(endpoint->host, endpoint->port);
    http->set_connection_timeout(5);
    http->set_read_timeout(30);
  }

  std::optional<httplib::Client> http;
  httplib::Headers headers;
  int status = kExitDone;
};

int fail(const std::string& what, const std::string& why, bool usage = false) {
  tell("{}: {}: {}\n", program_name(), what, why);
  return usage ? kExitUsage : kExitFailed;
}

int answered(const std::string& what, const httplib::Result& result) {
  if (!result) {
    return fail(
        what,
        fmt::format("no answer at {} ({}); is furrowd running there, with this as its --admin?",
                    FLAGS_server, httplib::to_string(result.error())));
  }
  const Json json = Json::parse(result->body, nullptr, false);
  if (result->status / 100 == 2 && !json.is_discarded()) return print(json);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    // As of report().
    const bool usage = json.contains("code") && json["code"] == to_string(Code::invalid_argument);
    return fail(what, json["error"].get<std::string>(), usage);
  }
  const std::string text = result->body.substr(0, result->body.find('\n'));
  return fail(what, fmt::format("{} ({})", text, result->status));
}

// A request that the server may have taken is one that it may have done.
int changed(const std::string& what, const httplib::Result& result) {
  using enum httplib::Error;
  if (result || result.error() == Connection || result.error() == ConnectionTimeout) {
    return answered(what, result);
  }
  return fail(what,
              fmt::format("{} was asked, and its answer did not come ({}): it may be done all "
                          "the same; see `furrowctl volume list --server={}`",
                          FLAGS_server, httplib::to_string(result.error()), FLAGS_server));
}

bool has(const httplib::Result& result, const char* member) {
  const Json json = result ? Json::parse(result->body, nullptr, false) : Json();
  return json.is_object() && json.contains(member);
}

// A server answers within a second or so, and goes on when it is asked again.
template <typename Ask>
httplib::Result ask_on(const std::string& shown, const Ask& ask) {
  const Progress progress(shown);
  for (;;) {
    httplib::Result result = ask();
    if (!has(result, "goes_on")) return result;
  }
}

int told(const std::string& what, const char* path) {
  Client client(false);
  if (!client.http) return client.status;
  return answered(what, client.http->Get(path));
}

}  // namespace

bool server_asked() { return flag_given("server"); }

int create_on_server(const VolumeOptions& options) {
  Client client(true);
  if (!client.http) return client.status;
  const std::string body = options_json(options).dump();
  return changed("cannot create volume " + options.name, ask_on("making " + options.name, [&] {
                   return client.http->Post("/volumes", client.headers, body, "application/json");
                 }));
}

int pool_info_of_server() { return told("cannot inspect the pool", "/pool"); }
int zones_of_server() { return told("cannot report zones", "/zones"); }
int list_on_server() { return told("cannot list volumes", "/volumes"); }

// Zones that are to be freed first take as long as they take; the server goes on when it is asked
// again.
int resize_on_server(const std::string& name, const ResizeOptions& options) {
  Client client(true);
  if (!client.http) return client.status;
  const std::string body = resize_json(options).dump();
  return changed("cannot resize volume " + name, ask_on("resizing " + name, [&] {
                   return client.http->Patch("/volumes/" + name, client.headers, body,
                                             "application/json");
                 }));
}

// Nor are hosts' commands done any sooner.
int delete_on_server(const std::string& name) {
  Client client(true);
  if (!client.http) return client.status;
  return changed("cannot delete volume " + name, ask_on("deleting " + name, [&] {
                   return client.http->Delete("/volumes/" + name, client.headers);
                 }));
}

}  // namespace furrow::tools
