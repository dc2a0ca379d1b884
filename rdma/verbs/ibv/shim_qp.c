//go:build linux && cgo

// Queue pairs and their attributes.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <string.h>

static void cap_from_ibv(struct rk_qp_cap *out, const struct ibv_qp_cap *in)
{
	out->max_send_wr = in->max_send_wr;
	out->max_recv_wr = in->max_recv_wr;
	out->max_send_sge = in->max_send_sge;
	out->max_recv_sge = in->max_recv_sge;
	out->max_inline = in->max_inline_data;
}

static void cap_to_ibv(struct ibv_qp_cap *out, const struct rk_qp_cap *in)
{
	out->max_send_wr = in->max_send_wr;
	out->max_recv_wr = in->max_recv_wr;
	out->max_send_sge = in->max_send_sge;
	out->max_recv_sge = in->max_recv_sge;
	out->max_inline_data = in->max_inline;
}

static void ah_from_ibv(struct rk_ah_attr *out, const struct ibv_ah_attr *in)
{
	memcpy(out->dgid, in->grh.dgid.raw, sizeof out->dgid);
	out->flow_label = in->grh.flow_label;
	out->sgid_index = in->grh.sgid_index;
	out->hop_limit = in->grh.hop_limit;
	out->traffic_class = in->grh.traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->port_num;
}

static void ah_to_ibv(struct ibv_ah_attr *out, const struct rk_ah_attr *in)
{
	memcpy(out->grh.dgid.raw, in->dgid, sizeof in->dgid);
	out->grh.flow_label = in->flow_label;
	out->grh.sgid_index = in->sgid_index;
	out->grh.hop_limit = in->hop_limit;
	out->grh.traffic_class = in->traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->port_num;
}

void rk_attr_from_ibv(struct rk_qp_attr *out, const struct ibv_qp_attr *in)
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
	cap_from_ibv(&out->cap, &in->cap);
	ah_from_ibv(&out->ah, &in->ah_attr);
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
	struct ibv_qp_attr a;

	memset(&a, 0, sizeof a);
	a.qp_state = in->state;
	a.cur_qp_state = in->cur_state;
	a.path_mtu = in->path_mtu;
	a.qkey = in->qkey;
	a.rq_psn = in->rq_psn;
	a.sq_psn = in->sq_psn;
	a.dest_qp_num = in->dest_qpn;
	a.qp_access_flags = in->access;
	cap_to_ibv(&a.cap, &in->cap);
	ah_to_ibv(&a.ah_attr, &in->ah);
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
	return rk_errno(p_ibv_modify_qp((struct ibv_qp *)qp, &a, (int)mask));
}

int rk_query_qp(rk_h qp, uint32_t mask, struct rk_qp_attr *out)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	int err;

	memset(&a, 0, sizeof a);
	memset(&init, 0, sizeof init);
	errno = 0;
	err = rk_errno(p_ibv_query_qp((struct ibv_qp *)qp, &a, (int)mask, &init));
	if (err)
		return err;
	rk_attr_from_ibv(out, &a);
	return 0;
}

int rk_create_qp(rk_h pd, struct rk_qp_init *in, rk_h *qp, uint32_t *qpn)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp *q;

	memset(&init, 0, sizeof init);
	init.qp_context = (void *)(uintptr_t)in->key;
	init.send_cq = (struct ibv_cq *)in->send_cq;
	init.recv_cq = (struct ibv_cq *)in->recv_cq;
	init.srq = (struct ibv_srq *)in->srq;
	cap_to_ibv(&init.cap, &in->cap);
	init.qp_type = IBV_QPT_RC;
	init.sq_sig_all = in->sig_all != 0;
	errno = 0;
	q = p_ibv_create_qp((struct ibv_pd *)pd, &init);
	if (!q)
		return rk_failed();
	cap_from_ibv(&in->cap, &init.cap);
	*qp = (rk_h)q;
	*qpn = q->qp_num;
	return 0;
}

int rk_destroy_qp(rk_h qp)
{
	return rk_errno(p_ibv_destroy_qp((struct ibv_qp *)qp));
}

#endif
