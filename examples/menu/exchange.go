package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// A card is what one end tells the other: where its queue pair is, and where
// its memory. 64 bytes over TCP, big-endian:
//
//	 0       4       6       8           12          16
//	┌───────┬───────┬───────┬───────────┬───────────┐
//	│ magic │version│  LID  │ QP number │ first PSN │
//	├───────┴───────┴───────┴───────────┴───────────┤ 16
//	│                     GID                       │
//	├───────────────────────┬───────────┬───────────┤ 32
//	│ address of the window │   rkey    │  length   │
//	├───┬───┬───────┬───────┴───────────┴───────────┤ 48
//	│MTU│ 0 │ port  │              zero             │
//	└───┴───┴───────┴───────────────────────────────┘ 64
//
//	where  LID        InfiniBand: address within the subnet, given by its manager
//	       GID        RoCE: the address of the port's network interface, as IPv6
//	       QP number  which of the queue pairs at that port (24 bits)
//	       PSN        number of the first packet that we shall send (24 bits)
//	       address, rkey, length   the window: a peer that knows these three may use it
//	       MTU        largest packet: enum ibv_mtu, 1 is 256 bytes, 5 is 4096
//	       port       TCP port of the fabric; with -fabric iwarp only
type card struct {
	lid  uint16
	qpn  uint32
	psn  uint32
	gid  [16]byte
	addr uint64
	rkey uint32
	size uint32
	mtu  uint8
	port uint16
}

const (
	cardLen     = 64
	cardMagic   = 0x4d454e55 // "MENU"
	cardVersion = 1

	offMagic, offVersion, offLID, offQPN, offPSN = 0, 4, 6, 8, 12

	offGID                    = 16
	offAddr, offRKey, offSize = 32, 40, 44
	offMTU, offPort           = 48, 50
)

func (c card) bytes() []byte {
	b := make([]byte, cardLen)
	binary.BigEndian.PutUint32(b[offMagic:], cardMagic)
	binary.BigEndian.PutUint16(b[offVersion:], cardVersion)
	binary.BigEndian.PutUint16(b[offLID:], c.lid)
	binary.BigEndian.PutUint32(b[offQPN:], c.qpn)
	binary.BigEndian.PutUint32(b[offPSN:], c.psn)
	copy(b[offGID:offAddr], c.gid[:])
	binary.BigEndian.PutUint64(b[offAddr:], c.addr)
	binary.BigEndian.PutUint32(b[offRKey:], c.rkey)
	binary.BigEndian.PutUint32(b[offSize:], c.size)
	b[offMTU] = c.mtu
	binary.BigEndian.PutUint16(b[offPort:], c.port)
	return b
}

// parseCard checks every byte: any program that reaches the TCP port can have
// written these bytes, and they end up in a packet header and in the length of
// a copy.
func parseCard(b []byte) (card, error) {
	var c card
	if len(b) != cardLen {
		return c, fmt.Errorf("card of %d bytes, not %d", len(b), cardLen)
	}
	if m := binary.BigEndian.Uint32(b[offMagic:]); m != cardMagic {
		return c, fmt.Errorf("the other end is no menu (magic %#x)", m)
	}
	if v := binary.BigEndian.Uint16(b[offVersion:]); v != cardVersion {
		return c, fmt.Errorf("the other end speaks version %d, this one %d", v, cardVersion)
	}
	c.lid = binary.BigEndian.Uint16(b[offLID:])
	c.qpn = binary.BigEndian.Uint32(b[offQPN:])
	c.psn = binary.BigEndian.Uint32(b[offPSN:])
	copy(c.gid[:], b[offGID:offAddr])
	c.addr = binary.BigEndian.Uint64(b[offAddr:])
	c.rkey = binary.BigEndian.Uint32(b[offRKey:])
	c.size = binary.BigEndian.Uint32(b[offSize:])
	c.mtu = b[offMTU]
	c.port = binary.BigEndian.Uint16(b[offPort:])
	switch {
	case c.qpn > max24 || c.psn > max24:
		return c, fmt.Errorf("QP number %#x or PSN %#x has more than 24 bits", c.qpn, c.psn)
	case c.size != windowSize:
		return c, fmt.Errorf("a window of %d bytes, not %d", c.size, windowSize)
	case c.addr+uint64(c.size) < c.addr:
		return c, fmt.Errorf("a window that ends behind the end of memory: %#x, %d bytes", c.addr, c.size)
	case c.mtu < 1 || c.mtu > 5:
		return c, fmt.Errorf("MTU %d is not within 1 and 5", c.mtu)
	}
	return c, nil
}

const max24 = 1<<24 - 1

func (c card) String() string {
	return fmt.Sprintf("LID %d, GID %s, QP %#06x, PSN %#06x; window at %#x, rkey %#x, %d bytes",
		c.lid, netip.AddrFrom16(c.gid), c.qpn, c.psn, c.addr, c.rkey, c.size)
}

// exchange sends our card and returns the peer's. Both ends send first: a card
// is so short that it fits into the socket's buffer, so neither blocks.
func exchange(conn net.Conn, mine card, timeout time.Duration) (card, error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return card{}, err
	}
	if _, err := conn.Write(mine.bytes()); err != nil {
		return card{}, err
	}
	var b [cardLen]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return card{}, fmt.Errorf("waiting for the peer's card: %w", err)
	}
	return parseCard(b[:])
}

// meet returns when the peer has called it too: one byte each way.
func meet(conn net.Conn, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	b := [1]byte{'m'}
	if _, err := conn.Write(b[:]); err != nil {
		return fmt.Errorf("the other process has gone: %w", err)
	}
	_, err := io.ReadFull(conn, b[:])
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the other process has gone")
	case err != nil:
		return err
	case b[0] != 'm':
		return fmt.Errorf("the other process sent %#x in place of a meeting", b[0])
	}
	return nil
}
