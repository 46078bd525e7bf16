/* SPDX-License-Identifier: BSD-3-Clause */
/* The texts of help-mpi-btl-xrc.txt, for Open MPI 6.0 and later, which reads no files. A test compares the two. */
#ifndef BTL_XRC_HELP_H
#define BTL_XRC_HELP_H

/* clang-format off */
static const struct {
    const char *topic;
    const char *text;
} xrc_help[] = {
    {"no device",
     "No usable device: the xrc BTL was asked for by name, but host %s has no\n"
     "port for it.\n"
     "\n"
     "  RDMA devices found:  %d\n"
     "  btl_xrc_shim:        %s\n"
     "  btl_xrc_if_include:  %s\n"
     "  btl_xrc_if_exclude:  %s\n"
     "\n"
     "It needs an HCA that has XRC (mlx4, mlx5, hns) with an active port; see\n"
     "ibv_devinfo -v. On a host without any RDMA device it uses the software\n"
     "HCA, unless btl_xrc_shim is \"never\". A device that only the kernel knows\n"
     "(/sys/class/infiniband) is one, too: xrc_doctor tells what it needs."},
    {"bad receive_queues",
     "The parameter btl_xrc_receive_queues cannot be used:\n"
     "\n"
     "  Value:  %s\n"
     "  Entry:  %u\n"
     "  Fault:  %s\n"
     "\n"
     "Each entry reads X,size,num[,low[,window[,init[,limit]]]], entries are\n"
     "joined by \":\", and their sizes rise. Example:\n"
     "X,1024,512:X,12288,128:X,65536,32"},
    {"receive_queues differ",
     "Host %s, rank %u has other buffer sizes in btl_xrc_receive_queues than\n"
     "this process. The two will not use the xrc BTL with each other. Give\n"
     "the same value to all processes."},
    {"limits",
     "btl_xrc_receive_queues has no entry that holds what Open MPI sends at\n"
     "once:\n"
     "\n"
     "  Largest buffer:            %lu bytes\n"
     "  btl_xrc_eager_limit:       %lu bytes\n"
     "  Least that is possible:    %lu bytes\n"
     "\n"
     "Add an entry with larger buffers."},
    {"bad parameter",
     "The parameter btl_xrc_%s cannot have this value:\n"
     "\n"
     "  Value:    %s\n"
     "  Valid:    %s\n"
     "  Nearest:  %s\n"
     "\n"
     "The xrc BTL is not used."},
    {"unknown parameters",
     "The environment sets parameters of the xrc BTL that do not exist, which has\n"
     "no effect:\n"
     "\n"
     "%s\n"
     "\n"
     "\"ompi_info --param btl xrc --level 9\" lists all there are."},
    {"include and exclude",
     "btl_xrc_if_include (%s) and btl_xrc_if_exclude (%s) are both set. Only\n"
     "one of them may be."},
    {"no such port",
     "The parameter btl_xrc_%s names what host %s does not have:\n"
     "\n"
     "%s\n"
     "\n"
     "Devices and ports there are: %s\n"
     "\n"
     "%s\n"
     "btl_xrc_warn_nonexistent_if=0 leaves this message out."},
    {"one prefix",
     "Two ports of host %s are on different InfiniBand fabrics that have the\n"
     "same subnet prefix, so the xrc BTL cannot tell who reaches whom:\n"
     "\n"
     "  %s port %u, LID %u, subnet manager at LID %u\n"
     "  %s port %u, LID %u, subnet manager at LID %u\n"
     "  Prefix: 0x%016lx\n"
     "\n"
     "Connections between them will fail. Give each fabric a prefix of its\n"
     "own (opensm: subnet_prefix), or use only one with btl_xrc_if_include.\n"
     "btl_xrc_warn_default_gid_prefix=0 leaves this message out."},
    {"no rcache",
     "The registration cache \"%s\" (btl_xrc_rcache) is not available. Install\n"
     "it or choose another one; grdma comes with Open MPI."},
    {"no directory",
     "No place for the job's domain file of the xrc BTL:\n"
     "\n"
     "  Host:               %s\n"
     "  Session directory:  %s\n"
     "  Private directory:  %s\n"
     "\n"
     "The session directory is missing or cannot be written to, and the\n"
     "private one cannot be made or is not this user's alone (mode 0700). Set\n"
     "TMPDIR to a place where all local ranks of the job may write."},
    {"bad domain file",
     "The xrc BTL cannot use its domain file:\n"
     "\n"
     "  File:   %s\n"
     "  Host:   %s\n"
     "  Fault:  %s\n"
     "  System: %s\n"
     "  Owner:  %s\n"
     "\n"
     "If it was left by another program, remove it. If the file system is\n"
     "full, make room, or set TMPDIR to another one."},
    {"no memory",
     "The xrc BTL cannot get its receive buffers:\n"
     "\n"
     "  Device: %s\n"
     "  Host:   %s\n"
     "  Size:   %lu KiB\n"
     "  System: %s\n"
     "\n"
     "Most often the limit of locked memory is too low: see \"ulimit -l\" and\n"
     "/etc/security/limits.conf, also for the daemons of a batch system. Or\n"
     "let the queues start with fewer in btl_xrc_receive_queues (init): one\n"
     "that cannot grow later works with what it has."},
    {"no window",
     "The xrc BTL could not register memory for one-sided communication:\n"
     "\n"
     "  Device: %s\n"
     "  Host:   %s\n"
     "  Size:   %lu KiB\n"
     "\n"
     "Without it a window cannot be made or used; Open MPI fails, or tries again\n"
     "and again. Most often the limit of locked memory is too low: see \"ulimit -l\"\n"
     "and /etc/security/limits.conf, also for the daemons of a batch system."},
    {"verb failed",
     "%s failed:\n"
     "\n"
     "  Device:               %s\n"
     "  Host:                 %s\n"
     "  System:               %s\n"
     "  Locked memory limit:  %s\n"
     "\n"
     "With a limit that is not \"unlimited\", that is the first thing to look\n"
     "at: see \"ulimit -l\" and /etc/security/limits.conf."},
    {"no connection",
     "The xrc BTL could not connect to a peer.\n"
     "\n"
     "  From:   host %s, device %s port %u\n"
     "  To:     host %s, rank %u, LID %u, UD QPN 0x%06x\n"
     "  Reason: %s\n"
     "  Tried:  %u requests to %u rank(s) in %u s\n"
     "\n"
     "Is that process alive, and its host's link up? A longer time can be\n"
     "given with btl_xrc_connect_timeout."},
    {"no ibv_open_qp",
     "The verbs library has no ibv_open_qp, so two processes cannot hold one XRC\n"
     "target QP of the xrc BTL:\n"
     "\n"
     "  Host:    %s\n"
     "  Device:  %s\n"
     "\n"
     "Each such QP goes with the process that made it. That does no harm to jobs\n"
     "whose processes end together; but when one ends before others of its host,\n"
     "those may lose what is sent to them, which ends the job. A newer release of\n"
     "rdma-core, and with it of the device's provider, has ibv_open_qp."},
    {"send failed",
     "A send of the xrc BTL has failed.\n"
     "\n"
     "  From:   host %s, device %s port %u\n"
     "  To:     host %s, rank %u, LID %u\n"
     "  QPs:    INI 0x%06x, TGT 0x%06x\n"
     "  Status: %s\n"
     "  Cause:  %s\n"
     "\n"
     "%s"},
    {"bad modex",
     "Host %s, rank %u has published connection data for the xrc BTL that is\n"
     "%s. It will not be used for that peer.\n"
     "Do all hosts have the same version of mca_btl_xrc.so?"},
    {"apm not supported",
     "btl_xrc_apm asks for path migration, but host %s, device %s port %u\n"
     "cannot do that: it needs an InfiniBand port and an HCA that has\n"
     "automatic path migration (IBV_DEVICE_AUTO_PATH_MIG). The job goes on\n"
     "without it there."},
    {"apm not enough ports",
     "btl_xrc_apm=ports asks for a second port to migrate to, but on host %s\n"
     "device %s has no other active InfiniBand port on the subnet of port %u.\n"
     "The job goes on without path migration there.\n"
     "See ibv_devinfo, or use btl_xrc_apm=lmc if the port has several LIDs."},
    {"apm without lmc",
     "btl_xrc_apm=lmc asks for another LID to migrate to, but on host %s,\n"
     "device %s, port %u has one LID only (its LMC is 0). The job goes on\n"
     "without path migration there.\n"
     "Raise the LMC in the subnet manager (opensm: lmc 1), or use\n"
     "btl_xrc_apm=ports if the HCA has a second port."},
    {"apm without paths",
     "btl_xrc_apm=auto has found nothing to migrate to: on host %s, device %s\n"
     "has no other active InfiniBand port on the subnet of port %u, and that\n"
     "port has one LID only. The job goes on without path migration there."},
    {"all paths failed",
     "A send of the xrc BTL has failed, and there was no other path to take.\n"
     "\n"
     "  From:   host %s, device %s\n"
     "  To:     host %s, rank %u\n"
     "  Paths:  %s\n"
     "  QPs:    INI 0x%06x, TGT 0x%06x\n"
     "  Status: %s\n"
     "  Cause:  %s\n"
     "\n"
     "Look at the links of both hosts (ibstat, ibping, iblinkinfo)."},
};
/* clang-format on */

#endif
