/* What a request does at the responder once it was found, in order and allowed in: the operations, one function each. */
#ifndef VS_EXECUTE_H
#define VS_EXECUTE_H

#include "hca/hca.h"

/* Carry out req at peer, whose messages go to target. Inside the data path. */
enum vs_verdict vs_execute(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *target);

/* A class-C error: peer goes to ERR and its holders are told; its owner's engine flushes its queues. Returns verdict. */
enum vs_verdict vs_refuse(struct vs_request *req, struct vs_qp_shm *peer, enum vs_verdict verdict);

/* An atomic that was carried out before: puts the saved result where the WR wants it. false: it is not saved any more. */
bool vs_replay_atomic(struct vs_request *req, const struct vs_qp_shm *peer);

#endif
