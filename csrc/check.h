// Checks whose message prints the values that broke them. They guard memory, so they stay on in release builds.
#pragma once

#include <sstream>
#include <stdexcept>

namespace ser_fast {

template <typename... Parts>
std::string concat(const Parts &...parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

}  // namespace ser_fast

#define SER_FAST_CHECK(condition, ...)                                    \
    do {                                                                  \
        if (!(condition)) {                                               \
            throw std::invalid_argument(::ser_fast::concat(__VA_ARGS__)); \
        }                                                                 \
    } while (false)
