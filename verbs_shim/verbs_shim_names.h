/* For programs that link libverbs_shim instead of preloading it: the public libibverbs functions under their usual names, but bound
 * to this library whatever the symbol-search order. Include it in place of <infiniband/verbs.h>, and before anything that does.
 *
 * It renames the functions before verbs.h declares them, so that the header's own inline functions are bound the same way; the few
 * that verbs.h wraps in macros of its own are renamed underneath those. */
#ifndef VERBS_SHIM_NAMES_H
#define VERBS_SHIM_NAMES_H

#ifdef INFINIBAND_VERBS_H
#error "include verbs_shim_names.h before <infiniband/verbs.h>"
#endif

#define ibv_get_device_list vshim_get_device_list
#define ibv_free_device_list vshim_free_device_list
#define ibv_get_device_name vshim_get_device_name
#define ibv_get_device_guid vshim_get_device_guid
#define ibv_get_device_index vshim_get_device_index
#define ibv_open_device vshim_open_device
#define ibv_close_device vshim_close_device
#define ibv_import_device vshim_import_device
#define ibv_alloc_pd vshim_alloc_pd
#define ibv_dealloc_pd vshim_dealloc_pd
#define ibv_import_pd vshim_import_pd
#define ibv_unimport_pd vshim_unimport_pd
#define ibv_create_ah vshim_create_ah
#define ibv_destroy_ah vshim_destroy_ah
#define ibv_create_ah_from_wc vshim_create_ah_from_wc
#define ibv_init_ah_from_wc vshim_init_ah_from_wc
#define ibv_resolve_eth_l2_from_gid vshim_resolve_eth_l2_from_gid
#define ibv_reg_mr vshim_reg_mr
#define ibv_reg_mr_iova vshim_reg_mr_iova
#define ibv_reg_mr_iova2 vshim_reg_mr_iova2
#define ibv_reg_dmabuf_mr vshim_reg_dmabuf_mr
#define ibv_rereg_mr vshim_rereg_mr
#define ibv_dereg_mr vshim_dereg_mr
#define ibv_import_mr vshim_import_mr
#define ibv_unimport_mr vshim_unimport_mr
#define ibv_import_dm vshim_import_dm
#define ibv_unimport_dm vshim_unimport_dm
#define ibv_create_comp_channel vshim_create_comp_channel
#define ibv_destroy_comp_channel vshim_destroy_comp_channel
#define ibv_create_cq vshim_create_cq
#define ibv_resize_cq vshim_resize_cq
#define ibv_destroy_cq vshim_destroy_cq
#define ibv_get_cq_event vshim_get_cq_event
#define ibv_ack_cq_events vshim_ack_cq_events
#define ibv_create_srq vshim_create_srq
#define ibv_modify_srq vshim_modify_srq
#define ibv_query_srq vshim_query_srq
#define ibv_destroy_srq vshim_destroy_srq
#define ibv_create_qp vshim_create_qp
#define ibv_modify_qp vshim_modify_qp
#define ibv_query_qp vshim_query_qp
#define ibv_destroy_qp vshim_destroy_qp
#define ibv_qp_to_qp_ex vshim_qp_to_qp_ex
#define ibv_query_qp_data_in_order vshim_query_qp_data_in_order
#define ibv_attach_mcast vshim_attach_mcast
#define ibv_detach_mcast vshim_detach_mcast
#define ibv_query_device vshim_query_device
#define ibv_query_port vshim_query_port
#define ibv_query_gid vshim_query_gid
#define ibv_query_pkey vshim_query_pkey
#define ibv_get_pkey_index vshim_get_pkey_index
#define ibv_get_async_event vshim_get_async_event
#define ibv_ack_async_event vshim_ack_async_event
#define ibv_fork_init vshim_fork_init
#define ibv_is_fork_initialized vshim_is_fork_initialized
#define ibv_query_ece vshim_query_ece
#define ibv_set_ece vshim_set_ece
#define ibv_node_type_str vshim_node_type_str
#define ibv_port_state_str vshim_port_state_str
#define ibv_event_type_str vshim_event_type_str
#define ibv_wc_status_str vshim_wc_status_str
#define ibv_rate_to_mult vshim_rate_to_mult
#define mult_to_ibv_rate vshim_mult_to_ibv_rate
#define ibv_rate_to_mbps vshim_rate_to_mbps
#define mbps_to_ibv_rate vshim_mbps_to_ibv_rate
#define _ibv_query_gid_ex _vshim_query_gid_ex
#define _ibv_query_gid_table _vshim_query_gid_table

#include "verbs_shim.h"

#endif
