package ibv

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
)

// An EventChannel is where librdmacm reports what became of connections,
// struct rdma_event_channel.
type EventChannel struct {
	object
	notify *notifier
}

// NewEventChannel is rdma_create_event_channel(3).
func NewEventChannel() (*EventChannel, error) {
	if err := LoadCM(); err != nil {
		return nil, err
	}
	h, fd, errno := sysCreateEventChannel()
	if errno != 0 {
		return nil, callError(callEventChannel, errno)
	}
	n, err := newNotifier(fd, "rdma_cm")
	if err != nil {
		sysDestroyEventChannel(h)
		return nil, err
	}
	return &EventChannel{object: object{key: newKey(), h: h}, notify: n}, nil
}

// Get waits for the next event (rdma_get_cm_event(3)) in Go's netpoller, copies
// it and acknowledges it at once, so that no CMID.Close waits for a reader of
// events. It ends with ctx's error, or with ErrClosed. Events of ids that were
// closed meanwhile are dropped; a request to connect to one is rejected.
func (e *EventChannel) Get(ctx context.Context) (CMEvent, error) {
	var ev CMEvent
	var failed error
	err := e.notify.wait(ctx, func() bool {
		if failed = e.use(); failed != nil {
			return true
		}
		defer e.mu.RUnlock()
		for {
			key := newKey()
			raw, errno := sysGetCMEvent(e.h, key)
			if again(errno) {
				return false
			}
			if failed = callError("rdma_get_cm_event", errno); failed != nil {
				return true
			}
			var ok bool
			if ev, ok = e.decode(raw, key); ok {
				return true
			}
		}
	})
	if err = cmp.Or(err, failed); err != nil {
		return CMEvent{}, err
	}
	return ev, nil
}

// decode finds the ids of an event. A new id was given the key newID.
func (e *EventChannel) decode(raw cmRaw, newID uint64) (CMEvent, bool) {
	ev := CMEvent{Type: raw.kind, Status: raw.status, Param: raw.param}
	if raw.kind != CMConnectRequest {
		ev.ID = liveIDs.get(raw.key)
		return ev, ev.ID != nil
	}
	ev.ID = &CMID{object: object{key: newID, h: raw.newID}, events: e}
	e.kids.add("CM id")
	liveIDs.put(newID, ev.ID)
	if ev.ListenID = liveIDs.get(raw.key); ev.ListenID == nil {
		// The listener is gone. Destroying the id rejects the request.
		_ = ev.ID.Close()
		return CMEvent{}, false
	}
	return ev, true
}

// cmRaw is struct rk_cm_event.
type cmRaw struct {
	kind   CMEventType
	status int
	key    uint64 // of the id; of CONNECT_REQUEST that which listens
	newID  handle // of CONNECT_REQUEST
	param  ConnParam
}

// Close is rdma_destroy_event_channel(3): it ends Get. It fails with EBUSY
// while an id of the channel is open.
func (e *EventChannel) Close() error {
	done, err := e.destroy("rdma_destroy_event_channel", sysDestroyEventChannel)
	if done {
		e.notify.close()
	}
	return err
}

// A sockAddr is struct rk_addr: a socket address that C makes a sockaddr of.
type sockAddr struct {
	family uint8 // 4, 6, or 0 for none
	port   uint16
	scope  uint32 // interface of a link-local address
	ip     [16]byte
}

func toSockAddr(a netip.AddrPort) (sockAddr, error) {
	ip := a.Addr()
	switch {
	case !ip.IsValid():
		return sockAddr{}, nil
	case ip.Unmap().Is4():
		s := sockAddr{family: 4, port: a.Port()}
		v4 := ip.Unmap().As4()
		copy(s.ip[:], v4[:])
		return s, nil
	}
	s := sockAddr{family: 6, port: a.Port(), ip: ip.As16()}
	if zone := ip.Zone(); zone != "" {
		n, err := strconv.ParseUint(zone, 10, 32)
		if err != nil {
			ifi, err := net.InterfaceByName(zone)
			if err != nil {
				return sockAddr{}, err
			}
			n = uint64(ifi.Index)
		}
		s.scope = uint32(n)
	}
	return s, nil
}

func (s sockAddr) addrPort() netip.AddrPort {
	switch s.family {
	case 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.ip[:4])), s.port)
	case 6:
		ip := netip.AddrFrom16(s.ip)
		if s.scope != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(s.scope), 10))
		}
		return netip.AddrPortFrom(ip, s.port)
	}
	return netip.AddrPort{}
}
