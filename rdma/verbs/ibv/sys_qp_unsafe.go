//go:build linux && cgo

package ibv

/*
#include "shim.h"
*/
import "C"

import "syscall"

// flag is 1 for true, in C's type.
func flag[T C.int | C.uint8_t | C.uint32_t](on bool) T {
	if on {
		return 1
	}
	return 0
}

func cCap(c QPCap) C.struct_rk_qp_cap {
	return C.struct_rk_qp_cap{
		max_send_wr:  C.uint32_t(c.MaxSendWR),
		max_recv_wr:  C.uint32_t(c.MaxRecvWR),
		max_send_sge: C.uint32_t(c.MaxSendSGE),
		max_recv_sge: C.uint32_t(c.MaxRecvSGE),
		max_inline:   C.uint32_t(c.MaxInline),
	}
}

func toCap(c *C.struct_rk_qp_cap) QPCap {
	return QPCap{
		MaxSendWR:  uint32(c.max_send_wr),
		MaxRecvWR:  uint32(c.max_recv_wr),
		MaxSendSGE: uint32(c.max_send_sge),
		MaxRecvSGE: uint32(c.max_recv_sge),
		MaxInline:  uint32(c.max_inline),
	}
}

func cAH(a *AHAttr) C.struct_rk_ah_attr {
	c := C.struct_rk_ah_attr{
		flow_label:    C.uint32_t(a.FlowLabel),
		dlid:          C.uint16_t(a.DLID),
		is_global:     flag[C.uint8_t](a.IsGlobal),
		sgid_index:    C.uint8_t(a.SGIDIndex),
		hop_limit:     C.uint8_t(a.HopLimit),
		traffic_class: C.uint8_t(a.TrafficClass),
		sl:            C.uint8_t(a.SL),
		src_path_bits: C.uint8_t(a.SrcPathBits),
		static_rate:   C.uint8_t(a.StaticRate),
		port_num:      C.uint8_t(a.PortNum),
	}
	for i, b := range a.DGID {
		c.dgid[i] = C.uint8_t(b)
	}
	return c
}

func toAH(c *C.struct_rk_ah_attr) AHAttr {
	return AHAttr{
		IsGlobal:     c.is_global != 0,
		DGID:         toGID(&c.dgid),
		SGIDIndex:    uint8(c.sgid_index),
		HopLimit:     uint8(c.hop_limit),
		TrafficClass: uint8(c.traffic_class),
		FlowLabel:    uint32(c.flow_label),
		DLID:         uint16(c.dlid),
		SL:           uint8(c.sl),
		SrcPathBits:  uint8(c.src_path_bits),
		StaticRate:   uint8(c.static_rate),
		PortNum:      uint8(c.port_num),
	}
}

func toQPAttr(c *C.struct_rk_qp_attr) QPAttr {
	return QPAttr{
		State:           QPState(c.state),
		CurState:        QPState(c.cur_state),
		PathMTU:         MTU(c.path_mtu),
		QKey:            uint32(c.qkey),
		RQPSN:           uint32(c.rq_psn),
		SQPSN:           uint32(c.sq_psn),
		DestQPN:         uint32(c.dest_qpn),
		AccessFlags:     Access(c.access),
		Cap:             toCap(&c.cap),
		AH:              toAH(&c.ah),
		PKeyIndex:       uint16(c.pkey_index),
		EnSQDNotify:     c.en_sqd_notify != 0,
		SQDraining:      c.sq_draining != 0,
		MaxRdAtomic:     uint8(c.max_rd_atomic),
		MaxDestRdAtomic: uint8(c.max_dest_rd_atomic),
		MinRNRTimer:     uint8(c.min_rnr_timer),
		Port:            uint8(c.port),
		Timeout:         uint8(c.timeout),
		RetryCnt:        uint8(c.retry_cnt),
		RNRRetry:        uint8(c.rnr_retry),
	}
}

func sysCreateQP(pd handle, init *qpInitRaw) (handle, uint32, QPCap, syscall.Errno) {
	c := C.struct_rk_qp_init{
		key:     C.uint64_t(init.key),
		send_cq: C.rk_h(init.sendCQ),
		recv_cq: C.rk_h(init.recvCQ),
		srq:     C.rk_h(init.srq),
		cap:     cCap(init.cap),
		sig_all: flag[C.uint32_t](init.sigAll),
	}
	var qp C.rk_h
	var qpn C.uint32_t
	if e := errno(C.rk_create_qp(C.rk_h(pd), &c, &qp, &qpn)); e != 0 {
		return 0, 0, QPCap{}, e
	}
	return handle(qp), uint32(qpn), toCap(&c.cap), 0
}

func sysModifyQP(h handle, a *QPAttr, mask QPAttrMask) syscall.Errno {
	c := C.struct_rk_qp_attr{
		state:              C.uint32_t(a.State),
		cur_state:          C.uint32_t(a.CurState),
		path_mtu:           C.uint32_t(a.PathMTU),
		qkey:               C.uint32_t(a.QKey),
		rq_psn:             C.uint32_t(a.RQPSN),
		sq_psn:             C.uint32_t(a.SQPSN),
		dest_qpn:           C.uint32_t(a.DestQPN),
		access:             C.uint32_t(a.AccessFlags),
		cap:                cCap(a.Cap),
		ah:                 cAH(&a.AH),
		pkey_index:         C.uint16_t(a.PKeyIndex),
		en_sqd_notify:      flag[C.uint8_t](a.EnSQDNotify),
		max_rd_atomic:      C.uint8_t(a.MaxRdAtomic),
		max_dest_rd_atomic: C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer:      C.uint8_t(a.MinRNRTimer),
		port:               C.uint8_t(a.Port),
		timeout:            C.uint8_t(a.Timeout),
		retry_cnt:          C.uint8_t(a.RetryCnt),
		rnr_retry:          C.uint8_t(a.RNRRetry),
	}
	return errno(C.rk_modify_qp(C.rk_h(h), &c, C.uint32_t(mask)))
}

func sysQueryQP(h handle, mask QPAttrMask) (QPAttr, syscall.Errno) {
	var c C.struct_rk_qp_attr
	if e := errno(C.rk_query_qp(C.rk_h(h), C.uint32_t(mask), &c)); e != 0 {
		return QPAttr{}, e
	}
	return toQPAttr(&c), 0
}

func sysDestroyQP(h handle) syscall.Errno { return errno(C.rk_destroy_qp(C.rk_h(h))) }
