//go:build linux && cgo

package ibv

/*
#include "shim.h"

#cgo noescape rk_poll_cq
#cgo nocallback rk_poll_cq
#cgo noescape rk_spin_cq
#cgo nocallback rk_spin_cq
#cgo noescape rk_req_notify_cq
#cgo nocallback rk_req_notify_cq
#cgo noescape rk_get_cq_event
#cgo nocallback rk_get_cq_event
#cgo noescape rk_post_send
#cgo nocallback rk_post_send
#cgo noescape rk_post_recv
#cgo nocallback rk_post_recv
#cgo noescape rk_post_srq_recv
#cgo nocallback rk_post_srq_recv
#cgo noescape rk_post_send_spin
#cgo nocallback rk_post_send_spin
*/
import "C"

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// The layouts that Go and C share are pinned here: either line fails to compile
// if the sizes differ.
const (
	_ = uint(unsafe.Sizeof(SendWR{}) - C.sizeof_struct_rk_send_wr)
	_ = uint(C.sizeof_struct_rk_send_wr - unsafe.Sizeof(SendWR{}))
	_ = uint(unsafe.Sizeof(RecvWR{}) - C.sizeof_struct_rk_recv_wr)
	_ = uint(C.sizeof_struct_rk_recv_wr - unsafe.Sizeof(RecvWR{}))
	_ = uint(unsafe.Sizeof(WC{}) - C.sizeof_struct_rk_wc)
	_ = uint(C.sizeof_struct_rk_wc - unsafe.Sizeof(WC{}))
	_ = uint(MaxSGE - C.RK_MAX_SGE)
	_ = uint(C.RK_MAX_SGE - MaxSGE)
)

// offsets are pairs of where Go and C have a field, for the test of them.
func offsets() map[string][2]uintptr {
	var s SendWR
	var cs C.struct_rk_send_wr
	var r RecvWR
	var cr C.struct_rk_recv_wr
	var w WC
	var cw C.struct_rk_wc
	return map[string][2]uintptr{
		"SendWR.ID":         {unsafe.Offsetof(s.ID), unsafe.Offsetof(cs.id)},
		"SendWR.RemoteAddr": {unsafe.Offsetof(s.RemoteAddr), unsafe.Offsetof(cs.remote_addr)},
		"SendWR.CompareAdd": {unsafe.Offsetof(s.CompareAdd), unsafe.Offsetof(cs.compare_add)},
		"SendWR.Swap":       {unsafe.Offsetof(s.Swap), unsafe.Offsetof(cs.swap)},
		"SendWR.Op":         {unsafe.Offsetof(s.Op), unsafe.Offsetof(cs.opcode)},
		"SendWR.Flags":      {unsafe.Offsetof(s.Flags), unsafe.Offsetof(cs.flags)},
		"SendWR.RKey":       {unsafe.Offsetof(s.RKey), unsafe.Offsetof(cs.rkey)},
		"SendWR.ImmInv":     {unsafe.Offsetof(s.ImmInv), unsafe.Offsetof(cs.imm_inv)},
		"SendWR.NumSGE":     {unsafe.Offsetof(s.NumSGE), unsafe.Offsetof(cs.num_sge)},
		"SendWR.SGL":        {unsafe.Offsetof(s.SGL), unsafe.Offsetof(cs.sgl)},
		"RecvWR.ID":         {unsafe.Offsetof(r.ID), unsafe.Offsetof(cr.id)},
		"RecvWR.NumSGE":     {unsafe.Offsetof(r.NumSGE), unsafe.Offsetof(cr.num_sge)},
		"RecvWR.SGL":        {unsafe.Offsetof(r.SGL), unsafe.Offsetof(cr.sgl)},
		"WC.ID":             {unsafe.Offsetof(w.ID), unsafe.Offsetof(cw.id)},
		"WC.Status":         {unsafe.Offsetof(w.Status), unsafe.Offsetof(cw.status)},
		"WC.Opcode":         {unsafe.Offsetof(w.Opcode), unsafe.Offsetof(cw.opcode)},
		"WC.VendorErr":      {unsafe.Offsetof(w.VendorErr), unsafe.Offsetof(cw.vendor_err)},
		"WC.ByteLen":        {unsafe.Offsetof(w.ByteLen), unsafe.Offsetof(cw.byte_len)},
		"WC.ImmInv":         {unsafe.Offsetof(w.ImmInv), unsafe.Offsetof(cw.imm_inv)},
		"WC.QPN":            {unsafe.Offsetof(w.QPN), unsafe.Offsetof(cw.qpn)},
		"WC.Flags":          {unsafe.Offsetof(w.Flags), unsafe.Offsetof(cw.flags)},
		"WC.Polled":         {unsafe.Offsetof(w.Polled), unsafe.Offsetof(cw.polled)},
	}
}

// count is the length of a batch as C has it.
func count(n int) C.int { return C.int(min(n, math.MaxInt32)) }

func cWCs(wcs []WC) *C.struct_rk_wc {
	return (*C.struct_rk_wc)(unsafe.Pointer(unsafe.SliceData(wcs)))
}

func cSendWRs(wrs []SendWR) *C.struct_rk_send_wr {
	return (*C.struct_rk_send_wr)(unsafe.Pointer(unsafe.SliceData(wrs)))
}

func cRecvWRs(wrs []RecvWR) *C.struct_rk_recv_wr {
	return (*C.struct_rk_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs)))
}

func sysCreateChannel(ctx handle) (handle, int, syscall.Errno) {
	var ch C.rk_h
	var fd C.int
	e := errno(C.rk_create_channel(C.rk_h(ctx), &ch, &fd))
	return handle(ch), int(fd), e
}

func sysDestroyChannel(h handle) syscall.Errno { return errno(C.rk_destroy_channel(C.rk_h(h))) }

func sysGetCQEvent(h handle) (uint64, syscall.Errno) {
	var key C.uint64_t
	e := errno(C.rk_get_cq_event(C.rk_h(h), &key))
	return uint64(key), e
}

func sysCompVectors(ctx handle) int { return int(C.rk_comp_vectors(C.rk_h(ctx))) }

func sysCreateCQ(ctx handle, depth int, key uint64, ch handle, vector int) (handle, int, syscall.Errno) {
	var cq C.rk_h
	var cqe C.int
	e := errno(C.rk_create_cq(C.rk_h(ctx), count(depth), C.uint64_t(key), C.rk_h(ch), count(vector), &cq, &cqe))
	return handle(cq), int(cqe), e
}

func sysDestroyCQ(h handle) syscall.Errno { return errno(C.rk_destroy_cq(C.rk_h(h))) }

func sysPollCQ(h handle, wcs []WC) (int, syscall.Errno) {
	return polled(C.rk_poll_cq(C.rk_h(h), cWCs(wcs), count(len(wcs))))
}

func sysSpinCQ(h handle, wcs []WC, d time.Duration, yield bool) (int, syscall.Errno) {
	return polled(C.rk_spin_cq(C.rk_h(h), cWCs(wcs), count(len(wcs)), C.int64_t(d), flag[C.int](yield)))
}

// polled makes an errno of a provider's negative number.
func polled(n C.int) (int, syscall.Errno) {
	if n < 0 {
		return 0, syscall.EIO
	}
	return int(n), 0
}

func sysReqNotify(h handle, solicitedOnly bool) syscall.Errno {
	return errno(C.rk_req_notify_cq(C.rk_h(h), flag[C.int](solicitedOnly)))
}

func sysPostSend(h handle, wrs []SendWR) (int, syscall.Errno) {
	var e C.int
	n := C.rk_post_send(C.rk_h(h), cSendWRs(wrs), count(len(wrs)), &e)
	return int(n), errno(e)
}

func sysPostSendSpin(h handle, wrs []SendWR, cq handle, wcs []WC, d time.Duration, yield bool) (posted, got int, errn syscall.Errno) {
	var e, p C.int
	n := C.rk_post_send_spin(C.rk_h(h), cSendWRs(wrs), count(len(wrs)), &e, C.rk_h(cq), cWCs(wcs), count(len(wcs)), C.int64_t(d), flag[C.int](yield), &p)
	if e != 0 {
		return int(n), 0, errno(e)
	}
	got, errn = polled(p)
	return int(n), got, errn
}

func sysPostRecv(h handle, wrs []RecvWR) (int, syscall.Errno) {
	var e C.int
	n := C.rk_post_recv(C.rk_h(h), cRecvWRs(wrs), count(len(wrs)), &e)
	return int(n), errno(e)
}

func sysPostSRQ(h handle, wrs []RecvWR) (int, syscall.Errno) {
	var e C.int
	n := C.rk_post_srq_recv(C.rk_h(h), cRecvWRs(wrs), count(len(wrs)), &e)
	return int(n), errno(e)
}

func sysCreateSRQ(pd handle, key uint64, maxWR, maxSGE int) (h handle, wr, sge int, e syscall.Errno) {
	var srq C.rk_h
	var w, s C.uint32_t
	e = errno(C.rk_create_srq(C.rk_h(pd), C.uint64_t(key), C.uint32_t(maxWR), C.uint32_t(maxSGE), &srq, &w, &s))
	return handle(srq), int(w), int(s), e
}

func sysArmSRQ(h handle, limit int) syscall.Errno {
	return errno(C.rk_arm_srq(C.rk_h(h), C.uint32_t(limit)))
}

func sysDestroySRQ(h handle) syscall.Errno { return errno(C.rk_destroy_srq(C.rk_h(h))) }
