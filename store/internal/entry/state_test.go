package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

func aState() *State {
	return &State{
		State: consensus.State{Applied: 90, Term: 7, Config: consensus.Config{
			Index:    40,
			Voters:   []consensus.Member{{ID: 1, Node: "n1"}, {ID: 4, Node: strings.Repeat("n", consensus.MaxNode)}},
			Learners: []consensus.Member{{ID: 5, Node: "n5"}},
		}},
		Turn:   Turn{Reign: 80, Next: 1234},
		Shards: []uint16{3, 700},
	}
}

// TestState: a state comes back as it was.
func TestState(t *testing.T) {
	for _, s := range []*State{{}, aState()} {
		got, err := ParseState(AppendState(nil, s))
		if err != nil || !reflect.DeepEqual(&got, s) {
			t.Errorf("%+v, %v, want %+v", got, err, s)
		}
	}
}

// TestHostileState: what is no state is refused.
func TestHostileState(t *testing.T) {
	le := binary.LittleEndian
	for _, tc := range []struct {
		name string
		do   func(b []byte) []byte
		want error
	}{
		{"nothing", func([]byte) []byte { return nil }, ErrMalformed},
		{"another format", func(b []byte) []byte { b[0] = 9; return b }, ErrNewer},
		{"flags", func(b []byte) []byte { b[1] = 1; return b }, ErrNewer},
		{"many voters", func(b []byte) []byte { le.PutUint16(b[2:], 1<<16-1); return b }, ErrMalformed},
		{"many learners", func(b []byte) []byte { le.PutUint16(b[4:], 1<<16-1); return b }, ErrMalformed},
		{"many shards", func(b []byte) []byte { le.PutUint16(b[6:], 1<<16-1); return b }, ErrMalformed},
		{"a shard more", func(b []byte) []byte { b[6]++; return b }, ErrMalformed},
		{"a shard less", func(b []byte) []byte { b[6]--; return b }, ErrMalformed},
		{"a shard twice", func(b []byte) []byte { copy(b[len(b)-2:], b[len(b)-4:]); return b }, ErrMalformed},
		{"a member more", func(b []byte) []byte { b[4]++; return b }, ErrMalformed},
		{"a member less", func(b []byte) []byte { b[4]--; return b }, ErrMalformed},
		{"the end is missing", func(b []byte) []byte { return b[:len(b)-1] }, ErrMalformed},
		{"a name beyond the end", func(b []byte) []byte { b[len(b)-7] = 200; return b }, ErrMalformed},
		{"more behind it", func(b []byte) []byte { return append(b, 0) }, ErrMalformed},
		{"a reign to come", func(b []byte) []byte { le.PutUint64(b[24:], 91); return b }, ErrMalformed},
		{"a number behind the last", func(b []byte) []byte { le.PutUint64(b[32:], 1<<44+1); return b }, ErrMalformed},
		{"a configuration to come", func(b []byte) []byte { le.PutUint64(b[40:], 91); return b }, ErrMalformed},
		{"entries of no term", func(b []byte) []byte { le.PutUint64(b[16:], 0); return b }, ErrMalformed},
		{"a replica twice", func(b []byte) []byte { le.PutUint64(b[stateHead+8+1+2:], 1); return b }, ErrMalformed},
	} {
		if s, err := ParseState(tc.do(AppendState(nil, aState()))); !errors.Is(err, tc.want) {
			t.Errorf("%s: %+v, %v", tc.name, s, err)
		}
	}
}

// FuzzState: any bytes are a state or an error, and a state has one encoding.
func FuzzState(f *testing.F) {
	f.Add(AppendState(nil, aState()))
	f.Add(AppendState(nil, &State{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		if again := AppendState(nil, &s); !bytes.Equal(again, b) {
			t.Fatalf("%x comes back as %x", b, again)
		}
	})
}
