/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: lets the library look like one of another series to whoever asks it. */
extern const char opal_version_string[];
const char opal_version_string[] = "9.9.9";
