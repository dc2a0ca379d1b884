package rdmatest

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
)

// A Tee stands between the two ends of a TCP connection, carries it, and notes
// every byte as the packets that a capture on the wire would have shown.
// Capturing for real needs privileges; the streams are the same. It serves
// fabrics that run over TCP, so that other tools can dissect what they say.
type Tee struct {
	t      testing.TB
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu   sync.Mutex
	pcap []byte
	seq  [2]uint32 // next TCP sequence number of each side
	sent [2]int    // payload bytes of each side
	time uint32    // microseconds, one per packet
}

// Sides of a Tee, as an index and as the TCP source ports in the capture.
const (
	TeeDialer   = 0
	TeeAcceptor = 1

	TeeDialerPort   = 40000
	TeeAcceptorPort = 50000
)

const (
	tcpFIN, tcpSYN, tcpPSH, tcpACK = 1, 2, 8, 16

	pcapMagic    = 0xa1b2c3d4
	pcapMaxFrame = 1 << 18
	pcapEthernet = 1
	// teeChunk keeps an IP packet within its 16 bits of length.
	teeChunk = 32 << 10
)

// NewTee begins to wait for one connection, which it will carry to target.
func NewTee(t testing.TB, target string) *Tee {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Tee{t: t, l: l, target: target, seq: [2]uint32{1000, 9000}}
	le := binary.LittleEndian
	e.pcap = le.AppendUint32(e.pcap, pcapMagic)
	e.pcap = le.AppendUint16(e.pcap, 2) // version 2.4
	e.pcap = le.AppendUint16(e.pcap, 4)
	e.pcap = append(e.pcap, make([]byte, 8)...) // zone and accuracy
	e.pcap = le.AppendUint32(e.pcap, pcapMaxFrame)
	e.pcap = le.AppendUint32(e.pcap, pcapEthernet)
	e.wg.Go(e.serve)
	return e
}

// Addr is what to dial.
func (e *Tee) Addr() string { return e.l.Addr().String() }

func (e *Tee) serve() {
	dialer, err := e.l.Accept()
	if err != nil {
		e.t.Errorf("tee: %v", err)
		return
	}
	defer dialer.Close()
	acceptor, err := net.Dial("tcp", e.target)
	if err != nil {
		e.t.Errorf("tee: %v", err)
		return
	}
	defer acceptor.Close()
	e.packet(TeeDialer, tcpSYN, nil)
	e.packet(TeeAcceptor, tcpSYN|tcpACK, nil)
	e.packet(TeeDialer, tcpACK, nil)
	var wg sync.WaitGroup
	wg.Go(func() { e.carry(TeeDialer, dialer, acceptor) })
	wg.Go(func() { e.carry(TeeAcceptor, acceptor, dialer) })
	wg.Wait()
}

func (e *Tee) carry(from int, in, out net.Conn) {
	buf := make([]byte, teeChunk)
	gone := false // the other end reads no more; the tee still notes what comes
	for {
		n, err := in.Read(buf)
		if n > 0 {
			// The bytes are noted before they are passed on, so that no answer
			// can come before them.
			e.packet(from, tcpPSH|tcpACK, buf[:n])
			if !gone {
				_, werr := out.Write(buf[:n])
				gone = werr != nil
			}
		}
		if err != nil {
			e.packet(from, tcpFIN|tcpACK, nil)
			if tcp, ok := out.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
	}
}

// packet notes one Ethernet frame with IPv4 and TCP headers.
func (e *Tee) packet(from int, flags byte, payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	be, le := binary.BigEndian, binary.LittleEndian
	addr := [2][]byte{{10, 0, 0, 1}, {10, 0, 0, 2}}
	port := [2]uint16{TeeDialerPort, TeeAcceptorPort}
	to := 1 - from
	ack := e.seq[to]
	if flags&tcpACK == 0 {
		ack = 0
	}

	tcp := be.AppendUint16(nil, port[from])
	tcp = be.AppendUint16(tcp, port[to])
	tcp = be.AppendUint32(tcp, e.seq[from])
	tcp = be.AppendUint32(tcp, ack)
	tcp = append(tcp, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	tcp = append(tcp, payload...)
	pseudo := slices.Concat(addr[from], addr[to], []byte{0, 6}, be.AppendUint16(nil, uint16(len(tcp))))
	be.PutUint16(tcp[16:], internetSum(append(pseudo, tcp...)))

	ip := []byte{0x45, 0}
	ip = be.AppendUint16(ip, uint16(20+len(tcp)))
	ip = append(ip, 0, 0, 0x40, 0, 64, 6, 0, 0)
	ip = slices.Concat(ip, addr[from], addr[to])
	be.PutUint16(ip[10:], internetSum(ip))

	frame := slices.Concat([]byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from), 8, 0}, ip, tcp)
	e.time++
	e.pcap = le.AppendUint32(e.pcap, 1_700_000_000)
	e.pcap = le.AppendUint32(e.pcap, e.time)
	e.pcap = le.AppendUint32(e.pcap, uint32(len(frame)))
	e.pcap = le.AppendUint32(e.pcap, uint32(len(frame)))
	e.pcap = append(e.pcap, frame...)

	e.seq[from] += uint32(len(payload))
	e.sent[from] += len(payload)
	if flags&(tcpSYN|tcpFIN) != 0 {
		e.seq[from]++
	}
}

// internetSum is the checksum of IP and TCP (RFC 1071).
func internetSum(b []byte) uint16 {
	var sum uint32
	for i, v := range b {
		if i%2 == 0 {
			sum += uint32(v) << 8
		} else {
			sum += uint32(v)
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Close waits until both sides have closed the connection.
func (e *Tee) Close() {
	e.wg.Wait()
	_ = e.l.Close()
}

// Sent is how many bytes a side has sent. Call it after Close.
func (e *Tee) Sent(side int) int { return e.sent[side] }
