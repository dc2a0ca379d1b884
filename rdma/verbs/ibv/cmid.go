package ibv

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// A CMID is a communication identifier of port space TCP, struct rdma_cm_id:
// what a socket is to TCP. It has no QP of librdmacm's: the QP is made with
// CreateQP, the caller makes its transitions, and its number goes into Connect
// and Accept. ResolveAddr, ResolveRoute, Connect, Accept and Disconnect only
// begin something; an event says how it ended.
type CMID struct {
	object
	evMu   sync.Mutex
	events *EventChannel // where its events come; evMu guards it, and Migrate replaces it
}

// NewID is rdma_create_id(3) for RDMA_PS_TCP.
func (e *EventChannel) NewID() (*CMID, error) {
	if err := e.use(); err != nil {
		return nil, err
	}
	defer e.mu.RUnlock()
	id := &CMID{object: object{key: newKey()}, events: e}
	h, errno := sysCreateID(e.h, id.key)
	if errno != 0 {
		return nil, callError("rdma_create_id", errno)
	}
	id.h = h
	e.kids.add("CM id")
	liveIDs.put(id.key, id)
	return id, nil
}

// call runs f on the open id.
func (id *CMID) call(name string, f func(handle) syscall.Errno) error {
	if err := id.use(); err != nil {
		return err
	}
	defer id.mu.RUnlock()
	return callError(name, f(id.h))
}

// Bind is rdma_bind_addr(3). The address of a RoCE port's interface ties the
// id to its device; the unspecified address stands for all. Port 0 takes a
// free one.
func (id *CMID) Bind(addr netip.AddrPort) error {
	a, err := toSockAddr(addr)
	if err != nil {
		return err
	}
	return id.call("rdma_bind_addr", func(h handle) syscall.Errno { return sysBind(h, a) })
}

// Listen is rdma_listen(3): requests to connect come as CMConnectRequest, each
// with a new id on the same channel, which the receiver closes.
func (id *CMID) Listen(backlog int) error {
	return id.call("rdma_listen", func(h handle) syscall.Errno { return sysListen(h, backlog) })
}

// LocalAddr is the address that the id is bound to, the zero AddrPort if none.
func (id *CMID) LocalAddr() netip.AddrPort { return id.addr(false) }

// PeerAddr is the address of the other end, the zero AddrPort if none.
func (id *CMID) PeerAddr() netip.AddrPort { return id.addr(true) }

// addr is the local address, or the peer's.
func (id *CMID) addr(peer bool) netip.AddrPort {
	if id.use() != nil {
		return netip.AddrPort{}
	}
	defer id.mu.RUnlock()
	a := sysAddr(id.h, peer).addrPort()
	if peer && a.Addr().IsUnspecified() {
		return netip.AddrPort{} // what a listener has
	}
	return a
}

// Device is the name of the device that the id is tied to, once Bind to one
// address, CMAddrResolved or CMConnectRequest did that; else empty.
func (id *CMID) Device() string {
	name, _ := id.device()
	return name
}

// Port is the number of that device's port, from 1; 0 if there is none.
func (id *CMID) Port() uint8 {
	_, port := id.device()
	return port
}

func (id *CMID) device() (string, uint8) {
	if id.use() != nil {
		return "", 0
	}
	defer id.mu.RUnlock()
	return sysDevice(id.h)
}

// ResolveAddr is rdma_resolve_addr(3): it finds the device and the GID that
// reach dst. CMAddrResolved or CMAddrError follows within timeout. A zero src
// lets the routing table choose.
func (id *CMID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	s, err := toSockAddr(src)
	if err != nil {
		return err
	}
	d, err := toSockAddr(dst)
	if err != nil {
		return err
	}
	return id.call("rdma_resolve_addr", func(h handle) syscall.Errno {
		return sysResolveAddr(h, s, d, millis(timeout))
	})
}

// ResolveRoute is rdma_resolve_route(3), after CMAddrResolved: CMRouteResolved
// or CMRouteError follows within timeout.
func (id *CMID) ResolveRoute(timeout time.Duration) error {
	return id.call("rdma_resolve_route", func(h handle) syscall.Errno {
		return sysResolveRoute(h, millis(timeout))
	})
}

// millis rounds up, and takes what an int32 holds.
func millis(d time.Duration) int {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return int(max(0, min(ms, 1<<31-1)))
}

// InitQPAttr is rdma_init_qp_attr(3): what the connection knows of the
// attributes that a QP needs for the state (address vector, path MTU, PSNs,
// the peer's QP number), and the mask to give to Modify. Its access flags are
// librdmacm's, which include REMOTE_WRITE: replace them.
func (id *CMID) InitQPAttr(state QPState) (QPAttr, QPAttrMask, error) {
	if err := id.use(); err != nil {
		return QPAttr{}, 0, err
	}
	defer id.mu.RUnlock()
	attr, mask, errno := sysInitQPAttr(id.h, state)
	return attr, mask, callError("rdma_init_qp_attr", errno)
}

// These are how many bytes of private data a message takes: what IB's connection
// manager has room for, whose request has 92, of which the IP addresses take 36.
// It fills them up with zeros to that length; iWARP carries exactly what was
// given.
const (
	MaxPrivateConnect = 56
	MaxPrivateAccept  = 196
	MaxPrivateReject  = 148
)

// checkPrivate refuses data that is too long: the kernel would refuse it, too,
// but answers a wrong rdma_accept by rejecting the request.
func checkPrivate(call string, private []byte, most int) error {
	if len(private) > most {
		return &CallError{Call: call, Errno: syscall.EINVAL, Hint: fmt.Sprintf("%d bytes of private data, at most %d", len(private), most)}
	}
	return nil
}

// Connect is rdma_connect(3), after CMRouteResolved. CMConnectResponse follows:
// move the QP to RTS and call Establish; or CMRejected, CMUnreachable,
// CMConnectError. A peer that is there and does not answer gives no event for
// minutes: use a timeout and Close.
func (id *CMID) Connect(p ConnParam) error {
	if err := checkPrivate("rdma_connect", p.PrivateData, MaxPrivateConnect); err != nil {
		return err
	}
	return id.call("rdma_connect", func(h handle) syscall.Errno { return sysConnect(h, &p) })
}

// Accept is rdma_accept(3), for the id of a CMConnectRequest, with the QP in
// RTS (on iWARP: in INIT). CMEstablished follows. When it fails, the kernel has
// rejected the request.
func (id *CMID) Accept(p ConnParam) error {
	if err := checkPrivate("rdma_accept", p.PrivateData, MaxPrivateAccept); err != nil {
		return err
	}
	return id.call("rdma_accept", func(h handle) syscall.Errno { return sysAccept(h, &p) })
}

// Reject is rdma_reject(3), for the id of a CMConnectRequest: the peer gets
// CMRejected with private.
func (id *CMID) Reject(private []byte) error {
	if err := checkPrivate("rdma_reject", private, MaxPrivateReject); err != nil {
		return err
	}
	return id.call("rdma_reject", func(h handle) syscall.Errno { return sysReject(h, private) })
}

// Establish is rdma_establish(3), on the connecting side, after
// CMConnectResponse with the QP in RTS: the peer gets CMEstablished.
func (id *CMID) Establish() error {
	return id.call("rdma_establish", func(h handle) syscall.Errno { return sysEstablish(h) })
}

// Disconnect is rdma_disconnect(3): the peer gets CMDisconnected, and this end
// gets it when the peer calls Disconnect, too. It does not move this end's QP: Modify
// it to QPSErr to have its work requests flushed.
func (id *CMID) Disconnect() error {
	return id.call("rdma_disconnect", func(h handle) syscall.Errno { return sysDisconnect(h) })
}

// Options of rdma_set_option(3), RDMA_OPTION_ID_*.
const (
	OptionID           = 0 // the level of those below
	OptionIDTOS        = 0 // uint8
	OptionIDReuseAddr  = 1 // int32
	OptionIDAFOnly     = 2 // int32
	OptionIDAckTimeout = 3 // uint8
)

// SetOption is rdma_set_option(3).
func (id *CMID) SetOption(level, name int, value []byte) error {
	return id.call("rdma_set_option", func(h handle) syscall.Errno {
		return sysSetOption(h, level, name, value)
	})
}

// SetTOS sets the type of service: the traffic class of a RoCE connection.
func (id *CMID) SetTOS(tos uint8) error {
	return id.SetOption(OptionID, OptionIDTOS, []byte{tos})
}

// SetAckTimeout sets the local ACK timeout of the QP, 4.096 us times 2 to the
// power of t, 5 bits; it also sizes what the peer uses.
func (id *CMID) SetAckTimeout(t uint8) error {
	return id.SetOption(OptionID, OptionIDAckTimeout, []byte{t})
}

// SetReuseAddr lets Bind take an address whose last user just went.
func (id *CMID) SetReuseAddr(on bool) error { return id.setFlag(OptionIDReuseAddr, on) }

// SetAFOnly lets an IPv6 wildcard listen for IPv6 only.
func (id *CMID) SetAFOnly(on bool) error { return id.setFlag(OptionIDAFOnly, on) }

func (id *CMID) setFlag(name int, on bool) error {
	var v [4]byte
	if on {
		binary.NativeEndian.PutUint32(v[:], 1)
	}
	return id.SetOption(OptionID, name, v[:])
}

// Migrate is rdma_migrate_id(3): from now on the events of the id come to e.
func (id *CMID) Migrate(e *EventChannel) error {
	release, err := useAll(&id.object, &e.object)
	if err != nil {
		return err
	}
	defer release()
	id.evMu.Lock()
	defer id.evMu.Unlock()
	if errno := sysMigrate(id.h, e.h); errno != 0 {
		return callError("rdma_migrate_id", errno)
	}
	id.events.kids.done("CM id")
	e.kids.add("CM id")
	id.events = e
	return nil
}

// Close is rdma_destroy_id(3). A connection of it ends: the peer gets
// CMDisconnected, or CMRejected if there was none yet. Close the QP first.
func (id *CMID) Close() error {
	done, err := id.destroy("rdma_destroy_id", sysDestroyID)
	if done {
		liveIDs.drop(id.key)
		id.evMu.Lock()
		defer id.evMu.Unlock()
		id.events.kids.done("CM id")
	}
	return err
}
