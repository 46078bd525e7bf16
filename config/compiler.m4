# -*- autoconf -*-
# Stand-alone build only: warnings and sanitizers for every directory, through AM_CFLAGS, AM_CXXFLAGS and AM_LDFLAGS.

AC_DEFUN([BTL_XRC_COMPILER_FLAGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--disable-werror], [warnings are no errors (default: errors in a git checkout)])],
        [], [AS_IF([test -e "$srcdir/.git"], [enable_werror=yes], [enable_werror=no])])
    AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [address and undefined-behaviour sanitizers])],
        [], [enable_asan=no])
    AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [thread sanitizer])], [], [enable_tsan=no])

    xrc_warn="-Wall -Wextra"
    AS_IF([test "$enable_werror" != no], [xrc_warn="$xrc_warn -Werror"])

    xrc_san=
    AS_IF([test "$enable_asan" != no && test "$enable_tsan" != no],
        [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])],
        [test "$enable_asan" != no],
        [xrc_san="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"],
        # The thread sanitizer does not model fences, and gcc warns of each.
        [test "$enable_tsan" != no], [xrc_san="-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan"])
    AS_IF([test -n "$xrc_san"], [BTL_XRC_CHECK_SANITIZER])

    AC_SUBST([AM_CFLAGS], ["-std=gnu11 $xrc_warn -Wstrict-prototypes $btl_xrc_CFLAGS $xrc_san"])
    AC_SUBST([AM_CXXFLAGS], ["-std=gnu++17 $xrc_warn $xrc_san"])
    AC_SUBST([AM_LDFLAGS], ["$xrc_san"])
])

AC_DEFUN([BTL_XRC_CHECK_SANITIZER], [
    AC_MSG_CHECKING([whether $CC links $xrc_san])
    btl_xrc_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $xrc_san"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([the sanitizer's run-time library is missing])])
    CFLAGS=$btl_xrc_save_CFLAGS
])

# BTL_XRC_CHECK_GTEST
# -------------------
AC_DEFUN([BTL_XRC_CHECK_GTEST], [
    AC_LANG_PUSH([C++])
    AC_MSG_CHECKING([for googletest])
    btl_xrc_save_LIBS=$LIBS
    LIBS="$LIBS -lgtest -lgtest_main -lpthread"
    AC_LINK_IFELSE([AC_LANG_SOURCE([[#include <gtest/gtest.h>
TEST(configure, links) {}]])], [btl_xrc_gtest=yes], [btl_xrc_gtest=no])
    LIBS=$btl_xrc_save_LIBS
    AC_MSG_RESULT([$btl_xrc_gtest])
    AC_LANG_POP([C++])
    AS_IF([test "$btl_xrc_gtest" = no],
        [AC_MSG_WARN([without googletest (libgtest-dev) make check has nothing to run])])
])
