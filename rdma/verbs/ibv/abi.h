// The binary interface of libibverbs and librdmacm, as far as the shim uses it:
// which size a structure has and at which offset a field stands. These are the
// facts that the libraries keep from release to release (symbol versions
// IBVERBS_1.1 and RDMACM_1.0), because programs are not compiled anew for each.
// They are declared here, so that every build with cgo has verbs: the headers of
// rdma-core need not be installed where a program is built.
//
// The table is for amd64 and arm64, which have 64-bit pointers and align alike;
// elsewhere the shim is a stub. One thing differs between them: the size of a
// mutex of the C library stands in the way of what comes after it in ibv_context
// (40 bytes with glibc on amd64, 48 on arm64). The other structures have theirs
// behind all that is named here. TestABI compares each line with the headers of
// rdma-core where they are installed, and fails if one differs; with a compiler for
// arm64 it does so for that, too.
//
//	W(name, size)      a structure that the shim makes: the size counts
//	G(name, size)      one that has grown: the library is told this size
//	R(name)            one that the library makes: the shim only looks at it
//	F(struct, offset, type, field, C)      a field, and how C names it
//	A(struct, offset, type, n, field, C)   a field that is an array of n
#ifndef RK_ABI_H
#define RK_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

// The C library is this program's and rdma-core's alike, so its own header says it.
#define ABI_MUTEX sizeof(pthread_mutex_t)

#define ABI_STRUCTS(W, G, R) \
	R(ibv_device) R(ibv_context) W(ibv_device_attr, 232) G(ibv_port_attr, 52) \
	W(ibv_gid_entry, 32) W(ibv_async_event, 16) R(ibv_mr) R(ibv_comp_channel) R(ibv_cq) \
	R(ibv_srq) R(ibv_qp) W(ibv_wc, 48) W(ibv_sge, 16) W(ibv_send_wr, 128) W(ibv_recv_wr, 32) \
	W(ibv_srq_init_attr, 24) W(ibv_srq_attr, 12) W(ibv_qp_init_attr, 64) W(ibv_qp_attr, 144) \
	R(rdma_event_channel) R(rdma_cm_id) W(rdma_conn_param, 24) R(rdma_cm_event)

// A device in the list of ibv_get_device_list.
#define ABI_ibv_device(F, A) \
	F(ibv_device, 20, int32_t, transport_type, transport_type) \
	A(ibv_device, 24, char, 64, name, name) \
	A(ibv_device, 88, char, 64, dev_name, dev_name)

// An opened device. The calls of the data path are pointers in it, and are called through it.
#define ABI_ibv_context(F, A) \
	F(ibv_context, 0, void *, device, device) \
	F(ibv_context, 96, void *, ops_poll_cq, ops.poll_cq) \
	F(ibv_context, 104, void *, ops_req_notify_cq, ops.req_notify_cq) \
	F(ibv_context, 168, void *, ops_post_srq_recv, ops.post_srq_recv) \
	F(ibv_context, 208, void *, ops_post_send, ops.post_send) \
	F(ibv_context, 216, void *, ops_post_recv, ops.post_recv) \
	F(ibv_context, 268, int32_t, async_fd, async_fd) \
	F(ibv_context, 272, int32_t, num_comp_vectors, num_comp_vectors) \
	F(ibv_context, 280 + ABI_MUTEX, void *, abi_compat, abi_compat)

// What ibv_query_device fills in.
#define ABI_ibv_device_attr(F, A) \
	A(ibv_device_attr, 0, char, 64, fw_ver, fw_ver) \
	F(ibv_device_attr, 64, uint64_t, node_guid, node_guid) \
	F(ibv_device_attr, 72, uint64_t, sys_image_guid, sys_image_guid) \
	F(ibv_device_attr, 80, uint64_t, max_mr_size, max_mr_size) \
	F(ibv_device_attr, 88, uint64_t, page_size_cap, page_size_cap) \
	F(ibv_device_attr, 96, uint32_t, vendor_id, vendor_id) \
	F(ibv_device_attr, 100, uint32_t, vendor_part_id, vendor_part_id) \
	F(ibv_device_attr, 104, uint32_t, hw_ver, hw_ver) \
	F(ibv_device_attr, 108, int32_t, max_qp, max_qp) \
	F(ibv_device_attr, 112, int32_t, max_qp_wr, max_qp_wr) \
	F(ibv_device_attr, 116, uint32_t, device_cap_flags, device_cap_flags) \
	F(ibv_device_attr, 120, int32_t, max_sge, max_sge) \
	F(ibv_device_attr, 124, int32_t, max_sge_rd, max_sge_rd) \
	F(ibv_device_attr, 128, int32_t, max_cq, max_cq) \
	F(ibv_device_attr, 132, int32_t, max_cqe, max_cqe) \
	F(ibv_device_attr, 136, int32_t, max_mr, max_mr) \
	F(ibv_device_attr, 140, int32_t, max_pd, max_pd) \
	F(ibv_device_attr, 144, int32_t, max_qp_rd_atom, max_qp_rd_atom) \
	F(ibv_device_attr, 148, int32_t, max_ee_rd_atom, max_ee_rd_atom) \
	F(ibv_device_attr, 152, int32_t, max_res_rd_atom, max_res_rd_atom) \
	F(ibv_device_attr, 156, int32_t, max_qp_init_rd_atom, max_qp_init_rd_atom) \
	F(ibv_device_attr, 164, int32_t, atomic_cap, atomic_cap) \
	F(ibv_device_attr, 176, int32_t, max_mw, max_mw) \
	F(ibv_device_attr, 200, int32_t, max_ah, max_ah) \
	F(ibv_device_attr, 212, int32_t, max_srq, max_srq) \
	F(ibv_device_attr, 216, int32_t, max_srq_wr, max_srq_wr) \
	F(ibv_device_attr, 220, int32_t, max_srq_sge, max_srq_sge) \
	F(ibv_device_attr, 224, uint16_t, max_pkeys, max_pkeys) \
	F(ibv_device_attr, 226, uint8_t, local_ca_ack_delay, local_ca_ack_delay) \
	F(ibv_device_attr, 227, uint8_t, phys_port_cnt, phys_port_cnt)

// What query_port fills in, as much of it as it is told to.
#define ABI_ibv_port_attr(F, A) \
	F(ibv_port_attr, 0, int32_t, state, state) \
	F(ibv_port_attr, 4, int32_t, max_mtu, max_mtu) \
	F(ibv_port_attr, 8, int32_t, active_mtu, active_mtu) \
	F(ibv_port_attr, 12, int32_t, gid_tbl_len, gid_tbl_len) \
	F(ibv_port_attr, 16, uint32_t, port_cap_flags, port_cap_flags) \
	F(ibv_port_attr, 20, uint32_t, max_msg_sz, max_msg_sz) \
	F(ibv_port_attr, 24, uint32_t, bad_pkey_cntr, bad_pkey_cntr) \
	F(ibv_port_attr, 28, uint32_t, qkey_viol_cntr, qkey_viol_cntr) \
	F(ibv_port_attr, 32, uint16_t, pkey_tbl_len, pkey_tbl_len) \
	F(ibv_port_attr, 34, uint16_t, lid, lid) \
	F(ibv_port_attr, 36, uint16_t, sm_lid, sm_lid) \
	F(ibv_port_attr, 38, uint8_t, lmc, lmc) \
	F(ibv_port_attr, 40, uint8_t, sm_sl, sm_sl) \
	F(ibv_port_attr, 43, uint8_t, active_width, active_width) \
	F(ibv_port_attr, 44, uint8_t, active_speed, active_speed) \
	F(ibv_port_attr, 45, uint8_t, phys_state, phys_state) \
	F(ibv_port_attr, 46, uint8_t, link_layer, link_layer) \
	F(ibv_port_attr, 47, uint8_t, flags, flags) \
	F(ibv_port_attr, 48, uint16_t, port_cap_flags2, port_cap_flags2)

// A line of ibv_query_gid_table, which is told the size.
#define ABI_ibv_gid_entry(F, A) \
	A(ibv_gid_entry, 0, uint8_t, 16, gid, gid.raw) \
	F(ibv_gid_entry, 16, uint32_t, gid_index, gid_index) \
	F(ibv_gid_entry, 20, uint32_t, port_num, port_num) \
	F(ibv_gid_entry, 24, uint32_t, gid_type, gid_type) \
	F(ibv_gid_entry, 28, uint32_t, ndev_ifindex, ndev_ifindex)

// An asynchronous event. element is a CQ, an SRQ or a QP, or port_num stands there.
#define ABI_ibv_async_event(F, A) \
	F(ibv_async_event, 0, void *, element, element.cq) \
	F(ibv_async_event, 0, int32_t, port_num, element.port_num) \
	F(ibv_async_event, 8, int32_t, event_type, event_type)

// Objects that the library makes. What is not named here is its own.
#define ABI_ibv_mr(F, A) \
	F(ibv_mr, 36, uint32_t, lkey, lkey) \
	F(ibv_mr, 40, uint32_t, rkey, rkey)

#define ABI_ibv_comp_channel(F, A) \
	F(ibv_comp_channel, 8, int32_t, fd, fd)

#define ABI_ibv_cq(F, A) \
	F(ibv_cq, 0, void *, context, context) \
	F(ibv_cq, 16, void *, cq_context, cq_context) \
	F(ibv_cq, 28, int32_t, cqe, cqe)

#define ABI_ibv_srq(F, A) \
	F(ibv_srq, 0, void *, context, context) \
	F(ibv_srq, 8, void *, srq_context, srq_context)

#define ABI_ibv_qp(F, A) \
	F(ibv_qp, 0, void *, context, context) \
	F(ibv_qp, 8, void *, qp_context, qp_context) \
	F(ibv_qp, 52, uint32_t, qp_num, qp_num)

// A completion. What stands behind pkey_index is of UD alone.
#define ABI_ibv_wc(F, A) \
	F(ibv_wc, 0, uint64_t, wr_id, wr_id) \
	F(ibv_wc, 8, uint32_t, status, status) \
	F(ibv_wc, 12, uint32_t, opcode, opcode) \
	F(ibv_wc, 16, uint32_t, vendor_err, vendor_err) \
	F(ibv_wc, 20, uint32_t, byte_len, byte_len) \
	F(ibv_wc, 24, uint32_t, imm_data, imm_data) \
	F(ibv_wc, 28, uint32_t, qp_num, qp_num) \
	F(ibv_wc, 32, uint32_t, src_qp, src_qp) \
	F(ibv_wc, 36, uint32_t, wc_flags, wc_flags) \
	F(ibv_wc, 40, uint16_t, pkey_index, pkey_index)

// Work requests. next and sg_list point to further ones of their kind.
#define ABI_ibv_sge(F, A) \
	F(ibv_sge, 0, uint64_t, addr, addr) \
	F(ibv_sge, 8, uint32_t, length, length) \
	F(ibv_sge, 12, uint32_t, lkey, lkey)

#define ABI_ibv_send_wr(F, A) \
	F(ibv_send_wr, 0, uint64_t, wr_id, wr_id) \
	F(ibv_send_wr, 8, void *, next, next) \
	F(ibv_send_wr, 16, void *, sg_list, sg_list) \
	F(ibv_send_wr, 24, int32_t, num_sge, num_sge) \
	F(ibv_send_wr, 28, uint32_t, opcode, opcode) \
	F(ibv_send_wr, 32, uint32_t, send_flags, send_flags) \
	F(ibv_send_wr, 36, uint32_t, imm_data, imm_data) \
	F(ibv_send_wr, 40, uint64_t, rdma_remote_addr, wr.rdma.remote_addr) \
	F(ibv_send_wr, 48, uint32_t, rdma_rkey, wr.rdma.rkey) \
	F(ibv_send_wr, 40, uint64_t, atomic_remote_addr, wr.atomic.remote_addr) \
	F(ibv_send_wr, 48, uint64_t, atomic_compare_add, wr.atomic.compare_add) \
	F(ibv_send_wr, 56, uint64_t, atomic_swap, wr.atomic.swap) \
	F(ibv_send_wr, 64, uint32_t, atomic_rkey, wr.atomic.rkey)

#define ABI_ibv_recv_wr(F, A) \
	F(ibv_recv_wr, 0, uint64_t, wr_id, wr_id) \
	F(ibv_recv_wr, 8, void *, next, next) \
	F(ibv_recv_wr, 16, void *, sg_list, sg_list) \
	F(ibv_recv_wr, 24, int32_t, num_sge, num_sge)

// What queues are made with, and how they are changed.
#define ABI_ibv_srq_init_attr(F, A) \
	F(ibv_srq_init_attr, 0, void *, srq_context, srq_context) \
	F(ibv_srq_init_attr, 8, uint32_t, max_wr, attr.max_wr) \
	F(ibv_srq_init_attr, 12, uint32_t, max_sge, attr.max_sge)

#define ABI_ibv_srq_attr(F, A) \
	F(ibv_srq_attr, 8, uint32_t, srq_limit, srq_limit)

#define ABI_ibv_qp_init_attr(F, A) \
	F(ibv_qp_init_attr, 0, void *, qp_context, qp_context) \
	F(ibv_qp_init_attr, 8, void *, send_cq, send_cq) \
	F(ibv_qp_init_attr, 16, void *, recv_cq, recv_cq) \
	F(ibv_qp_init_attr, 24, void *, srq, srq) \
	F(ibv_qp_init_attr, 32, uint32_t, max_send_wr, cap.max_send_wr) \
	F(ibv_qp_init_attr, 36, uint32_t, max_recv_wr, cap.max_recv_wr) \
	F(ibv_qp_init_attr, 40, uint32_t, max_send_sge, cap.max_send_sge) \
	F(ibv_qp_init_attr, 44, uint32_t, max_recv_sge, cap.max_recv_sge) \
	F(ibv_qp_init_attr, 48, uint32_t, max_inline_data, cap.max_inline_data) \
	F(ibv_qp_init_attr, 52, int32_t, qp_type, qp_type) \
	F(ibv_qp_init_attr, 56, int32_t, sq_sig_all, sq_sig_all)

#define ABI_ibv_qp_attr(F, A) \
	F(ibv_qp_attr, 0, uint32_t, qp_state, qp_state) \
	F(ibv_qp_attr, 4, uint32_t, cur_qp_state, cur_qp_state) \
	F(ibv_qp_attr, 8, uint32_t, path_mtu, path_mtu) \
	F(ibv_qp_attr, 16, uint32_t, qkey, qkey) \
	F(ibv_qp_attr, 20, uint32_t, rq_psn, rq_psn) \
	F(ibv_qp_attr, 24, uint32_t, sq_psn, sq_psn) \
	F(ibv_qp_attr, 28, uint32_t, dest_qp_num, dest_qp_num) \
	F(ibv_qp_attr, 32, uint32_t, qp_access_flags, qp_access_flags) \
	F(ibv_qp_attr, 36, uint32_t, max_send_wr, cap.max_send_wr) \
	F(ibv_qp_attr, 40, uint32_t, max_recv_wr, cap.max_recv_wr) \
	F(ibv_qp_attr, 44, uint32_t, max_send_sge, cap.max_send_sge) \
	F(ibv_qp_attr, 48, uint32_t, max_recv_sge, cap.max_recv_sge) \
	F(ibv_qp_attr, 52, uint32_t, max_inline_data, cap.max_inline_data) \
	A(ibv_qp_attr, 56, uint8_t, 16, dgid, ah_attr.grh.dgid.raw) \
	F(ibv_qp_attr, 72, uint32_t, flow_label, ah_attr.grh.flow_label) \
	F(ibv_qp_attr, 76, uint8_t, sgid_index, ah_attr.grh.sgid_index) \
	F(ibv_qp_attr, 77, uint8_t, hop_limit, ah_attr.grh.hop_limit) \
	F(ibv_qp_attr, 78, uint8_t, traffic_class, ah_attr.grh.traffic_class) \
	F(ibv_qp_attr, 80, uint16_t, dlid, ah_attr.dlid) \
	F(ibv_qp_attr, 82, uint8_t, sl, ah_attr.sl) \
	F(ibv_qp_attr, 83, uint8_t, src_path_bits, ah_attr.src_path_bits) \
	F(ibv_qp_attr, 84, uint8_t, static_rate, ah_attr.static_rate) \
	F(ibv_qp_attr, 85, uint8_t, is_global, ah_attr.is_global) \
	F(ibv_qp_attr, 86, uint8_t, ah_port_num, ah_attr.port_num) \
	F(ibv_qp_attr, 120, uint16_t, pkey_index, pkey_index) \
	F(ibv_qp_attr, 124, uint8_t, en_sqd_async_notify, en_sqd_async_notify) \
	F(ibv_qp_attr, 125, uint8_t, sq_draining, sq_draining) \
	F(ibv_qp_attr, 126, uint8_t, max_rd_atomic, max_rd_atomic) \
	F(ibv_qp_attr, 127, uint8_t, max_dest_rd_atomic, max_dest_rd_atomic) \
	F(ibv_qp_attr, 128, uint8_t, min_rnr_timer, min_rnr_timer) \
	F(ibv_qp_attr, 129, uint8_t, port_num, port_num) \
	F(ibv_qp_attr, 130, uint8_t, timeout, timeout) \
	F(ibv_qp_attr, 131, uint8_t, retry_cnt, retry_cnt) \
	F(ibv_qp_attr, 132, uint8_t, rnr_retry, rnr_retry)

// librdmacm: objects, and what a connection is asked for with.
#define ABI_rdma_event_channel(F, A) \
	F(rdma_event_channel, 0, int32_t, fd, fd)

#define ABI_rdma_cm_id(F, A) \
	F(rdma_cm_id, 0, void *, verbs, verbs) \
	F(rdma_cm_id, 16, void *, context, context) \
	A(rdma_cm_id, 32, uint8_t, 128, src_addr, route.addr.src_storage) \
	A(rdma_cm_id, 160, uint8_t, 128, dst_addr, route.addr.dst_storage) \
	F(rdma_cm_id, 348, uint8_t, port_num, port_num)

#define ABI_rdma_conn_param(F, A) \
	F(rdma_conn_param, 0, void *, private_data, private_data) \
	F(rdma_conn_param, 8, uint8_t, private_data_len, private_data_len) \
	F(rdma_conn_param, 9, uint8_t, responder_resources, responder_resources) \
	F(rdma_conn_param, 10, uint8_t, initiator_depth, initiator_depth) \
	F(rdma_conn_param, 11, uint8_t, flow_control, flow_control) \
	F(rdma_conn_param, 12, uint8_t, retry_count, retry_count) \
	F(rdma_conn_param, 13, uint8_t, rnr_retry_count, rnr_retry_count) \
	F(rdma_conn_param, 14, uint8_t, srq, srq) \
	F(rdma_conn_param, 16, uint32_t, qp_num, qp_num)

#define ABI_rdma_cm_event(F, A) \
	F(rdma_cm_event, 0, void *, id, id) \
	F(rdma_cm_event, 8, void *, listen_id, listen_id) \
	F(rdma_cm_event, 16, int32_t, event, event) \
	F(rdma_cm_event, 20, int32_t, status, status) \
	F(rdma_cm_event, 24, void *, private_data, param.conn.private_data) \
	F(rdma_cm_event, 32, uint8_t, private_data_len, param.conn.private_data_len) \
	F(rdma_cm_event, 33, uint8_t, responder_resources, param.conn.responder_resources) \
	F(rdma_cm_event, 34, uint8_t, initiator_depth, param.conn.initiator_depth) \
	F(rdma_cm_event, 35, uint8_t, flow_control, param.conn.flow_control) \
	F(rdma_cm_event, 36, uint8_t, retry_count, param.conn.retry_count) \
	F(rdma_cm_event, 37, uint8_t, rnr_retry_count, param.conn.rnr_retry_count) \
	F(rdma_cm_event, 38, uint8_t, srq, param.conn.srq) \
	F(rdma_cm_event, 40, uint32_t, qp_num, param.conn.qp_num)

// Where a provider is new enough to fill in all of ibv_port_attr: so many bytes
// before its ibv_context stand the size of what it has (sz) and the call. A
// context that has something before it says so by abi_compat. sz counts from the
// call to the end of ibv_context: 648 bytes on amd64, 656 on arm64.
#define ABI_EXTENDED ((void *)UINTPTR_MAX)
#define ABI_SZ_BEFORE 8
#define ABI_QUERY_PORT_BEFORE 320
#define ABI_QUERY_PORT_SZ (608 + ABI_MUTEX)

#define ABI_FIELD(s, off, type, field, c)       \
	struct {                                \
		uint8_t before_##field[off];    \
		type field;                     \
	};
#define ABI_ARRAY(s, off, type, n, field, c)    \
	struct {                                \
		uint8_t before_##field[off];    \
		type field[n];                  \
	};
#define ABI_SIZED(s, size)                      \
	union abi_##s {                         \
		uint8_t all[size];              \
		ABI_##s(ABI_FIELD, ABI_ARRAY)   \
	};
#define ABI_SEEN(s)                             \
	union abi_##s {                         \
		ABI_##s(ABI_FIELD, ABI_ARRAY)   \
	};
ABI_STRUCTS(ABI_SIZED, ABI_SIZED, ABI_SEEN)

// Our own compiler has put each field where the table says.
#define ABI_FIELD_AT(s, off, type, field, c) _Static_assert(offsetof(union abi_##s, field) == off, #s "." #field);
#define ABI_ARRAY_AT(s, off, type, n, field, c) ABI_FIELD_AT(s, off, type, field, c)
#define ABI_SIZE_IS(s, size)                                        \
	_Static_assert(sizeof(union abi_##s) == size, "size of " #s); \
	ABI_##s(ABI_FIELD_AT, ABI_ARRAY_AT)
#define ABI_SIZE_ANY(s) ABI_##s(ABI_FIELD_AT, ABI_ARRAY_AT)
ABI_STRUCTS(ABI_SIZE_IS, ABI_SIZE_IS, ABI_SIZE_ANY)

#endif
