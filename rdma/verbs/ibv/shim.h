// Calls into libibverbs and librdmacm in terms of plain C: no header of
// rdma-core is needed to read this one. Objects go by their address as an
// integer (rk_h); events name them by the 64-bit key that they were made with.
//
// A function that returns int returns 0 or an errno, unless it says otherwise.
#ifndef RK_SHIM_H
#define RK_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t rk_h;

// Loading.

enum { RK_TABLE_VERBS, RK_TABLE_CM };
enum { RK_LOADED, RK_NO_LAYOUT, RK_NO_LIBRARY, RK_NO_SYMBOL };

// rk_prepare sets what libibverbs reads of the environment. It is called once,
// before the first rk_load.
void rk_prepare(void);
// rk_load opens a library and looks up what it must have. It returns one of
// RK_LOADED ...; what the linker said, or the missing name, is in err.
int rk_load(int table, const char *soname, char *err, size_t room);

// rk_constant gives the name and the value of the i-th enumeration constant of
// abi_constants.h; 0 after the last.
int rk_constant(int i, const char **name, int64_t *value);

// Devices.

struct rk_device {
	char name[64];
	char kernel[64];
	uint64_t guid;
	int32_t transport;
};

struct rk_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver, device_cap_flags;
	int32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int32_t max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom;
	int32_t atomic_cap, max_mw, max_ah, max_srq, max_srq_wr, max_srq_sge;
	int32_t max_pkeys, local_ca_ack_delay, phys_port_cnt;
};

struct rk_port_attr {
	int32_t state, max_mtu, active_mtu, gid_tbl_len, pkey_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t lid, sm_lid, port_cap_flags2;
	uint8_t lmc, sm_sl, active_width, active_speed, phys_state, link_layer, grh_required;
};

// struct ibv_gid_entry, which rdma-core has had since version 32.
struct rk_gid {
	uint8_t gid[16];
	uint32_t index, port, type, ifindex;
};

struct rk_async_event {
	uint64_t key; // of the CQ, QP or SRQ
	uint32_t type, qpn, port;
};

// rk_devices fills in up to room devices and sets *n to their number.
int rk_devices(struct rk_device *out, int room, int *n);
// rk_open returns -1 if no device has that name.
int rk_open(const char *name, rk_h *ctx, struct rk_device *info, int *async_fd);
int rk_close_device(rk_h ctx);
int rk_query_device(rk_h ctx, struct rk_device_attr *out);
int rk_query_port(rk_h ctx, uint8_t port, struct rk_port_attr *out);
// rk_query_gids: ENOSYS if the library is too old for it.
int rk_query_gids(rk_h ctx, struct rk_gid *out, int room, int *n);
int rk_query_pkey(rk_h ctx, uint8_t port, int index, uint16_t *pkey);
// rk_async_event: EAGAIN if there is none (the descriptor is non-blocking).
int rk_get_async_event(rk_h ctx, struct rk_async_event *out);

// Memory.

int rk_alloc_pd(rk_h ctx, rk_h *pd);
int rk_dealloc_pd(rk_h pd);
int rk_reg_mr(rk_h pd, uintptr_t addr, size_t length, uint32_t access, rk_h *mr, uint32_t *lkey, uint32_t *rkey);
int rk_dereg_mr(rk_h mr);

// Completions. struct rk_wc has the layout of struct ibv_wc: polling fills it
// in place, but for polled.

struct rk_wc {
	uint64_t id;
	uint32_t status, opcode, vendor_err, byte_len, imm_inv, qpn, src_qp, flags;
	// Nanoseconds of CLOCK_BOOTTIME just after the poll that took it, 0 where
	// there is no such clock. Here struct ibv_wc has what is of UD alone:
	// pkey_index, slid, sl, dlid_path_bits.
	int64_t polled;
};

int rk_create_channel(rk_h ctx, rk_h *channel, int *fd);
int rk_destroy_channel(rk_h channel);
int rk_get_cq_event(rk_h channel, uint64_t *key);
// vector is which of the completion vectors, 0 to rk_comp_vectors - 1, interrupts.
int rk_comp_vectors(rk_h ctx);
int rk_create_cq(rk_h ctx, int depth, uint64_t key, rk_h channel, int vector, rk_h *cq, int *cqe);
int rk_destroy_cq(rk_h cq);
// rk_poll_cq returns the number of completions, or a negative number.
int rk_poll_cq(rk_h cq, struct rk_wc *wcs, int n);
// rk_spin_cq is rk_poll_cq that tries for up to ns nanoseconds. With yield it
// lets other threads run in between.
int rk_spin_cq(rk_h cq, struct rk_wc *wcs, int n, int64_t ns, int yield);
int rk_req_notify_cq(rk_h cq, int solicited_only);

// Work requests, flat: the scatter/gather list stands in the request.

#define RK_MAX_SGE 8

struct rk_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct rk_send_wr {
	uint64_t id, remote_addr, compare_add, swap;
	uint32_t opcode, flags, rkey, imm_inv, num_sge, pad;
	struct rk_sge sgl[RK_MAX_SGE];
};

struct rk_recv_wr {
	uint64_t id;
	uint32_t num_sge, pad;
	struct rk_sge sgl[RK_MAX_SGE];
};

// The posting calls return how many requests were posted; if that is fewer
// than n, *err is the errno of the first that was not.
int rk_post_send(rk_h qp, const struct rk_send_wr *wrs, int n, int *err);
int rk_post_recv(rk_h qp, const struct rk_recv_wr *wrs, int n, int *err);
int rk_post_srq_recv(rk_h srq, const struct rk_recv_wr *wrs, int n, int *err);
// rk_post_send_spin posts, and if all were posted spins; *polled is the result
// of rk_spin_cq.
int rk_post_send_spin(rk_h qp, const struct rk_send_wr *wrs, int n, int *err, rk_h cq, struct rk_wc *wcs, int room,
		      int64_t ns, int yield, int *polled);

// READs into prepared memory (shim_read.c). A reader is of one QP and of its CQ for
// sends, and has n sinks: places where one READ at a time lands. The QP, the CQ and the
// memory outlive it. Its calls are for one thread at a time that polls the CQ.
int rk_create_reader(rk_h qp, rk_h cq, int yield, const struct rk_sge *sinks, int n, rk_h *reader);
int rk_destroy_reader(rk_h reader);
// rk_read posts a READ into a sink and polls as rk_await_read does; *err is the
// errno of a READ that was not posted.
int rk_read(rk_h reader, uint32_t sink, uint64_t id, uint64_t addr, uint32_t rkey, uint32_t length, int64_t ns,
	    struct rk_wc *wc, int *err);
// rk_await_read polls for up to ns nanoseconds for one completion, that of the READ
// or another one. It returns 1, 0 if there is none, or a negative number.
int rk_await_read(rk_h reader, int64_t ns, struct rk_wc *wc);

// Queues.

int rk_create_srq(rk_h pd, uint64_t key, uint32_t max_wr, uint32_t max_sge, rk_h *srq, uint32_t *wr, uint32_t *sge);
int rk_arm_srq(rk_h srq, uint32_t limit);
int rk_destroy_srq(rk_h srq);

struct rk_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
};

struct rk_qp_init {
	uint64_t key;
	rk_h send_cq, recv_cq, srq;
	struct rk_qp_cap cap; // in: wanted, out: given
	uint32_t sig_all;
};

struct rk_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t is_global, sgid_index, hop_limit, traffic_class;
	uint8_t sl, src_path_bits, static_rate, port_num;
};

struct rk_qp_attr {
	uint32_t state, cur_state, path_mtu, qkey, rq_psn, sq_psn, dest_qpn, access;
	struct rk_qp_cap cap;
	struct rk_ah_attr ah;
	uint16_t pkey_index;
	uint8_t en_sqd_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
	uint8_t min_rnr_timer, port, timeout, retry_cnt, rnr_retry;
};

int rk_create_qp(rk_h pd, struct rk_qp_init *init, rk_h *qp, uint32_t *qpn);
int rk_modify_qp(rk_h qp, const struct rk_qp_attr *attr, uint32_t mask);
int rk_query_qp(rk_h qp, uint32_t mask, struct rk_qp_attr *attr);
int rk_destroy_qp(rk_h qp);

// Connections.

struct rk_addr {
	uint8_t ip[16]; // the first 4 bytes for IPv4
	uint32_t scope; // interface of a link-local IPv6 address
	uint16_t port;
	uint8_t family; // 4, 6, or 0 for none
};

struct rk_conn_param {
	uint8_t private_data[256];
	uint32_t qpn;
	uint8_t private_len, responder_resources, initiator_depth, flow_control;
	uint8_t retry_count, rnr_retry_count, srq;
};

struct rk_cm_event {
	uint64_t key; // of the id; of a request to connect that which listens
	rk_h new_id;  // of a request to connect, else 0
	uint32_t type;
	int32_t status;
	struct rk_conn_param param;
};

int rk_create_event_channel(rk_h *channel, int *fd);
int rk_destroy_event_channel(rk_h channel);
// rk_get_cm_event gives the id of a request to connect the key new_key.
int rk_get_cm_event(rk_h channel, uint64_t new_key, struct rk_cm_event *out);
int rk_create_id(rk_h channel, uint64_t key, rk_h *id);
int rk_destroy_id(rk_h id);
int rk_bind_addr(rk_h id, const struct rk_addr *addr);
int rk_listen(rk_h id, int backlog);
void rk_get_addr(rk_h id, int peer, struct rk_addr *out);
void rk_get_device(rk_h id, char *name, size_t room, uint8_t *port);
int rk_resolve_addr(rk_h id, const struct rk_addr *src, const struct rk_addr *dst, int timeout_ms);
int rk_resolve_route(rk_h id, int timeout_ms);
int rk_init_qp_attr(rk_h id, uint32_t state, struct rk_qp_attr *attr, uint32_t *mask);
int rk_connect(rk_h id, const struct rk_conn_param *param);
int rk_accept(rk_h id, const struct rk_conn_param *param);
int rk_reject(rk_h id, const uint8_t *data, uint8_t len);
int rk_establish(rk_h id);
int rk_disconnect(rk_h id);
int rk_set_option(rk_h id, int level, int name, const uint8_t *value, size_t len);
int rk_migrate_id(rk_h id, rk_h channel);

#endif
