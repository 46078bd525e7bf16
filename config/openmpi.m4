# -*- autoconf -*-
# Stand-alone build only: finds an installed Open MPI with its development headers.

# BTL_XRC_FIND_OPENMPI
# --------------------
# --with-ompi=PREFIX or =MPICC; default: mpicc in PATH. Sets MPICC, ompi_incflags, ompi_libflags, OMPI_SERIES.
AC_DEFUN([BTL_XRC_FIND_OPENMPI], [
    AC_ARG_WITH([ompi],
        [AS_HELP_STRING([--with-ompi=PREFIX|MPICC], [the Open MPI to build for (default: mpicc in PATH)])],
        [], [with_ompi=yes])
    AS_CASE([$with_ompi],
        [yes], [AC_PATH_PROG([MPICC], [mpicc])],
        [no], [AC_MSG_ERROR([this is an Open MPI component: it cannot be built without Open MPI])],
        [AS_IF([test -d "$with_ompi"], [MPICC=$with_ompi/bin/mpicc], [MPICC=$with_ompi])
         AC_PATH_PROG([MPICC], [$MPICC])])
    AS_IF([test -z "$MPICC"],
        [AC_MSG_ERROR([no mpicc found; install libopenmpi-dev or give --with-ompi=PREFIX])])
    AC_MSG_CHECKING([what $MPICC belongs to])
    ompi_version=`$MPICC --showme:version 2>/dev/null | sed -n 's/.*Open MPI \(@<:@0-9@:>@@<:@^ @:>@*\).*/\1/p'`
    AS_IF([test -z "$ompi_version"],
        [AC_MSG_ERROR([$MPICC is not a compiler wrapper of Open MPI])])
    AC_MSG_RESULT([Open MPI $ompi_version])
    OMPI_SERIES=`echo "$ompi_version" | sed 's/^\(@<:@0-9@:>@*\.@<:@0-9@:>@*\).*/\1/'`
    AC_SUBST([MPICC])
    AC_SUBST([OMPI_SERIES])

    # -isystem: the warnings of Open MPI's own headers are not ours to mend.
    ompi_incflags=
    for dir in `$MPICC --showme:incdirs`; do
        ompi_incflags="$ompi_incflags -isystem $dir"
    done
    ompi_libflags=
    for dir in `$MPICC --showme:libdirs`; do
        ompi_libflags="$ompi_libflags -L$dir"
    done
    AC_SUBST([MPI_CPPFLAGS], ["$ompi_incflags"])
    AC_SUBST([MPI_LIBS], ["$ompi_libflags `for lib in \`$MPICC --showme:libs\`; do printf -- '-l%s ' $lib; done`"])
    AC_MSG_CHECKING([for PMIx])
    AS_IF([pmix_cflags=`pkg-config --cflags pmix 2>/dev/null` && pmix_libs=`pkg-config --libs pmix 2>/dev/null`],
        [pmix=yes], [pmix=no])
    AC_MSG_RESULT([$pmix $pmix_cflags])
    AC_SUBST([PMIX_CPPFLAGS], ["$pmix_cflags"])
    AS_CASE([$OMPI_SERIES],
        [1.*|2.*|3.*|4.0], [AC_MSG_ERROR([Open MPI 4.1 or later is needed])],
        [4.*], [],
        [# From 5.0 on, the headers include <pmix.h> and components call libpmix directly.
         AS_IF([test $pmix = no], [AC_MSG_ERROR([Open MPI $OMPI_SERIES needs PMIx, and pkg-config knows no pmix])])
         ompi_incflags="$ompi_incflags $pmix_cflags"
         ompi_libflags="$ompi_libflags $pmix_libs"])
])

# BTL_XRC_CHECK_OPENMPI_HEADERS
# -----------------------------
# The headers a BTL needs (--with-devel-headers). 5.0 and 6.0 forget to install opal/mca/threads/pthreads/*.h; if that
# is what is missing, our stand-ins in btl_xrc/compat do.
AC_DEFUN([BTL_XRC_CHECK_OPENMPI_HEADERS], [
    btl_xrc_threads_shim=no
    AC_MSG_CHECKING([for Open MPI's BTL headers])
    btl_xrc_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $ompi_incflags"
    BTL_XRC_TRY_BTL_H([btl_xrc_headers=yes], [
        CPPFLAGS="$btl_xrc_save_CPPFLAGS -I$srcdir/btl_xrc/compat $ompi_incflags"
        BTL_XRC_TRY_BTL_H([btl_xrc_headers="yes, with stand-ins for the thread headers"
                           btl_xrc_threads_shim=yes], [btl_xrc_headers=no])
    ])
    CPPFLAGS=$btl_xrc_save_CPPFLAGS
    AC_MSG_RESULT([$btl_xrc_headers])
    AS_IF([test "$btl_xrc_headers" = no],
        [AC_MSG_ERROR([this Open MPI was installed without the headers of opal/mca/btl (see config.log);
            configure Open MPI --with-devel-headers, or install libopenmpi-dev, libhwloc-dev and libevent-dev])])
])

AC_DEFUN([BTL_XRC_TRY_BTL_H], [
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include "opal_config.h"
#include "opal/mca/btl/btl.h"]], [[return (int) sizeof(mca_btl_base_module_t);]])], [$1], [$2])
])

# BTL_XRC_CHECK_CX16
# ------------------
# Open MPI's free lists use a 16-byte compare-and-swap that on amd64 needs a compiler flag; without it the component
# has an undefined symbol.
AC_DEFUN([BTL_XRC_CHECK_CX16], [
    AC_MSG_CHECKING([which flag Open MPI's 128-bit atomics need])
    btl_xrc_save_CPPFLAGS=$CPPFLAGS
    btl_xrc_save_CFLAGS=$CFLAGS
    CPPFLAGS="$CPPFLAGS $ompi_incflags"
    BTL_XRC_TRY_CX16([btl_xrc_cx16=none], [
        CFLAGS="$CFLAGS -mcx16"
        BTL_XRC_TRY_CX16([btl_xrc_cx16=-mcx16], [btl_xrc_cx16=unknown])
    ])
    CPPFLAGS=$btl_xrc_save_CPPFLAGS
    CFLAGS=$btl_xrc_save_CFLAGS
    AC_MSG_RESULT([$btl_xrc_cx16])
    AS_CASE([$btl_xrc_cx16],
        [-mcx16], [btl_xrc_CFLAGS="$btl_xrc_CFLAGS -mcx16"],
        [unknown], [AC_MSG_ERROR([cannot link Open MPI's 128-bit atomics (see config.log)])])
])

AC_DEFUN([BTL_XRC_TRY_CX16], [
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include "opal_config.h"
#include "opal/sys/atomic.h"]], [[
#if OPAL_HAVE_ATOMIC_COMPARE_EXCHANGE_128
        static opal_int128_t value, expected;
        return !opal_atomic_compare_exchange_strong_128((void *) &value, &expected, 1);
#endif
    ]])], [$1], [$2])
])

# BTL_XRC_CHECK_OPENPAL
# ---------------------
AC_DEFUN([BTL_XRC_CHECK_OPENPAL], [
    AC_MSG_CHECKING([for libopen-pal and libhwloc])
    btl_xrc_save_LIBS=$LIBS
    LIBS="$LIBS $ompi_libflags -lopen-pal -lhwloc"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[extern const char opal_version_string[]; unsigned hwloc_get_api_version(void);]],
            [[return opal_version_string[0] == (char) hwloc_get_api_version();]])],
        [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])
         AC_MSG_ERROR([cannot link -lopen-pal -lhwloc (see config.log)])])
    LIBS=$btl_xrc_save_LIBS
])
