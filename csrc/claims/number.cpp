#include "claims/number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "claims/scan.h"

namespace ser_fast::claims {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view &text) {
    const size_t n = std::find_if_not(text.begin(), text.end(), is_digit) - text.begin();
    const std::string_view digits = text.substr(0, n);
    text.remove_prefix(n);
    return digits;
}

bool take_char(std::string_view &text, char c) {
    if (text.empty() || text.front() != c) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

bool take_word(std::string_view &text, std::string_view lower_case) {
    const auto same = [](char lower, char any) { return (any | 0x20) == lower; };
    if (text.size() < lower_case.size() || !std::equal(lower_case.begin(), lower_case.end(), text.begin(), same)) {
        return false;
    }
    text.remove_prefix(lower_case.size());
    return true;
}

// What std::from_chars does not say when it reports "out of range": whether the value is too large or too small.
double beyond_range(std::string_view whole, std::string_view fraction, std::string_view exponent_text) {
    int64_t exponent = 0;
    const bool negative = !exponent_text.empty() && exponent_text.front() == '-';
    for (const char c : exponent_text) {
        if (is_digit(c)) {
            exponent = std::min<int64_t>(exponent * 10 + (c - '0'), int64_t{1} << 40);
        }
    }
    const size_t first = whole.find_first_not_of('0');
    const int64_t magnitude = first != std::string_view::npos ? static_cast<int64_t>(whole.size() - first)
                                                              : -static_cast<int64_t>(fraction.find_first_not_of('0'));
    return magnitude + (negative ? -exponent : exponent) > 0 ? std::numeric_limits<double>::infinity() : 0.0;
}

enum class Level { kUnknown, kNumbers, kBrackets };

}  // namespace

bool take_number(std::string_view &text, double &value) {
    std::string_view rest = text;
    const bool minus = take_char(rest, '-');
    if (!minus) {
        take_char(rest, '+');
    }
    const double sign = minus ? -1.0 : 1.0;
    if (take_word(rest, "nan")) {
        value = std::numeric_limits<double>::quiet_NaN();
        text = rest;
        return true;
    }
    if (take_word(rest, "infinity") || take_word(rest, "inf")) {
        value = sign * std::numeric_limits<double>::infinity();
        text = rest;
        return true;
    }
    const char *const begin = rest.data();
    const std::string_view whole = take_digits(rest);
    const std::string_view fraction = take_char(rest, '.') ? take_digits(rest) : std::string_view{};
    if (whole.empty() && fraction.empty()) {
        return false;
    }
    std::string_view exponent;
    std::string_view tail = rest;
    if (take_char(tail, 'e') || take_char(tail, 'E')) {
        const char *const exponent_begin = tail.data();
        if (!take_char(tail, '-')) {
            take_char(tail, '+');
        }
        if (!take_digits(tail).empty()) {
            exponent = {exponent_begin, static_cast<size_t>(tail.data() - exponent_begin)};
            rest = tail;
        }
    }
    const auto result = std::from_chars(begin, rest.data(), value);
    if (result.ec == std::errc::result_out_of_range) {
        value = beyond_range(whole, fraction, exponent);
    }
    value *= sign;
    text = rest;
    return true;
}

bool parse_boxes(std::string_view text, std::vector<double> &boxes) {
    std::array<Level, kMaxBracketDepth> levels{};
    std::array<double, 4> box{};
    size_t depth = 0;
    size_t num_values = 0;
    bool value_due = true;
    text = trim(text);
    do {
        text = trim(text);
        if (text.empty()) {
            return false;
        }
        if (!value_due) {
            if (take_char(text, ',')) {
                value_due = true;
                continue;
            }
            if (!take_char(text, ']')) {
                return false;
            }
            --depth;
            if (levels[depth] == Level::kNumbers) {
                if (num_values != box.size()) {
                    return false;
                }
                boxes.insert(boxes.end(), box.begin(), box.end());
            }
            continue;
        }
        if (take_char(text, '[')) {
            if (depth == levels.size() || (depth > 0 && levels[depth - 1] == Level::kNumbers)) {
                return false;
            }
            if (depth > 0) {
                levels[depth - 1] = Level::kBrackets;
            }
            levels[depth++] = Level::kUnknown;
            num_values = 0;
            continue;
        }
        if (depth == 0 || levels[depth - 1] == Level::kBrackets || num_values == box.size() ||
            !take_number(text, box[num_values])) {
            return false;
        }
        levels[depth - 1] = Level::kNumbers;
        ++num_values;
        value_due = false;
    } while (depth > 0);
    return trim(text).empty();
}

}  // namespace ser_fast::claims
