package agent

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// valid has one frame of each kind.
func valid() []byte {
	var b []byte
	b = appendFrame(b, kindStart, 1, []byte(`{"Args":["true"]}`)...)
	b = appendFrame(b, kindStarted, 1, 0, 0, 0, 9)
	b = appendFrame(b, kindFailed, 2, 'n', 'o')
	b = appendFrame(b, kindData, 1, stdout, 'h', 'i')
	b = appendFrame(b, kindEOF, 1, stdin)
	b = appendFrame(b, kindCredit, 1, stderr, 0, 0, 1, 0)
	b = appendFrame(b, kindSignal, 1, 15, 1)
	b = appendFrame(b, kindResize, 1, 0, 24, 0, 80)
	return appendFrame(b, kindExit, 1, 0, 0, 0, 3, 0)
}

func TestFrames(t *testing.T) {
	r := bytes.NewReader(valid())
	for k := kindStart; k < kindEnd; k++ {
		if _, err := readFrame(r); err != nil {
			t.Fatalf("frame %d: %v", k, err)
		}
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for name, b := range map[string][]byte{
		"too long":       {0xff, 0xff, 0xff, 0xff, byte(kindData), 0, 0, 0, 1},
		"one too long":   {0, 4, 0, 1, byte(kindData), 0, 0, 0, 1},
		"kind 0":         appendFrame(nil, 0, 1),
		"unknown kind":   appendFrame(nil, kindEnd, 1),
		"empty data":     appendFrame(nil, kindData, 1, stdout),
		"stream 3":       appendFrame(nil, kindData, 1, 3, 'x'),
		"short credit":   appendFrame(nil, kindCredit, 1, stdout, 0, 0, 1),
		"long exit":      appendFrame(nil, kindExit, 1, 0, 0, 0, 0, 0, 0),
		"empty start":    appendFrame(nil, kindStart, 1),
		"empty signal":   appendFrame(nil, kindSignal, 1),
		"credit, no one": appendFrame(nil, kindCredit, 1, 9, 0, 0, 0, 1),
	} {
		if _, err := readFrame(bytes.NewReader(b)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := appendFrame(nil, kindData, 1, stdout, 'h', 'i')
	for n := 1; n < len(whole); n++ {
		if _, err := readFrame(bytes.NewReader(whole[:n])); err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of a frame: %v", n, err)
		}
	}
}

// FuzzFrame: whatever comes is read as frames that are written as they came, or
// refused; memory is bounded by what came.
func FuzzFrame(f *testing.F) {
	f.Add(valid())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, byte(kindData), 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for at := 0; ; {
			fr, err := readFrame(r)
			if err != nil {
				if !errors.Is(err, ErrProtocol) && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("error %v", err)
				}
				return
			}
			again := appendFrame(nil, fr.kind, fr.program, fr.body...)
			if !bytes.Equal(again, data[at:at+len(again)]) {
				t.Fatalf("frame at %d was %x and is written %x", at, data[at:at+len(again)], again)
			}
			at += len(again)
		}
	})
}
