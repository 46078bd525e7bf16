# -*- autoconf -*-
#
# What both builds share. Inside an Open MPI tree (opal/mca/btl/xrc) autogen.pl includes this file and configure calls
# MCA_opal_btl_xrc_CONFIG and _POST_CONFIG. Stand-alone, configure.ac includes it and calls the BTL_XRC_* macros itself.
# Keep every macro the in-tree build needs in this file: autogen.pl looks at no other.

m4_define([BTL_XRC_VERSION_STRING], [0.1.0])

# BTL_XRC_CHECK_VERBS([action if usable], [action if not])
# -------------------------------------------------------
# libibverbs with the public XRC calls. They are static inlines, so only a link test tells.
AC_DEFUN([BTL_XRC_CHECK_VERBS], [
    AC_MSG_CHECKING([for libibverbs with XRC])
    btl_xrc_save_LIBS=$LIBS
    LIBS="$LIBS -libverbs"
    AC_LINK_IFELSE(
        [AC_LANG_PROGRAM([[#include <infiniband/verbs.h>]],
            [[struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD};
              struct ibv_srq_init_attr_ex srq = {.srq_type = IBV_SRQT_XRC};
              struct ibv_qp_open_attr tgt = {.qp_type = IBV_QPT_XRC_RECV};
              return ibv_open_xrcd(0, &domain) && ibv_create_srq_ex(0, &srq) && ibv_open_qp(0, &tgt);]])],
        [btl_xrc_verbs=yes], [btl_xrc_verbs=no])
    LIBS=$btl_xrc_save_LIBS
    AC_MSG_RESULT([$btl_xrc_verbs])
    AS_IF([test "$btl_xrc_verbs" = yes], [$1], [$2])
])

# BTL_XRC_SUBST(standalone 0|1, verbs shim 0|1)
# ---------------------------------------------
# The values of btl_xrc_config.h.
AC_DEFUN([BTL_XRC_SUBST], [
    AC_SUBST([BTL_XRC_STANDALONE], [$1])
    AC_SUBST([BTL_XRC_HAVE_VERBS_SHIM], [$2])
    AC_SUBST([BTL_XRC_VERSION], ["BTL_XRC_VERSION_STRING"])
    AC_SUBST([btl_xrc_CPPFLAGS])
    AC_SUBST([btl_xrc_LDFLAGS])
    AC_SUBST([btl_xrc_LIBS])
])

# MCA_opal_btl_xrc_CONFIG([action if can compile], [action if cannot])
# --------------------------------------------------------------------
AC_DEFUN([MCA_opal_btl_xrc_CONFIG], [
    AC_CONFIG_FILES([opal/mca/btl/xrc/Makefile])
    AC_CONFIG_FILES([opal/mca/btl/xrc/btl_xrc/btl_xrc_config.h:opal/mca/btl/xrc/config/btl_xrc_config.h.in])
    btl_xrc_LIBS=-libverbs
    BTL_XRC_SUBST([0], [0])
    BTL_XRC_CHECK_VERBS([$1], [$2])
])

# MCA_opal_btl_xrc_POST_CONFIG(will be built 0|1)
# -----------------------------------------------
# automake wants every conditional of Makefile.am defined, whether or not the component is built.
AC_DEFUN([MCA_opal_btl_xrc_POST_CONFIG], [
    AM_CONDITIONAL([BTL_XRC_STANDALONE], [false])
    AM_CONDITIONAL([BTL_XRC_THREADS_SHIM], [false])
    AM_CONDITIONAL([BTL_XRC_VERBS_SHIM], [false])
])
