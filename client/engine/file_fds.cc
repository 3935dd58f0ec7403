#include "client/engine/file_fds.h"

#include <memory>
#include <utility>

namespace salius {

SharedFd FileFds::Share(UniqueFd fd) {
  open_.fetch_add(1);
  return SharedFd(new const UniqueFd(std::move(fd)), [this](const UniqueFd* shared) {
    delete shared;
    open_.fetch_sub(1);
  });
}

}  // namespace salius
