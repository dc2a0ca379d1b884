//go:build linux && cgo

// Connections: librdmacm.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

int rk_create_event_channel(rk_h *channel, int *fd)
{
	ABI(rdma_event_channel) *c;

	errno = 0;
	c = p_rdma_create_event_channel();
	if (!c)
		return rk_failed();
	*channel = (rk_h)c;
	*fd = c->fd;
	return 0;
}

int rk_destroy_event_channel(rk_h channel)
{
	p_rdma_destroy_event_channel((ABI(rdma_event_channel) *)channel);
	return 0;
}

int rk_get_cm_event(rk_h channel, uint64_t new_key, struct rk_cm_event *out)
{
	ABI(rdma_cm_event) *ev;

	memset(out, 0, sizeof *out);
	errno = 0;
	if (p_rdma_get_cm_event((ABI(rdma_event_channel) *)channel, &ev))
		return rk_failed();
	// Until the event is acknowledged, whoever destroys its ids waits.
	out->type = ev->event;
	out->status = ev->status;
	if (ev->event == ABI_RDMA_CM_EVENT_CONNECT_REQUEST) {
		out->key = (uint64_t)(uintptr_t)((ABI(rdma_cm_id) *)ev->listen_id)->context;
		out->new_id = (rk_h)ev->id;
		((ABI(rdma_cm_id) *)ev->id)->context = (void *)(uintptr_t)new_key;
	} else {
		out->key = (uint64_t)(uintptr_t)((ABI(rdma_cm_id) *)ev->id)->context;
	}
	switch (ev->event) {
	case ABI_RDMA_CM_EVENT_CONNECT_REQUEST:
	case ABI_RDMA_CM_EVENT_CONNECT_RESPONSE:
	case ABI_RDMA_CM_EVENT_ESTABLISHED:
	case ABI_RDMA_CM_EVENT_REJECTED:
		if (ev->private_data && ev->private_data_len) {
			memcpy(out->param.private_data, ev->private_data, ev->private_data_len);
			out->param.private_len = ev->private_data_len;
		}
		out->param.qpn = ev->qp_num;
		out->param.responder_resources = ev->responder_resources;
		out->param.initiator_depth = ev->initiator_depth;
		out->param.flow_control = ev->flow_control;
		out->param.retry_count = ev->retry_count;
		out->param.rnr_retry_count = ev->rnr_retry_count;
		out->param.srq = ev->srq;
		break;
	default:
		break;
	}
	p_rdma_ack_cm_event(ev);
	return 0;
}

int rk_create_id(rk_h channel, uint64_t key, rk_h *id)
{
	ABI(rdma_cm_id) *i = NULL;

	errno = 0;
	if (p_rdma_create_id((ABI(rdma_event_channel) *)channel, &i, (void *)(uintptr_t)key, ABI_RDMA_PS_TCP))
		return rk_failed();
	*id = (rk_h)i;
	return 0;
}

int rk_destroy_id(rk_h id)
{
	errno = 0;
	return rk_errno(p_rdma_destroy_id((ABI(rdma_cm_id) *)id));
}

// to_sockaddr returns NULL for no address.
static struct sockaddr *to_sockaddr(struct sockaddr_storage *s, const struct rk_addr *a)
{
	memset(s, 0, sizeof *s);
	if (a->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)s;

		in->sin_family = AF_INET;
		in->sin_port = htons(a->port);
		memcpy(&in->sin_addr, a->ip, 4);
	} else if (a->family == 6) {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)s;

		in->sin6_family = AF_INET6;
		in->sin6_port = htons(a->port);
		in->sin6_scope_id = a->scope;
		memcpy(&in->sin6_addr, a->ip, 16);
	} else {
		return NULL;
	}
	return (struct sockaddr *)s;
}

int rk_bind_addr(rk_h id, const struct rk_addr *addr)
{
	struct sockaddr_storage s;
	struct sockaddr *sa = to_sockaddr(&s, addr);

	if (!sa)
		return EINVAL;
	errno = 0;
	return rk_errno(p_rdma_bind_addr((ABI(rdma_cm_id) *)id, sa));
}

int rk_listen(rk_h id, int backlog)
{
	errno = 0;
	return rk_errno(p_rdma_listen((ABI(rdma_cm_id) *)id, backlog));
}

void rk_get_addr(rk_h id, int peer, struct rk_addr *out)
{
	ABI(rdma_cm_id) *i = (ABI(rdma_cm_id) *)id;
	const struct sockaddr *sa = (const struct sockaddr *)(peer ? i->dst_addr : i->src_addr);

	memset(out, 0, sizeof *out);
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		out->family = 4;
		out->port = ntohs(in->sin_port);
		memcpy(out->ip, &in->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;

		out->family = 6;
		out->port = ntohs(in->sin6_port);
		out->scope = in->sin6_scope_id;
		memcpy(out->ip, &in->sin6_addr, 16);
	}
}

void rk_get_device(rk_h id, char *name, size_t room, uint8_t *port)
{
	ABI(rdma_cm_id) *i = (ABI(rdma_cm_id) *)id;

	name[0] = 0;
	*port = 0;
	if (!i->verbs)
		return;
	snprintf(name, room, "%s", ((ABI(ibv_device) *)((ABI(ibv_context) *)i->verbs)->device)->name);
	*port = i->port_num;
}

int rk_resolve_addr(rk_h id, const struct rk_addr *src, const struct rk_addr *dst, int timeout_ms)
{
	struct sockaddr_storage s, d;
	struct sockaddr *from = to_sockaddr(&s, src), *to = to_sockaddr(&d, dst);

	if (!to)
		return EINVAL;
	errno = 0;
	return rk_errno(p_rdma_resolve_addr((ABI(rdma_cm_id) *)id, from, to, timeout_ms));
}

int rk_resolve_route(rk_h id, int timeout_ms)
{
	errno = 0;
	return rk_errno(p_rdma_resolve_route((ABI(rdma_cm_id) *)id, timeout_ms));
}

int rk_init_qp_attr(rk_h id, uint32_t state, struct rk_qp_attr *attr, uint32_t *mask)
{
	ABI(ibv_qp_attr) a;
	int m = 0, err;

	memset(&a, 0, sizeof a);
	a.qp_state = state;
	errno = 0;
	err = rk_errno(p_rdma_init_qp_attr((ABI(rdma_cm_id) *)id, &a, &m));
	if (err)
		return err;
	rk_attr_from_ibv(attr, &a);
	*mask = (uint32_t)m;
	return 0;
}

static void conn_param(ABI(rdma_conn_param) *out, const struct rk_conn_param *in)
{
	memset(out, 0, sizeof *out);
	out->private_data = in->private_len ? (void *)in->private_data : NULL;
	out->private_data_len = in->private_len;
	out->responder_resources = in->responder_resources;
	out->initiator_depth = in->initiator_depth;
	out->flow_control = in->flow_control;
	out->retry_count = in->retry_count;
	out->rnr_retry_count = in->rnr_retry_count;
	out->srq = in->srq;
	out->qp_num = in->qpn;
}

int rk_connect(rk_h id, const struct rk_conn_param *param)
{
	ABI(rdma_conn_param) p;

	conn_param(&p, param);
	errno = 0;
	return rk_errno(p_rdma_connect((ABI(rdma_cm_id) *)id, &p));
}

int rk_accept(rk_h id, const struct rk_conn_param *param)
{
	ABI(rdma_conn_param) p;

	conn_param(&p, param);
	errno = 0;
	return rk_errno(p_rdma_accept((ABI(rdma_cm_id) *)id, &p));
}

int rk_reject(rk_h id, const uint8_t *data, uint8_t len)
{
	errno = 0;
	return rk_errno(p_rdma_reject((ABI(rdma_cm_id) *)id, len ? data : NULL, len));
}

int rk_establish(rk_h id)
{
	errno = 0;
	return rk_errno(p_rdma_establish((ABI(rdma_cm_id) *)id));
}

int rk_disconnect(rk_h id)
{
	errno = 0;
	return rk_errno(p_rdma_disconnect((ABI(rdma_cm_id) *)id));
}

int rk_set_option(rk_h id, int level, int name, const uint8_t *value, size_t len)
{
	errno = 0;
	return rk_errno(p_rdma_set_option((ABI(rdma_cm_id) *)id, level, name, (void *)value, len));
}

int rk_migrate_id(rk_h id, rk_h channel)
{
	errno = 0;
	return rk_errno(p_rdma_migrate_id((ABI(rdma_cm_id) *)id, (ABI(rdma_event_channel) *)channel));
}

#endif
