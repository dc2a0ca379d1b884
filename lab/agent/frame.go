package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of the protocol. A peer that exceeds one loses its connection.
const (
	// MaxBody is the most bytes that one frame carries after its header.
	MaxBody = 256 << 10
	// Window is how many bytes of one stream may be under way.
	Window = 256 << 10
	// MaxPrograms is how many programs one connection may have at a time.
	MaxPrograms = 128

	headerLen = 9
	chunk     = 32 << 10 // the most that a Data frame carries when we send it
)

// ErrProtocol is in the chain of every error caused by bytes that are no frame,
// or by a frame that is not allowed where it came.
var ErrProtocol = errors.New("agent: protocol violated")

// A kind says what a frame is.
type kind uint8

const (
	kindStart   kind = 1 + iota // client: JSON of Cmd
	kindStarted                 // agent: 4 bytes, the process number in the guest
	kindFailed                  // agent: text; the program did not start
	kindData                    // both: 1 byte stream, then bytes
	kindEOF                     // both: 1 byte stream, nothing more will come
	kindCredit                  // both: 1 byte stream, 4 bytes, so many were taken
	kindSignal                  // client: 1 byte signal, 1 byte: 1 for the process group
	kindExit                    // agent: 4 bytes exit code, 1 byte signal that ended it or 0
	kindResize                  // client: 2 bytes rows, 2 bytes columns, of a terminal
	kindEnd                     // first value that is no kind
)

func (k kind) String() string {
	names := [...]string{"0", "start", "started", "failed", "data", "eof", "credit", "signal", "exit", "resize"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Streams of a program, as in its file descriptors.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// A frame is one message; body is the receiver's own.
type frame struct {
	kind    kind
	program uint32
	body    []byte
}

// appendFrame appends the bytes of a frame to b.
func appendFrame(b []byte, k kind, program uint32, body ...byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, program)
	return append(b, body...)
}

// readFrame reads one frame. The length is checked before memory is taken, and
// the body against what its kind must have, so that the code that handles a
// frame need not look at lengths again. io.EOF means that the stream ended
// between frames.
func readFrame(r io.Reader) (frame, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	f := frame{kind: kind(head[4]), program: binary.BigEndian.Uint32(head[5:])}
	if n > MaxBody {
		return frame{}, fmt.Errorf("%w: a frame of %d bytes, at most %d", ErrProtocol, n, MaxBody)
	}
	if err := checkLength(f.kind, int(n)); err != nil {
		return frame{}, err
	}
	f.body = make([]byte, n)
	if _, err := io.ReadFull(r, f.body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	if k := f.kind; (k == kindData || k == kindEOF || k == kindCredit) && f.body[0] > stderr {
		return frame{}, fmt.Errorf("%w: stream %d", ErrProtocol, f.body[0])
	}
	return f, nil
}

// checkLength says whether a kind may have a body of n bytes.
func checkLength(k kind, n int) error {
	ok := false
	switch k {
	case kindStart, kindFailed:
		ok = n > 0
	case kindStarted, kindResize:
		ok = n == 4
	case kindData:
		ok = n > 1
	case kindEOF:
		ok = n == 1
	case kindCredit, kindExit:
		ok = n == 5
	case kindSignal:
		ok = n == 2
	}
	if !ok {
		return fmt.Errorf("%w: %v of %d bytes", ErrProtocol, k, n)
	}
	return nil
}
