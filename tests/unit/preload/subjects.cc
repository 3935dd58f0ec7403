#include "tests/unit/preload/subjects.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace salius::preload {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string SubjectRun::PathOf(const std::string& name) {
  const char* folder = getenv("SALIUS_PRELOAD_PROGRAMS");
  const std::filesystem::path base = folder == nullptr ? "tests/unit/preload" : folder;
  return (std::filesystem::absolute(base) / name).lexically_normal();
}

SubjectRun::SubjectRun() {
  const char* temporary = getenv("TEST_TMPDIR");
  std::string name = std::string(temporary == nullptr ? "/tmp" : temporary) + "/preload-XXXXXX";
  folder_ = std::filesystem::canonical(mkdtemp(name.data()));
  volume_ = folder_ + "/volume";
  mkdir(volume_.c_str(), 0755);
}

SubjectRun::~SubjectRun() { std::filesystem::remove_all(folder_); }

int SubjectRun::Run(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {PathOf(program)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = {
      "PATH=/usr/bin:/bin", "LD_PRELOAD=" + PathOf("librecording.so"),
      "SALIUS_DIRECT_VOLUME=" + volume_, "SALIUS_DIRECT_RECORD=" + folder_ + "/record"};
  for (const std::string& entry : entries_) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(environment, [&](const std::string& one) { return one.rfind(name, 0) == 0; });
    environment.push_back(entry);
  }
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& entry : environment) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const std::string messages = folder_ + "/messages";
    const int error = open(messages.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(error, STDERR_FILENO);
    close_range(3, ~0u, 0);
    if (chdir(volume_.c_str()) != 0) _exit(126);
    alarm(60);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<std::string> SubjectRun::Record() const {
  std::vector<std::string> lines;
  std::istringstream text(TextOf(folder_ + "/record"));
  const std::regex temporary("([a-z]-)[A-Za-z0-9]{6}"), unnamed("#[0-9]+");
  for (std::string line; std::getline(text, line);) {
    line = std::regex_replace(line, temporary, "$1*");
    lines.push_back(std::regex_replace(line, unnamed, "#*"));
  }
  return lines;
}

std::string SubjectRun::Messages() const { return TextOf(folder_ + "/messages"); }

}  // namespace salius::preload
