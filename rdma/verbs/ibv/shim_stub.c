//go:build linux && cgo

// Elsewhere than on amd64 and arm64: rk_load fails, and nothing else is ever
// reached.

#include "shim.h"
#include "shim_table.h"

#ifndef RK_HAVE_RDMA

#include <errno.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define STUB(name, ...)       \
	int name(__VA_ARGS__) \
	{                     \
		return ENOSYS; \
	}

STUB(rk_devices, struct rk_device *out, int room, int *n)
STUB(rk_open, const char *name, rk_h *ctx, struct rk_device *info, int *async_fd)
STUB(rk_close_device, rk_h ctx)
STUB(rk_query_device, rk_h ctx, struct rk_device_attr *out)
STUB(rk_query_port, rk_h ctx, uint8_t port, struct rk_port_attr *out)
STUB(rk_query_gids, rk_h ctx, struct rk_gid *out, int room, int *n)
STUB(rk_query_pkey, rk_h ctx, uint8_t port, int index, uint16_t *pkey)
STUB(rk_get_async_event, rk_h ctx, struct rk_async_event *out)
STUB(rk_alloc_pd, rk_h ctx, rk_h *pd)
STUB(rk_dealloc_pd, rk_h pd)
STUB(rk_reg_mr, rk_h pd, uintptr_t addr, size_t length, uint32_t access, rk_h *mr, uint32_t *lkey,
     uint32_t *rkey)
STUB(rk_dereg_mr, rk_h mr)
STUB(rk_create_channel, rk_h ctx, rk_h *channel, int *fd)
STUB(rk_destroy_channel, rk_h channel)
STUB(rk_get_cq_event, rk_h channel, uint64_t *key)
STUB(rk_comp_vectors, rk_h ctx)
STUB(rk_create_cq, rk_h ctx, int depth, uint64_t key, rk_h channel, int vector, rk_h *cq, int *cqe)
STUB(rk_destroy_cq, rk_h cq)
STUB(rk_poll_cq, rk_h cq, struct rk_wc *wcs, int n)
STUB(rk_spin_cq, rk_h cq, struct rk_wc *wcs, int n, int64_t ns, int yield)
STUB(rk_req_notify_cq, rk_h cq, int solicited_only)
STUB(rk_post_send, rk_h qp, const struct rk_send_wr *wrs, int n, int *err)
STUB(rk_post_recv, rk_h qp, const struct rk_recv_wr *wrs, int n, int *err)
STUB(rk_post_srq_recv, rk_h srq, const struct rk_recv_wr *wrs, int n, int *err)
STUB(rk_post_send_spin, rk_h qp, const struct rk_send_wr *wrs, int n, int *err, rk_h cq,
     struct rk_wc *wcs, int room, int64_t ns, int yield, int *polled)
STUB(rk_create_reader, rk_h qp, rk_h cq, int yield, const struct rk_sge *sinks, int n, rk_h *reader)
STUB(rk_destroy_reader, rk_h reader)
STUB(rk_read, rk_h reader, uint32_t sink, uint64_t id, uint64_t addr, uint32_t rkey, uint32_t length,
     int64_t ns, struct rk_wc *wc, int *err)
STUB(rk_await_read, rk_h reader, int64_t ns, struct rk_wc *wc)
STUB(rk_create_srq, rk_h pd, uint64_t key, uint32_t max_wr, uint32_t max_sge, rk_h *srq, uint32_t *wr,
     uint32_t *sge)
STUB(rk_arm_srq, rk_h srq, uint32_t limit)
STUB(rk_destroy_srq, rk_h srq)
STUB(rk_create_qp, rk_h pd, struct rk_qp_init *init, rk_h *qp, uint32_t *qpn)
STUB(rk_modify_qp, rk_h qp, const struct rk_qp_attr *attr, uint32_t mask)
STUB(rk_query_qp, rk_h qp, uint32_t mask, struct rk_qp_attr *attr)
STUB(rk_destroy_qp, rk_h qp)
STUB(rk_create_event_channel, rk_h *channel, int *fd)
STUB(rk_destroy_event_channel, rk_h channel)
STUB(rk_get_cm_event, rk_h channel, uint64_t new_key, struct rk_cm_event *out)
STUB(rk_create_id, rk_h channel, uint64_t key, rk_h *id)
STUB(rk_destroy_id, rk_h id)
STUB(rk_bind_addr, rk_h id, const struct rk_addr *addr)
STUB(rk_listen, rk_h id, int backlog)
void rk_get_addr(rk_h id, int peer, struct rk_addr *out)
{
}
void rk_get_device(rk_h id, char *name, size_t room, uint8_t *port)
{
}
STUB(rk_resolve_addr, rk_h id, const struct rk_addr *src, const struct rk_addr *dst, int timeout_ms)
STUB(rk_resolve_route, rk_h id, int timeout_ms)
STUB(rk_init_qp_attr, rk_h id, uint32_t state, struct rk_qp_attr *attr, uint32_t *mask)
STUB(rk_connect, rk_h id, const struct rk_conn_param *param)
STUB(rk_accept, rk_h id, const struct rk_conn_param *param)
STUB(rk_reject, rk_h id, const uint8_t *data, uint8_t len)
STUB(rk_establish, rk_h id)
STUB(rk_disconnect, rk_h id)
STUB(rk_set_option, rk_h id, int level, int name, const uint8_t *value, size_t len)
STUB(rk_migrate_id, rk_h id, rk_h channel)

#endif
