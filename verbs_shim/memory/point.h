/* Named points between the steps on shared state. In a build with VS_CRASH_POINTS a process stops at the one that VERBS_SHIM_DIE_AT names,
 * as if killed: "ring_claimed", or "ring_claimed:3" for the third time it comes by, "any:3" for the third of all. Elsewhere they are nothing. */
#ifndef VS_POINT_H
#define VS_POINT_H

#define VS_POINTS(X)                                                                                                               \
	X(dir_made) X(lock_made) X(lock_taken) X(segment_unlinked) X(live_removed) X(lock_unlinked) X(dir_removed)                     \
	X(segment_created) X(segment_mapped) X(segment_initialised) X(control_rebuilt)                                                 \
	X(live_made) X(process_locked) X(process_published) X(process_retired) X(process_buried)                                       \
	X(slot_taken) X(slot_published) X(slot_retired) X(slot_emptied) X(slot_freed)                                                  \
	X(pages_reserved) X(pages_placed) X(pages_named) X(pages_punched) X(pages_unnamed)                                             \
	X(ring_claimed) X(ring_written) X(ring_full)                                                                                   \
	X(rq_posted) X(rq_ringed) X(rq_taken)                                                                                          \
	X(host_made) X(host_published)                                                                                                 \
	X(xrcd_handle) X(tgt_handle) X(tgt_last)                                                                                       \
	X(target_found) X(send_bounced) X(send_placed) X(send_answered) X(send_completed) X(send_failed)                               \
	X(atomic_locked) X(atomic_read) X(atomic_written) X(atomic_saved)                                                              \
	X(glob_claimed) X(glob_asked) X(glob_checked) X(glob_changed) X(glob_answered)                                                 \
	X(copy_claimed) X(copy_asked) X(place_direct)                                                                                  \
	X(path_begun) X(path_written) X(path_migrated) X(migration_told) X(qp_purged) X(cq_fired) X(cq_swapped)                        \
	X(event_pushed) X(cq_resizing) X(cq_resized) X(cq_overrun) X(overrun_told) X(overrun_failed)                                   \
	X(qp_failed) X(qp_stopped) X(established) X(owed_told) X(qp_applied) X(qp_reset) X(qp_moved)                                   \
	X(rights_withdrawn) X(rights_moved) X(limit_set) X(limit_reached) X(limit_told) X(ud_delivered) X(copy_served)                 \
	X(reap_retired) X(reap_orphaned) X(reap_rolled) X(reap_dropped) X(process_unlinked) X(process_left) X(segment_left)            \
	X(process_shut) X(segment_parted) X(orphans_retired) X(knobs_set) X(topology_set) X(fabric_settled)                            \
	X(lids_taken) X(port_moved) X(port_changing) X(state_set) X(pkey_set) X(port_told) X(routes_forgotten) X(route_set)            \
	X(hca_changing) X(hca_downed) X(hca_gone) X(hca_back) X(hca_changed) X(refusal_off) X(refusal_set) X(rule_set)

enum vs_point {
#define VS_POINT_ENUM(name) VS_POINT_##name,
	VS_POINTS(VS_POINT_ENUM)
#undef VS_POINT_ENUM
		VS_NUM_POINTS
};

#ifdef __cplusplus
extern "C" {
#endif

#ifdef VS_CRASH_POINTS
extern const char *const vs_point_name[VS_NUM_POINTS];
void vs_point_pass(enum vs_point point);
extern void (*vs_point_hook)(enum vs_point point); /* what else to do at each of them: a test's */

/* From now on stop there instead; NULL: nowhere. Counts from here. */
void vs_point_stop_at(const char *where);
#define VS_POINT(name) vs_point_pass(VS_POINT_##name)
#else
#define VS_POINT(name) ((void)0)
#endif

#ifdef __cplusplus
}
#endif

#endif
