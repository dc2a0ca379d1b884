//go:build linux && cgo

// READs into prepared memory, each posted and polled for in one call. What does not
// change from READ to READ stands here: the work requests stay filled in, and of
// each only the identifier, the length and the remote place are written.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <stdlib.h>

struct sink {
	ABI(ibv_send_wr) wr;
	ABI(ibv_sge) sge;
};

struct reader {
	ABI(ibv_qp) *qp;
	ABI(ibv_cq) *cq;
	fn_post_send post;
	fn_poll_cq poll;
	int yield;
	uint32_t n;
	struct sink sinks[];
};

int rk_create_reader(rk_h qp, rk_h cq, int yield, const struct rk_sge *sinks, int n, rk_h *reader)
{
	struct reader *r = calloc(1, sizeof *r + (size_t)n * sizeof r->sinks[0]);

	if (!r)
		return ENOMEM;
	r->qp = (ABI(ibv_qp) *)qp;
	r->cq = (ABI(ibv_cq) *)cq;
	r->post = op_post_send(r->qp->context);
	r->poll = op_poll_cq(r->cq->context);
	r->yield = yield;
	r->n = (uint32_t)n;
	for (int i = 0; i < n; i++) {
		struct sink *s = &r->sinks[i];

		s->sge.addr = sinks[i].addr;
		s->sge.lkey = sinks[i].lkey;
		s->wr.sg_list = &s->sge;
		s->wr.num_sge = 1;
		s->wr.opcode = ABI_IBV_WR_RDMA_READ;
		s->wr.send_flags = ABI_IBV_SEND_SIGNALED;
	}
	*reader = (rk_h)r;
	return 0;
}

int rk_destroy_reader(rk_h reader)
{
	free((struct reader *)reader);
	return 0;
}

int rk_await_read(rk_h reader, int64_t ns, struct rk_wc *wc)
{
	struct reader *r = (struct reader *)reader;

	return rk_spin(r->cq, r->poll, wc, 1, ns, r->yield);
}

int rk_read(rk_h reader, uint32_t sink, uint64_t id, uint64_t addr, uint32_t rkey, uint32_t length, int64_t ns,
	    struct rk_wc *wc, int *err)
{
	struct reader *r = (struct reader *)reader;
	ABI(ibv_send_wr) *bad;
	struct sink *s;
	int ret;

	if (sink >= r->n) {
		*err = EINVAL;
		return 0;
	}
	s = &r->sinks[sink];
	s->wr.wr_id = id;
	s->wr.rdma_remote_addr = addr;
	s->wr.rdma_rkey = rkey;
	s->sge.length = length;
	ret = r->post(r->qp, &s->wr, &bad);
	if (ret) {
		*err = rk_errno(ret);
		return 0;
	}
	return rk_await_read(reader, ns, wc);
}

#endif
