//go:build linux && cgo

// Devices, memory and asynchronous events.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#include <endian.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct rk_gid) == 32, "the size of ABI(ibv_gid_entry) is part of the ABI");

static void describe(ABI(ibv_device) *dev, struct rk_device *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%s", dev->name);
	snprintf(out->kernel, sizeof out->kernel, "%s", dev->dev_name);
	out->guid = be64toh(p_ibv_get_device_guid(dev));
	out->transport = dev->transport_type;
}

int rk_devices(struct rk_device *out, int room, int *n)
{
	int count = 0, i;
	ABI(ibv_device) **list;

	*n = 0;
	errno = 0;
	list = p_ibv_get_device_list(&count);
	if (!list)
		return rk_failed();
	for (i = 0; i < count && i < room; i++)
		describe(list[i], &out[i]);
	*n = i;
	p_ibv_free_device_list(list);
	return 0;
}

int rk_open(const char *name, rk_h *ctx, struct rk_device *info, int *async_fd)
{
	int count = 0, i, err = -1;
	ABI(ibv_device) **list;

	errno = 0;
	list = p_ibv_get_device_list(&count);
	if (!list)
		return rk_failed();
	for (i = 0; i < count; i++) {
		ABI(ibv_context) *c;

		if (strcmp(list[i]->name, name) != 0)
			continue;
		errno = 0;
		c = p_ibv_open_device(list[i]);
		err = c ? 0 : rk_failed();
		if (c) {
			describe(list[i], info);
			*ctx = (rk_h)c;
			*async_fd = c->async_fd;
		}
		break;
	}
	p_ibv_free_device_list(list);
	return err;
}

int rk_close_device(rk_h ctx)
{
	return rk_errno(p_ibv_close_device((ABI(ibv_context) *)ctx));
}

int rk_query_device(rk_h ctx, struct rk_device_attr *out)
{
	ABI(ibv_device_attr) a;
	int err;

	memset(&a, 0, sizeof a);
	memset(out, 0, sizeof *out);
	err = rk_errno(p_ibv_query_device((ABI(ibv_context) *)ctx, &a));
	if (err)
		return err;
	snprintf(out->fw_ver, sizeof out->fw_ver, "%.63s", a.fw_ver);
	out->node_guid = be64toh(a.node_guid);
	out->sys_image_guid = be64toh(a.sys_image_guid);
	out->max_mr_size = a.max_mr_size;
	out->page_size_cap = a.page_size_cap;
	out->vendor_id = a.vendor_id;
	out->vendor_part_id = a.vendor_part_id;
	out->hw_ver = a.hw_ver;
	out->device_cap_flags = a.device_cap_flags;
	out->max_qp = a.max_qp;
	out->max_qp_wr = a.max_qp_wr;
	out->max_sge = a.max_sge;
	out->max_sge_rd = a.max_sge_rd;
	out->max_cq = a.max_cq;
	out->max_cqe = a.max_cqe;
	out->max_mr = a.max_mr;
	out->max_pd = a.max_pd;
	out->max_qp_rd_atom = a.max_qp_rd_atom;
	out->max_ee_rd_atom = a.max_ee_rd_atom;
	out->max_res_rd_atom = a.max_res_rd_atom;
	out->max_qp_init_rd_atom = a.max_qp_init_rd_atom;
	out->atomic_cap = a.atomic_cap;
	out->max_mw = a.max_mw;
	out->max_ah = a.max_ah;
	out->max_srq = a.max_srq;
	out->max_srq_wr = a.max_srq_wr;
	out->max_srq_sge = a.max_srq_sge;
	out->max_pkeys = a.max_pkeys;
	out->local_ca_ack_delay = a.local_ca_ack_delay;
	out->phys_port_cnt = a.phys_port_cnt;
	return 0;
}

// query_port fills in all of ibv_port_attr where the provider can, by the call in
// front of its context. The function of the library, which old providers are
// asked by, stops behind link_layer: no flags and no second capabilities.
static int query_port(ABI(ibv_context) *ctx, uint8_t port, ABI(ibv_port_attr) *out)
{
	typedef int (*call)(ABI(ibv_context) *, uint8_t, ABI(ibv_port_attr) *, size_t);

	if (ctx->abi_compat == ABI_EXTENDED) {
		const uint8_t *at = (const uint8_t *)ctx;
		size_t has;
		call fn = NULL;

		memcpy(&has, at - ABI_SZ_BEFORE, sizeof has);
		if (has >= ABI_QUERY_PORT_SZ)
			memcpy(&fn, at - ABI_QUERY_PORT_BEFORE, sizeof fn);
		if (fn)
			return fn(ctx, port, out, sizeof *out);
	}
	return p_ibv_query_port(ctx, port, (ABI(_compat_ibv_port_attr) *)out);
}

int rk_query_port(rk_h ctx, uint8_t port, struct rk_port_attr *out)
{
	ABI(ibv_port_attr) a;
	int err;

	memset(&a, 0, sizeof a);
	memset(out, 0, sizeof *out);
	errno = 0;
	err = rk_errno(query_port((ABI(ibv_context) *)ctx, port, &a));
	if (err)
		return err;
	out->state = a.state;
	out->max_mtu = a.max_mtu;
	out->active_mtu = a.active_mtu;
	out->gid_tbl_len = a.gid_tbl_len;
	out->pkey_tbl_len = a.pkey_tbl_len;
	out->port_cap_flags = a.port_cap_flags;
	out->max_msg_sz = a.max_msg_sz;
	out->bad_pkey_cntr = a.bad_pkey_cntr;
	out->qkey_viol_cntr = a.qkey_viol_cntr;
	out->lid = a.lid;
	out->sm_lid = a.sm_lid;
	out->lmc = a.lmc;
	out->sm_sl = a.sm_sl;
	out->active_width = a.active_width;
	out->active_speed = a.active_speed;
	out->phys_state = a.phys_state;
	out->link_layer = a.link_layer;
	out->grh_required = (a.flags & ABI_IBV_QPF_GRH_REQUIRED) != 0;
	out->port_cap_flags2 = a.port_cap_flags2;
	return 0;
}

int rk_query_gids(rk_h ctx, struct rk_gid *out, int room, int *n)
{
	ssize_t got;

	*n = 0;
	if (!p_ibv_query_gid_table)
		return ENOSYS;
	got = p_ibv_query_gid_table((ABI(ibv_context) *)ctx, out, room, 0, sizeof *out);
	if (got < 0)
		return (int)-got;
	*n = (int)got;
	return 0;
}

int rk_query_pkey(rk_h ctx, uint8_t port, int index, uint16_t *pkey)
{
	uint16_t key = 0;
	int err;

	errno = 0;
	err = rk_errno(p_ibv_query_pkey((ABI(ibv_context) *)ctx, port, index, &key));
	*pkey = be16toh(key);
	return err;
}

int rk_get_async_event(rk_h ctx, struct rk_async_event *out)
{
	ABI(ibv_async_event) ev;

	memset(out, 0, sizeof *out);
	errno = 0;
	if (p_ibv_get_async_event((ABI(ibv_context) *)ctx, &ev))
		return rk_failed();
	out->type = ev.event_type;
	// Until the event is acknowledged, whoever destroys its object waits.
	switch (ev.event_type) {
	case ABI_IBV_EVENT_CQ_ERR:
		out->key = (uint64_t)(uintptr_t)((ABI(ibv_cq) *)ev.element)->cq_context;
		break;
	case ABI_IBV_EVENT_SRQ_ERR:
	case ABI_IBV_EVENT_SRQ_LIMIT_REACHED:
		out->key = (uint64_t)(uintptr_t)((ABI(ibv_srq) *)ev.element)->srq_context;
		break;
	case ABI_IBV_EVENT_QP_FATAL:
	case ABI_IBV_EVENT_QP_REQ_ERR:
	case ABI_IBV_EVENT_QP_ACCESS_ERR:
	case ABI_IBV_EVENT_COMM_EST:
	case ABI_IBV_EVENT_SQ_DRAINED:
	case ABI_IBV_EVENT_PATH_MIG:
	case ABI_IBV_EVENT_PATH_MIG_ERR:
	case ABI_IBV_EVENT_QP_LAST_WQE_REACHED:
		out->key = (uint64_t)(uintptr_t)((ABI(ibv_qp) *)ev.element)->qp_context;
		out->qpn = ((ABI(ibv_qp) *)ev.element)->qp_num;
		break;
	case ABI_IBV_EVENT_PORT_ACTIVE:
	case ABI_IBV_EVENT_PORT_ERR:
	case ABI_IBV_EVENT_LID_CHANGE:
	case ABI_IBV_EVENT_PKEY_CHANGE:
	case ABI_IBV_EVENT_SM_CHANGE:
	case ABI_IBV_EVENT_CLIENT_REREGISTER:
	case ABI_IBV_EVENT_GID_CHANGE:
		out->port = ev.port_num;
		break;
	default:
		break;
	}
	p_ibv_ack_async_event(&ev);
	return 0;
}

int rk_alloc_pd(rk_h ctx, rk_h *pd)
{
	errno = 0;
	*pd = (rk_h)p_ibv_alloc_pd((ABI(ibv_context) *)ctx);
	return *pd ? 0 : rk_failed();
}

int rk_dealloc_pd(rk_h pd)
{
	return rk_errno(p_ibv_dealloc_pd((ABI(ibv_pd) *)pd));
}

int rk_reg_mr(rk_h pd, uintptr_t addr, size_t length, uint32_t access, rk_h *mr, uint32_t *lkey, uint32_t *rkey)
{
	ABI(ibv_mr) *m;

	errno = 0;
	m = p_ibv_reg_mr((ABI(ibv_pd) *)pd, (void *)addr, length, (int)access);
	if (!m)
		return rk_failed();
	*mr = (rk_h)m;
	*lkey = m->lkey;
	*rkey = m->rkey;
	return 0;
}

int rk_dereg_mr(rk_h mr)
{
	return rk_errno(p_ibv_dereg_mr((ABI(ibv_mr) *)mr));
}

#endif
