//go:build linux && cgo

// Queue pairs and their attributes.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <string.h>

// Both ibv_qp_attr and ibv_qp_init_attr hold the capacities, at other offsets.
#define CAP_FROM_IBV(out, in)                             \
	do {                                              \
		(out)->max_send_wr = (in)->max_send_wr;   \
		(out)->max_recv_wr = (in)->max_recv_wr;   \
		(out)->max_send_sge = (in)->max_send_sge; \
		(out)->max_recv_sge = (in)->max_recv_sge; \
		(out)->max_inline = (in)->max_inline_data; \
	} while (0)

#define CAP_TO_IBV(out, in)                               \
	do {                                              \
		(out)->max_send_wr = (in)->max_send_wr;   \
		(out)->max_recv_wr = (in)->max_recv_wr;   \
		(out)->max_send_sge = (in)->max_send_sge; \
		(out)->max_recv_sge = (in)->max_recv_sge; \
		(out)->max_inline_data = (in)->max_inline; \
	} while (0)

static void ah_from_ibv(struct rk_ah_attr *out, const ABI(ibv_qp_attr) *in)
{
	memcpy(out->dgid, in->dgid, sizeof out->dgid);
	out->flow_label = in->flow_label;
	out->sgid_index = in->sgid_index;
	out->hop_limit = in->hop_limit;
	out->traffic_class = in->traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->ah_port_num;
}

static void ah_to_ibv(ABI(ibv_qp_attr) *out, const struct rk_ah_attr *in)
{
	memcpy(out->dgid, in->dgid, sizeof in->dgid);
	out->flow_label = in->flow_label;
	out->sgid_index = in->sgid_index;
	out->hop_limit = in->hop_limit;
	out->traffic_class = in->traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->ah_port_num = in->port_num;
}

void rk_attr_from_ibv(struct rk_qp_attr *out, const ABI(ibv_qp_attr) *in)
{
	memset(out, 0, sizeof *out);
	out->state = in->qp_state;
	out->cur_state = in->cur_qp_state;
	out->path_mtu = in->path_mtu;
	out->qkey = in->qkey;
	out->rq_psn = in->rq_psn;
	out->sq_psn = in->sq_psn;
	out->dest_qpn = in->dest_qp_num;
	out->access = in->qp_access_flags;
	CAP_FROM_IBV(&out->cap, in);
	ah_from_ibv(&out->ah, in);
	out->pkey_index = in->pkey_index;
	out->en_sqd_notify = in->en_sqd_async_notify;
	out->sq_draining = in->sq_draining;
	out->max_rd_atomic = in->max_rd_atomic;
	out->max_dest_rd_atomic = in->max_dest_rd_atomic;
	out->min_rnr_timer = in->min_rnr_timer;
	out->port = in->port_num;
	out->timeout = in->timeout;
	out->retry_cnt = in->retry_cnt;
	out->rnr_retry = in->rnr_retry;
}

int rk_modify_qp(rk_h qp, const struct rk_qp_attr *in, uint32_t mask)
{
	ABI(ibv_qp_attr) a;

	memset(&a, 0, sizeof a);
	a.qp_state = in->state;
	a.cur_qp_state = in->cur_state;
	a.path_mtu = in->path_mtu;
	a.qkey = in->qkey;
	a.rq_psn = in->rq_psn;
	a.sq_psn = in->sq_psn;
	a.dest_qp_num = in->dest_qpn;
	a.qp_access_flags = in->access;
	CAP_TO_IBV(&a, &in->cap);
	ah_to_ibv(&a, &in->ah);
	a.pkey_index = in->pkey_index;
	a.en_sqd_async_notify = in->en_sqd_notify;
	a.max_rd_atomic = in->max_rd_atomic;
	a.max_dest_rd_atomic = in->max_dest_rd_atomic;
	a.min_rnr_timer = in->min_rnr_timer;
	a.port_num = in->port;
	a.timeout = in->timeout;
	a.retry_cnt = in->retry_cnt;
	a.rnr_retry = in->rnr_retry;
	errno = 0;
	return rk_errno(p_ibv_modify_qp((ABI(ibv_qp) *)qp, &a, (int)mask));
}

int rk_query_qp(rk_h qp, uint32_t mask, struct rk_qp_attr *out)
{
	ABI(ibv_qp_attr) a;
	ABI(ibv_qp_init_attr) init;
	int err;

	memset(&a, 0, sizeof a);
	memset(&init, 0, sizeof init);
	errno = 0;
	err = rk_errno(p_ibv_query_qp((ABI(ibv_qp) *)qp, &a, (int)mask, &init));
	if (err)
		return err;
	rk_attr_from_ibv(out, &a);
	return 0;
}

int rk_create_qp(rk_h pd, struct rk_qp_init *in, rk_h *qp, uint32_t *qpn)
{
	ABI(ibv_qp_init_attr) init;
	ABI(ibv_qp) *q;

	memset(&init, 0, sizeof init);
	init.qp_context = (void *)(uintptr_t)in->key;
	init.send_cq = (ABI(ibv_cq) *)in->send_cq;
	init.recv_cq = (ABI(ibv_cq) *)in->recv_cq;
	init.srq = (ABI(ibv_srq) *)in->srq;
	CAP_TO_IBV(&init, &in->cap);
	init.qp_type = ABI_IBV_QPT_RC;
	init.sq_sig_all = in->sig_all != 0;
	errno = 0;
	q = p_ibv_create_qp((ABI(ibv_pd) *)pd, &init);
	if (!q)
		return rk_failed();
	CAP_FROM_IBV(&in->cap, &init);
	*qp = (rk_h)q;
	*qpn = q->qp_num;
	return 0;
}

int rk_destroy_qp(rk_h qp)
{
	return rk_errno(p_ibv_destroy_qp((ABI(ibv_qp) *)qp));
}

#endif
