//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// These datagrams go over the socket (SOCK_SEQPACKET), little-endian. The first
// byte tells them apart; doc.go has the drawing.
const (
	msgHello   = 'H' // dialer: its first
	msgWelcome = 'W' // acceptor: accepted, with the channel's descriptor
	msgReject  = 'J' // acceptor: refused
	msgRegions = 'R' // regions shown and taken back, with descriptors
	msgWake    = 'k' // look into your ring

	// version of the set-up and of the channel.
	version = 1

	maxPrivate = 512
	// maxNotices bounds the regions in one datagram; the kernel takes 253
	// descriptors with one.
	maxNotices = 64
	shownLen   = 1 + 2 + 4 + 8 + 8 + 8
	goneLen    = 1 + 4
	maxMessage = 4096
)

var magic = [8]byte{'r', 'd', 'm', 'a', 'k', 'v', 's', 'h'}

// errWire: a datagram that is no set-up message of this fabric.
var errWire = fmt.Errorf("%w: a set-up message that cannot be", rdma.ErrProtocol)

// A hello asks for a connection.
type hello struct {
	netns    uint64 // inode of the dialer's network namespace; 0: unknown
	addr     netip.AddrPort
	ird, ord uint16
	private  []byte
}

func (h *hello) append(b []byte) []byte {
	b = append(b, msgHello)
	b = append(b, magic[:]...)
	b = append(b, version)
	b = binary.LittleEndian.AppendUint64(b, h.netns)
	ip := h.addr.Addr().As16()
	b = append(b, ip[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.addr.Port())
	b = binary.LittleEndian.AppendUint16(b, h.ird)
	b = binary.LittleEndian.AppendUint16(b, h.ord)
	return append(b, h.private...)
}

const helloLen = 1 + 8 + 1 + 8 + 16 + 2 + 2 + 2

func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloLen || len(b) > helloLen+maxPrivate || b[0] != msgHello || [8]byte(b[1:9]) != magic {
		return h, errWire
	}
	if b[9] != version {
		return h, fmt.Errorf("%w: the peer speaks version %d, this is %d", rdma.ErrProtocol, b[9], version)
	}
	h.netns = binary.LittleEndian.Uint64(b[10:])
	ip := netip.AddrFrom16([16]byte(b[18:34])).Unmap()
	h.addr = netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(b[34:]))
	h.ird, h.ord = binary.LittleEndian.Uint16(b[36:]), binary.LittleEndian.Uint16(b[38:])
	h.private = slices.Clone(b[helloLen:])
	return h, nil
}

// A welcome answers a hello. With accept the channel's descriptor comes with
// it, and behind that, if proof is set, the one that the dialer holds while it
// maps.
type welcome struct {
	accept   bool
	foreign  bool // refused because the address is none of the acceptor's
	proof    bool
	ird, ord uint16
	private  []byte
}

const welcomeLen = 1 + 1 + 1 + 4 + 4

func (w *welcome) append(b []byte) []byte {
	kind := byte(msgReject)
	if w.accept {
		kind = msgWelcome
	}
	var flags byte
	if w.foreign {
		flags |= 1
	}
	if w.proof {
		flags |= 2
	}
	b = append(b, kind, version, flags)
	b = binary.LittleEndian.AppendUint32(b, channelSize)
	b = binary.LittleEndian.AppendUint16(b, w.ird)
	b = binary.LittleEndian.AppendUint16(b, w.ord)
	return append(b, w.private...)
}

func parseWelcome(b []byte) (w welcome, err error) {
	if len(b) < welcomeLen || len(b) > welcomeLen+maxPrivate || b[0] != msgWelcome && b[0] != msgReject || b[2]&^3 != 0 {
		return w, errWire
	}
	if b[1] != version {
		return w, fmt.Errorf("%w: the peer speaks version %d, this is %d", rdma.ErrProtocol, b[1], version)
	}
	if n := binary.LittleEndian.Uint32(b[3:]); n != channelSize {
		return w, fmt.Errorf("%w: a channel of %d bytes, want %d", rdma.ErrProtocol, n, channelSize)
	}
	w.accept, w.foreign, w.proof = b[0] == msgWelcome, b[2]&1 != 0, b[2]&2 != 0
	w.ird, w.ord = binary.LittleEndian.Uint16(b[7:]), binary.LittleEndian.Uint16(b[9:])
	w.private = slices.Clone(b[welcomeLen:])
	return w, nil
}

// appendShown appends the notice of a region: its slot, rkey, and place in a
// memfd, which is the next descriptor of the datagram.
func appendShown(b []byte, slot uint16, key uint32, at memfd.Backing, n uint64) []byte {
	b = append(b, '+')
	b = binary.LittleEndian.AppendUint16(b, slot)
	b = binary.LittleEndian.AppendUint32(b, key)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.Offset))
	b = binary.LittleEndian.AppendUint64(b, n)
	return binary.LittleEndian.AppendUint64(b, uint64(at.Size))
}

// appendGone tells that a region was taken back.
func appendGone(b []byte, key uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(b, '-'), key)
}

// A shown is a region as the peer describes it, checked for sense.
type shown struct {
	gone         bool
	slot         uint16
	key          uint32
	off, n, size uint64
}

var errNotice = errors.New("a notice of a region that cannot be")

func badNotice() error { return fmt.Errorf("%w: %w", rdma.ErrProtocol, errNotice) }

// parseRegions reads the notices of a datagram (without its first byte). Those
// that are not gone are as many as its descriptors.
func parseRegions(b []byte, descriptors int) ([]shown, error) {
	list, named, err := parseNotices(b)
	if err == nil && named != descriptors {
		return nil, badNotice()
	}
	return list, err
}

// parseNotices does so and counts those that are not gone.
func parseNotices(b []byte) (list []shown, named int, err error) {
	for len(b) > 0 {
		if len(list) == maxNotices {
			return nil, 0, badNotice()
		}
		var s shown
		switch {
		case b[0] == '-' && len(b) >= goneLen:
			s = shown{gone: true, key: binary.LittleEndian.Uint32(b[1:])}
			b = b[goneLen:]
		case b[0] == '+' && len(b) >= shownLen:
			s = shown{
				slot: binary.LittleEndian.Uint16(b[1:]), key: binary.LittleEndian.Uint32(b[3:]),
				off: binary.LittleEndian.Uint64(b[7:]), n: binary.LittleEndian.Uint64(b[15:]), size: binary.LittleEndian.Uint64(b[23:]),
			}
			b = b[shownLen:]
			if s.slot >= slotCount || s.key == 0 || s.n == 0 || s.size > mem.MaxSize || s.off > s.size || s.n > s.size-s.off {
				return nil, 0, badNotice()
			}
			named++
		default:
			return nil, 0, badNotice()
		}
		list = append(list, s)
	}
	return list, named, nil
}
