package security

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands on the way between a client and a node on iwarp. It takes every
// SEND apart, may put others in its place, numbers them as the fabric requires and
// repairs the CRC: neither fabric can notice.
type proxy struct {
	l      net.Listener
	target string
	// edit gets SEND n of a connection (from 1, by direction) and returns what
	// goes on in its place.
	edit func(toServer bool, n int, payload []byte) [][]byte

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, target string, edit func(toServer bool, n int, payload []byte) [][]byte) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: target, edit: edit}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(in, out, true) })
		p.wg.Go(func() { p.pipe(out, in, false) })
	}
}

// pipe passes one direction on until it ends.
func (p *proxy) pipe(from, to net.Conn, toServer bool) {
	defer from.Close()
	defer to.Close()
	// The MPA request or reply: 20 bytes, the last two of which count what
	// follows.
	head := make([]byte, 20)
	if _, err := io.ReadFull(from, head); err != nil {
		return
	}
	private := make([]byte, binary.BigEndian.Uint16(head[18:]))
	if _, err := io.ReadFull(from, private); err != nil {
		return
	}
	if _, err := to.Write(append(head, private...)); err != nil {
		return
	}
	sends, msn := 0, uint32(0)
	for {
		ulpdu, err := readFPDU(from)
		if err != nil {
			return
		}
		out := [][]byte{ulpdu}
		if isSend(ulpdu) {
			sends++
			out = nil
			for _, payload := range p.edit(toServer, sends, append([]byte(nil), ulpdu[18:]...)) {
				msn++
				one := append(append([]byte(nil), ulpdu[:18]...), payload...)
				binary.BigEndian.PutUint32(one[10:], msn)
				out = append(out, one)
			}
		}
		for _, one := range out {
			if _, err := to.Write(fpdu(one)); err != nil {
				return
			}
		}
	}
}

// isSend: an untagged segment on queue 0, which is the whole message as long as
// messages are shorter than a segment on loopback.
func isSend(ulpdu []byte) bool {
	return len(ulpdu) >= 18 && ulpdu[0]&0x80 == 0 && ulpdu[1]&15 == 3 && binary.BigEndian.Uint32(ulpdu[6:]) == 0
}

func readFPDU(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	rest := make([]byte, n+(-(2+n)&3)+4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	return rest[:n], nil
}

func fpdu(ulpdu []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	out = append(out, ulpdu...)
	out = append(out, make([]byte, -len(out)&3)...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, crc32.MakeTable(crc32.Castagnoli)))
}
