//go:build linux && cgo

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"syscall"
	"unsafe"
)

func cAddr(a sockAddr) C.struct_rk_addr {
	c := C.struct_rk_addr{scope: C.uint32_t(a.scope), port: C.uint16_t(a.port), family: C.uint8_t(a.family)}
	for i, b := range a.ip {
		c.ip[i] = C.uint8_t(b)
	}
	return c
}

func cParam(p *ConnParam) C.struct_rk_conn_param {
	c := C.struct_rk_conn_param{
		qpn:                 C.uint32_t(p.QPNum),
		private_len:         C.uint8_t(len(p.PrivateData)),
		responder_resources: C.uint8_t(p.ResponderResources),
		initiator_depth:     C.uint8_t(p.InitiatorDepth),
		flow_control:        flag[C.uint8_t](p.FlowControl),
		retry_count:         C.uint8_t(p.RetryCount),
		rnr_retry_count:     C.uint8_t(p.RNRRetryCount),
		srq:                 flag[C.uint8_t](p.SRQ),
	}
	for i, b := range p.PrivateData {
		c.private_data[i] = C.uint8_t(b)
	}
	return c
}

func sysCreateEventChannel() (handle, int, syscall.Errno) {
	var ch C.rk_h
	var fd C.int
	e := errno(C.rk_create_event_channel(&ch, &fd))
	return handle(ch), int(fd), e
}

func sysDestroyEventChannel(h handle) syscall.Errno {
	return errno(C.rk_destroy_event_channel(C.rk_h(h)))
}

func sysGetCMEvent(h handle, newID uint64) (cmRaw, syscall.Errno) {
	var ev C.struct_rk_cm_event
	if e := errno(C.rk_get_cm_event(C.rk_h(h), C.uint64_t(newID), &ev)); e != 0 {
		return cmRaw{}, e
	}
	p := &ev.param
	raw := cmRaw{
		kind:   CMEventType(ev._type),
		status: int(ev.status),
		key:    uint64(ev.key),
		newID:  handle(ev.new_id),
		param: ConnParam{
			ResponderResources: uint8(p.responder_resources),
			InitiatorDepth:     uint8(p.initiator_depth),
			FlowControl:        p.flow_control != 0,
			RetryCount:         uint8(p.retry_count),
			RNRRetryCount:      uint8(p.rnr_retry_count),
			SRQ:                p.srq != 0,
			QPNum:              uint32(p.qpn),
		},
	}
	if p.private_len > 0 {
		raw.param.PrivateData = C.GoBytes(unsafe.Pointer(&p.private_data[0]), C.int(p.private_len))
	}
	return raw, 0
}

func sysCreateID(ch handle, key uint64) (handle, syscall.Errno) {
	var id C.rk_h
	e := errno(C.rk_create_id(C.rk_h(ch), C.uint64_t(key), &id))
	return handle(id), e
}

func sysDestroyID(h handle) syscall.Errno { return errno(C.rk_destroy_id(C.rk_h(h))) }

func sysBind(h handle, addr sockAddr) syscall.Errno {
	c := cAddr(addr)
	return errno(C.rk_bind_addr(C.rk_h(h), &c))
}

func sysListen(h handle, backlog int) syscall.Errno {
	return errno(C.rk_listen(C.rk_h(h), count(backlog)))
}

func sysAddr(h handle, peer bool) sockAddr {
	var c C.struct_rk_addr
	C.rk_get_addr(C.rk_h(h), flag[C.int](peer), &c)
	return sockAddr{family: uint8(c.family), port: uint16(c.port), scope: uint32(c.scope), ip: toGID(&c.ip)}
}

func sysDevice(h handle) (string, uint8) {
	var name [64]C.char
	var port C.uint8_t
	C.rk_get_device(C.rk_h(h), &name[0], C.size_t(len(name)), &port)
	return C.GoString(&name[0]), uint8(port)
}

func sysResolveAddr(h handle, src, dst sockAddr, millis int) syscall.Errno {
	s, d := cAddr(src), cAddr(dst)
	return errno(C.rk_resolve_addr(C.rk_h(h), &s, &d, count(millis)))
}

func sysResolveRoute(h handle, millis int) syscall.Errno {
	return errno(C.rk_resolve_route(C.rk_h(h), count(millis)))
}

func sysInitQPAttr(h handle, state QPState) (QPAttr, QPAttrMask, syscall.Errno) {
	var c C.struct_rk_qp_attr
	var mask C.uint32_t
	if e := errno(C.rk_init_qp_attr(C.rk_h(h), C.uint32_t(state), &c, &mask)); e != 0 {
		return QPAttr{}, 0, e
	}
	return toQPAttr(&c), QPAttrMask(mask), 0
}

func sysConnect(h handle, p *ConnParam) syscall.Errno {
	c := cParam(p)
	return errno(C.rk_connect(C.rk_h(h), &c))
}

func sysAccept(h handle, p *ConnParam) syscall.Errno {
	c := cParam(p)
	return errno(C.rk_accept(C.rk_h(h), &c))
}

func sysReject(h handle, private []byte) syscall.Errno {
	return errno(C.rk_reject(C.rk_h(h), cBytes(private), C.uint8_t(len(private))))
}

func cBytes(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b))) }

func sysEstablish(h handle) syscall.Errno { return errno(C.rk_establish(C.rk_h(h))) }

func sysDisconnect(h handle) syscall.Errno { return errno(C.rk_disconnect(C.rk_h(h))) }

func sysSetOption(h handle, level, name int, value []byte) syscall.Errno {
	return errno(C.rk_set_option(C.rk_h(h), C.int(level), C.int(name), cBytes(value), C.size_t(len(value))))
}

func sysMigrate(h, ch handle) syscall.Errno {
	return errno(C.rk_migrate_id(C.rk_h(h), C.rk_h(ch)))
}
