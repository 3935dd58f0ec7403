// The version of all of Salius' programs, in answers and in --version.
#pragma once

namespace salius {

inline constexpr char kSaliusVersion[] = "0.1.0";

}  // namespace salius
