//go:build linux && cgo

// Queues, and the data path. ibv_post_send, ibv_poll_cq and their like are no
// functions of the library: the context holds pointers to those of the provider.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <sched.h>
#include <string.h>
#include <time.h>

// What a batch is cut into: the chain of work requests stands on the stack,
// about 8 KiB.
#define CHUNK 64
// Polls between two looks at the clock.
#define POLLS 16

#define SAME(a, fa, b, fb)                                                            \
	_Static_assert(offsetof(struct a, fa) == offsetof(ABI(b), fb) &&              \
			       sizeof(((struct a *)0)->fa) == sizeof(((ABI(b) *)0)->fb), \
		       #a "." #fa)

_Static_assert(sizeof(struct rk_sge) == sizeof(ABI(ibv_sge)), "rk_sge");
SAME(rk_sge, addr, ibv_sge, addr);
SAME(rk_sge, length, ibv_sge, length);
SAME(rk_sge, lkey, ibv_sge, lkey);
_Static_assert(sizeof(struct rk_wc) == sizeof(ABI(ibv_wc)), "rk_wc");
SAME(rk_wc, id, ibv_wc, wr_id);
SAME(rk_wc, status, ibv_wc, status);
SAME(rk_wc, opcode, ibv_wc, opcode);
SAME(rk_wc, vendor_err, ibv_wc, vendor_err);
SAME(rk_wc, byte_len, ibv_wc, byte_len);
SAME(rk_wc, imm_inv, ibv_wc, imm_data);
SAME(rk_wc, qpn, ibv_wc, qp_num);
SAME(rk_wc, src_qp, ibv_wc, src_qp);
SAME(rk_wc, flags, ibv_wc, wc_flags);
_Static_assert(offsetof(struct rk_wc, polled) == offsetof(ABI(ibv_wc), pkey_index), "rk_wc.polled");

// poll asks the provider, by the pointer in the CQ's context.
static inline int poll(rk_h cq, struct rk_wc *wcs, int n)
{
	ABI(ibv_cq) *q = (ABI(ibv_cq) *)cq;

	return op_poll_cq(q->context)(q, n, (ABI(ibv_wc) *)wcs);
}

int rk_create_channel(rk_h ctx, rk_h *channel, int *fd)
{
	ABI(ibv_comp_channel) *c;

	errno = 0;
	c = p_ibv_create_comp_channel((ABI(ibv_context) *)ctx);
	if (!c)
		return rk_failed();
	*channel = (rk_h)c;
	*fd = c->fd;
	return 0;
}

int rk_destroy_channel(rk_h channel)
{
	return rk_errno(p_ibv_destroy_comp_channel((ABI(ibv_comp_channel) *)channel));
}

int rk_get_cq_event(rk_h channel, uint64_t *key)
{
	ABI(ibv_cq) *cq;
	void *context;

	errno = 0;
	if (p_ibv_get_cq_event((ABI(ibv_comp_channel) *)channel, &cq, &context))
		return rk_failed();
	*key = (uint64_t)(uintptr_t)context;
	// ibv_destroy_cq waits for this, so cq is still there.
	p_ibv_ack_cq_events(cq, 1);
	return 0;
}

int rk_comp_vectors(rk_h ctx)
{
	return ((ABI(ibv_context) *)ctx)->num_comp_vectors;
}

int rk_create_cq(rk_h ctx, int depth, uint64_t key, rk_h channel, int vector, rk_h *cq, int *cqe)
{
	ABI(ibv_cq) *q;

	errno = 0;
	q = p_ibv_create_cq((ABI(ibv_context) *)ctx, depth, (void *)(uintptr_t)key, (ABI(ibv_comp_channel) *)channel,
			    vector);
	if (!q)
		return rk_failed();
	*cq = (rk_h)q;
	*cqe = q->cqe;
	return 0;
}

int rk_destroy_cq(rk_h cq)
{
	return rk_errno(p_ibv_destroy_cq((ABI(ibv_cq) *)cq));
}

static int64_t now(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t) != 0)
		return 0;
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// stamp writes into completions when they were polled: one look at the clock for
// all, without the system call that it takes in Go.
static int stamp(struct rk_wc *wcs, int got)
{
	if (got > 0) {
		int64_t t = 0;
#ifdef CLOCK_BOOTTIME
		t = now(CLOCK_BOOTTIME);
#endif
		for (int i = 0; i < got; i++)
			wcs[i].polled = t;
	}
	return got;
}

int rk_poll_cq(rk_h cq, struct rk_wc *wcs, int n)
{
	return stamp(wcs, poll(cq, wcs, n));
}

int rk_spin(ABI(ibv_cq) *cq, fn_poll_cq poll_cq, struct rk_wc *wcs, int n, int64_t ns, int yield)
{
	int64_t end = 0;

	// A completion that is nearly there costs no look at the clock.
	for (;;) {
		for (int i = 0; i < POLLS; i++) {
			int got = poll_cq(cq, n, (ABI(ibv_wc) *)wcs);

			if (got != 0)
				return stamp(wcs, got);
		}
		if (ns <= 0)
			return 0;
		if (yield)
			sched_yield();
		if (end == 0)
			end = now(CLOCK_MONOTONIC) + ns;
		else if (now(CLOCK_MONOTONIC) >= end)
			return 0;
	}
}

int rk_spin_cq(rk_h cq, struct rk_wc *wcs, int n, int64_t ns, int yield)
{
	ABI(ibv_cq) *q = (ABI(ibv_cq) *)cq;

	return rk_spin(q, op_poll_cq(q->context), wcs, n, ns, yield);
}

int rk_req_notify_cq(rk_h cq, int solicited_only)
{
	ABI(ibv_cq) *q = (ABI(ibv_cq) *)cq;

	return rk_errno(op_req_notify_cq(q->context)(q, solicited_only));
}

// fill makes a work request of a flat one. It fails if the list is too long.
static int fill(ABI(ibv_send_wr) *out, const struct rk_send_wr *in)
{
	if (in->num_sge > RK_MAX_SGE)
		return 0;
	memset(out, 0, sizeof *out);
	out->wr_id = in->id;
	out->sg_list = (void *)in->sgl;
	out->num_sge = (int)in->num_sge;
	out->opcode = in->opcode;
	out->send_flags = in->flags;
	out->imm_data = in->imm_inv;
	if (in->opcode == ABI_IBV_WR_ATOMIC_CMP_AND_SWP || in->opcode == ABI_IBV_WR_ATOMIC_FETCH_AND_ADD) {
		out->atomic_remote_addr = in->remote_addr;
		out->atomic_compare_add = in->compare_add;
		out->atomic_swap = in->swap;
		out->atomic_rkey = in->rkey;
	} else {
		out->rdma_remote_addr = in->remote_addr;
		out->rdma_rkey = in->rkey;
	}
	return 1;
}

int rk_post_send(rk_h qp, const struct rk_send_wr *wrs, int n, int *err)
{
	ABI(ibv_qp) *q = (ABI(ibv_qp) *)qp;
	ABI(ibv_send_wr) chain[CHUNK], *bad;
	int done = 0;

	*err = 0;
	while (done < n) {
		int k = 0, ret;

		while (k < CHUNK && done + k < n && fill(&chain[k], &wrs[done + k])) {
			if (k > 0)
				chain[k - 1].next = &chain[k];
			k++;
		}
		if (k == 0) {
			*err = EINVAL;
			return done;
		}
		bad = NULL;
		errno = 0;
		ret = op_post_send(q->context)(q, chain, &bad);
		if (ret) {
			*err = rk_errno(ret);
			return bad ? done + (int)(bad - chain) : done;
		}
		done += k;
	}
	return done;
}

int rk_post_send_spin(rk_h qp, const struct rk_send_wr *wrs, int n, int *err, rk_h cq, struct rk_wc *wcs, int room,
		      int64_t ns, int yield, int *polled)
{
	int done = rk_post_send(qp, wrs, n, err);

	*polled = done == n ? rk_spin_cq(cq, wcs, room, ns, yield) : 0;
	return done;
}

// post_recv serves both kinds of receive queue: one of qp and srq is null.
static int post_recv(ABI(ibv_qp) *qp, ABI(ibv_srq) *srq, const struct rk_recv_wr *wrs, int n, int *err)
{
	ABI(ibv_recv_wr) chain[CHUNK], *bad;
	int done = 0;

	*err = 0;
	while (done < n) {
		int k = 0, ret;

		while (k < CHUNK && done + k < n && wrs[done + k].num_sge <= RK_MAX_SGE) {
			const struct rk_recv_wr *in = &wrs[done + k];

			chain[k].wr_id = in->id;
			chain[k].next = NULL;
			chain[k].sg_list = (void *)in->sgl;
			chain[k].num_sge = (int)in->num_sge;
			if (k > 0)
				chain[k - 1].next = &chain[k];
			k++;
		}
		if (k == 0) {
			*err = EINVAL;
			return done;
		}
		bad = NULL;
		errno = 0;
		ret = srq ? op_post_srq_recv(srq->context)(srq, chain, &bad)
			  : op_post_recv(qp->context)(qp, chain, &bad);
		if (ret) {
			*err = rk_errno(ret);
			return bad ? done + (int)(bad - chain) : done;
		}
		done += k;
	}
	return done;
}

int rk_post_recv(rk_h qp, const struct rk_recv_wr *wrs, int n, int *err)
{
	return post_recv((ABI(ibv_qp) *)qp, NULL, wrs, n, err);
}

int rk_post_srq_recv(rk_h srq, const struct rk_recv_wr *wrs, int n, int *err)
{
	return post_recv(NULL, (ABI(ibv_srq) *)srq, wrs, n, err);
}

int rk_create_srq(rk_h pd, uint64_t key, uint32_t max_wr, uint32_t max_sge, rk_h *srq, uint32_t *wr, uint32_t *sge)
{
	ABI(ibv_srq_init_attr) init;
	ABI(ibv_srq) *s;

	memset(&init, 0, sizeof init);
	init.srq_context = (void *)(uintptr_t)key;
	init.max_wr = max_wr;
	init.max_sge = max_sge;
	errno = 0;
	s = p_ibv_create_srq((ABI(ibv_pd) *)pd, &init);
	if (!s)
		return rk_failed();
	*srq = (rk_h)s;
	*wr = init.max_wr;
	*sge = init.max_sge;
	return 0;
}

int rk_arm_srq(rk_h srq, uint32_t limit)
{
	ABI(ibv_srq_attr) attr;

	memset(&attr, 0, sizeof attr);
	attr.srq_limit = limit;
	errno = 0;
	return rk_errno(p_ibv_modify_srq((ABI(ibv_srq) *)srq, &attr, ABI_IBV_SRQ_LIMIT));
}

int rk_destroy_srq(rk_h srq)
{
	return rk_errno(p_ibv_destroy_srq((ABI(ibv_srq) *)srq));
}

#endif
