//go:build linux && cgo

package ibv

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"syscall"
	"unsafe"
)

func deviceInfo(d *C.struct_rk_device) DeviceInfo {
	return DeviceInfo{
		Name:      C.GoString(&d.name[0]),
		Kernel:    C.GoString(&d.kernel[0]),
		GUID:      uint64(d.guid),
		Transport: Transport(d.transport),
	}
}

// maxDevices bounds the list of devices.
const maxDevices = 256

func sysDevices() ([]DeviceInfo, syscall.Errno) {
	devs := make([]C.struct_rk_device, maxDevices)
	var n C.int
	if e := errno(C.rk_devices(&devs[0], maxDevices, &n)); e != 0 {
		return nil, e
	}
	list := make([]DeviceInfo, n)
	for i := range list {
		list[i] = deviceInfo(&devs[i])
	}
	return list, 0
}

// sysOpen opens a device; found is false if none has that name.
func sysOpen(name string) (h handle, info DeviceInfo, asyncFD int, found bool, e syscall.Errno) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var ctx C.rk_h
	var dev C.struct_rk_device
	var fd C.int
	ret := C.rk_open(cname, &ctx, &dev, &fd)
	if ret < 0 {
		return 0, DeviceInfo{}, 0, false, 0
	}
	return handle(ctx), deviceInfo(&dev), int(fd), true, errno(ret)
}

func sysCloseDevice(h handle) syscall.Errno { return errno(C.rk_close_device(C.rk_h(h))) }

func sysQueryDevice(h handle) (DeviceAttr, syscall.Errno) {
	var a C.struct_rk_device_attr
	if e := errno(C.rk_query_device(C.rk_h(h), &a)); e != 0 {
		return DeviceAttr{}, e
	}
	return DeviceAttr{
		FWVer:           C.GoString(&a.fw_ver[0]),
		NodeGUID:        uint64(a.node_guid),
		SysImageGUID:    uint64(a.sys_image_guid),
		MaxMRSize:       uint64(a.max_mr_size),
		PageSizeCap:     uint64(a.page_size_cap),
		VendorID:        uint32(a.vendor_id),
		VendorPartID:    uint32(a.vendor_part_id),
		HWVer:           uint32(a.hw_ver),
		MaxQP:           int(a.max_qp),
		MaxQPWR:         int(a.max_qp_wr),
		DeviceCapFlags:  uint32(a.device_cap_flags),
		MaxSGE:          int(a.max_sge),
		MaxSGERd:        int(a.max_sge_rd),
		MaxCQ:           int(a.max_cq),
		MaxCQE:          int(a.max_cqe),
		MaxMR:           int(a.max_mr),
		MaxPD:           int(a.max_pd),
		MaxQPRdAtom:     int(a.max_qp_rd_atom),
		MaxEERdAtom:     int(a.max_ee_rd_atom),
		MaxResRdAtom:    int(a.max_res_rd_atom),
		MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		AtomicCap:       int(a.atomic_cap),
		MaxMW:           int(a.max_mw),
		MaxAH:           int(a.max_ah),
		MaxSRQ:          int(a.max_srq),
		MaxSRQWR:        int(a.max_srq_wr),
		MaxSRQSGE:       int(a.max_srq_sge),
		MaxPKeys:        int(a.max_pkeys),
		LocalCAAckDelay: uint8(a.local_ca_ack_delay),
		PhysPortCnt:     uint8(a.phys_port_cnt),
	}, 0
}

func sysQueryPort(h handle, port uint8) (PortAttr, syscall.Errno) {
	var a C.struct_rk_port_attr
	if e := errno(C.rk_query_port(C.rk_h(h), C.uint8_t(port), &a)); e != 0 {
		return PortAttr{}, e
	}
	return PortAttr{
		State:        PortState(a.state),
		MaxMTU:       MTU(a.max_mtu),
		ActiveMTU:    MTU(a.active_mtu),
		GIDTblLen:    int(a.gid_tbl_len),
		PKeyTblLen:   int(a.pkey_tbl_len),
		PortCapFlags: uint32(a.port_cap_flags),
		MaxMsgSz:     uint32(a.max_msg_sz),
		BadPKeyCntr:  uint32(a.bad_pkey_cntr),
		QKeyViolCntr: uint32(a.qkey_viol_cntr),
		LID:          uint16(a.lid),
		SMLID:        uint16(a.sm_lid),
		LMC:          uint8(a.lmc),
		SMSL:         uint8(a.sm_sl),
		ActiveWidth:  uint8(a.active_width),
		ActiveSpeed:  uint8(a.active_speed),
		PhysState:    uint8(a.phys_state),
		LinkLayer:    LinkLayer(a.link_layer),

		GRHRequired:   a.grh_required != 0,
		PortCapFlags2: uint16(a.port_cap_flags2),
	}, 0
}

// sysGIDTable returns up to room entries, and the index of each one's network
// interface.
func sysGIDTable(h handle, room int) (table []GIDEntry, ifindex []int, e syscall.Errno) {
	gids := make([]C.struct_rk_gid, max(room, 1))
	var n C.int
	if e := errno(C.rk_query_gids(C.rk_h(h), &gids[0], C.int(len(gids)), &n)); e != 0 {
		return nil, nil, e
	}
	table = make([]GIDEntry, n)
	ifindex = make([]int, n)
	for i := range table {
		g := &gids[i]
		table[i] = GIDEntry{GID: toGID(&g.gid), Port: uint8(g.port), Index: int(g.index), Type: GIDType(g._type)}
		ifindex[i] = int(g.ifindex)
	}
	return table, ifindex, 0
}

func toGID(c *[16]C.uint8_t) GID {
	var g GID
	for i, b := range c {
		g[i] = byte(b)
	}
	return g
}

func sysQueryPKey(h handle, port uint8, index int) (uint16, syscall.Errno) {
	var pkey C.uint16_t
	e := errno(C.rk_query_pkey(C.rk_h(h), C.uint8_t(port), C.int(index), &pkey))
	return uint16(pkey), e
}

func sysAsyncEvent(h handle) (asyncRaw, syscall.Errno) {
	var ev C.struct_rk_async_event
	if e := errno(C.rk_get_async_event(C.rk_h(h), &ev)); e != 0 {
		return asyncRaw{}, e
	}
	return asyncRaw{kind: AsyncType(ev._type), key: uint64(ev.key), qpn: uint32(ev.qpn), port: uint8(ev.port)}, 0
}

func sysAllocPD(ctx handle) (handle, syscall.Errno) {
	var pd C.rk_h
	e := errno(C.rk_alloc_pd(C.rk_h(ctx), &pd))
	return handle(pd), e
}

func sysDeallocPD(h handle) syscall.Errno { return errno(C.rk_dealloc_pd(C.rk_h(h))) }

func sysRegMR(pd handle, addr uintptr, length int, access Access) (h handle, lkey, rkey uint32, e syscall.Errno) {
	if length < 0 {
		return 0, 0, 0, syscall.EINVAL
	}
	var mr C.rk_h
	var l, r C.uint32_t
	e = errno(C.rk_reg_mr(C.rk_h(pd), C.uintptr_t(addr), C.size_t(length), C.uint32_t(access), &mr, &l, &r))
	return handle(mr), uint32(l), uint32(r), e
}

func sysDeregMR(h handle) syscall.Errno { return errno(C.rk_dereg_mr(C.rk_h(h))) }
