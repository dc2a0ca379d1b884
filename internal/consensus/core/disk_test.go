package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// openLog opens the log on a disk, and starts it.
func openLog(t testing.TB, d *logtest.Disk) *log.Log {
	t.Helper()
	l, err := log.Open(log.Config{Dir: d, Create: true, SegmentSize: 1 << 20})
	if err == nil {
		err = l.Replay(func(*log.Record) error { return nil })
	}
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var one = consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "a"}}}

// TestDiskIsTheLibrarysStorage does the same to a Disk and to the library's own storage in
// memory, and compares all that they tell, with entries in memory and without, and over
// starts.
func TestDiskIsTheLibrarysStorage(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		platter := logtest.New(logtest.Options{})
		l := openLog(t, platter)
		state := consensus.State{Applied: 1, Term: 1, Config: one}
		if err := Create(l, 1, 1, state); err != nil {
			t.Fatal(err)
		}
		keep := int64([]int{0, 40, 1 << 20}[seed%3])
		d := NewDisk(l, 1, state, keep)
		ref := raft.NewMemoryStorage()
		if err := ref.ApplySnapshot(metadata(&state)); err != nil {
			t.Fatal(err)
		}
		term := uint64(1)
		for step := range 60 {
			first, _ := ref.FirstIndex()
			last, _ := ref.LastIndex()
			a := &Append{}
			switch n := rng.IntN(10); {
			case n < 7: // entries, sometimes in the place of others
				at := last + 1 - uint64(rng.IntN(int(min(4, last+2-first))))
				if at <= last {
					term++
				}
				for range 1 + rng.IntN(4) {
					e := &pb.Entry{Index: proto.Uint64(at), Term: proto.Uint64(term), Type: pb.EntryNormal.Enum()}
					if rng.IntN(4) > 0 {
						e.Data = []byte(fmt.Sprintf("entry %d of step %d", at, step))
					}
					a.Entries = append(a.Entries, e)
					at++
				}
				a.HasState, a.State = true, log.State{Term: term, Commit: first - 1}
				if err := ref.Append(a.Entries); err != nil {
					t.Fatal(err)
				}
			case n == 7 && last > first:
				a.Trim = first + uint64(rng.IntN(int(last-first)))
				if err := ref.Compact(a.Trim); err != nil {
					t.Fatal(err)
				}
			case n == 8: // a snapshot
				term++
				state = consensus.State{Applied: last + uint64(rng.IntN(5)) + 1, Term: term, Config: one}
				a.Snapshot = metadata(&state)
				a.HasState, a.State = true, log.State{Term: term, Commit: state.Applied}
				if err := ref.ApplySnapshot(metadata(&state)); err != nil {
					t.Fatal(err)
				}
				d.Published(state.Applied, state.Term, &state.Config)
			default: // a start
				l.Close(false)
				platter = platter.Crash(0)
				l = openLog(t, platter)
				d = NewDisk(l, 1, state, keep)
				continue
			}
			d.Taken(a)
			for _, p := range a.Parts([]int64{1 << 20, 700}[rng.IntN(2)]) {
				f := l.Begin()
				if err := d.Add(f, p); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if err := WriteAll(f); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			same(t, fmt.Sprintf("seed %d, step %d", seed, step), d, ref)
		}
		l.Close(false)
	}
}

// same compares all that two storages tell.
func same(t *testing.T, where string, d *Disk, ref *raft.MemoryStorage) {
	t.Helper()
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	wantFirst, _ := ref.FirstIndex()
	wantLast, _ := ref.LastIndex()
	if first != wantFirst || last != wantLast {
		t.Fatalf("%s: entries from %d to %d, expected %d to %d", where, first, last, wantFirst, wantLast)
	}
	for i := uint64(0); i <= last+1; i++ {
		term, err := d.Term(i)
		want, wantErr := ref.Term(i)
		if term != want || !errors.Is(err, wantErr) {
			t.Fatalf("%s: the term of entry %d is %d (%v), expected %d (%v)", where, i, term, err, want, wantErr)
		}
	}
	for lo := first; lo <= last; lo++ {
		for _, most := range []uint64{0, 30, 1 << 20} {
			got, err := d.Entries(lo, last+1, most)
			if err != nil || len(got) == 0 {
				t.Fatalf("%s: entries from %d: %d, %v", where, lo, len(got), err)
			}
			want, err := ref.Entries(lo, lo+uint64(len(got)), 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			size := uint64(0)
			for i := range got {
				size += uint64(len(got[i].GetData()))
				if got[i].GetIndex() != want[i].GetIndex() || got[i].GetTerm() != want[i].GetTerm() || string(got[i].GetData()) != string(want[i].GetData()) {
					t.Fatalf("%s: entry %v, expected %v", where, got[i], want[i])
				}
			}
			if len(got) > 1 && size > most {
				t.Fatalf("%s: %d bytes of entries, %d were asked for", where, size, most)
			}
		}
	}
	if _, err := d.Entries(1, last+1, 99); first > 1 && !errors.Is(err, raft.ErrCompacted) {
		t.Fatalf("%s: entries that are trimmed: %v", where, err)
	}
}

// TestParts: an append that is too large for a frame is cut, and a power cut behind any part
// leaves a log that starts.
func TestParts(t *testing.T) {
	a := &Append{HasState: true, State: log.State{Term: 3, Commit: 9}}
	for i := range uint64(8) {
		a.Entries = append(a.Entries, &pb.Entry{Index: proto.Uint64(2 + i), Term: proto.Uint64(3), Type: pb.EntryNormal.Enum(), Data: make([]byte, 1000)})
	}
	parts := a.Parts(3500)
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	state := consensus.State{Applied: 1, Term: 1, Config: one}
	for cut := range parts {
		platter := logtest.New(logtest.Options{})
		l := openLog(t, platter)
		if err := Create(l, 1, 1, state); err != nil {
			t.Fatal(err)
		}
		d := NewDisk(l, 1, state, 0)
		for _, p := range parts[:cut+1] {
			if p.Bytes() > 3500 {
				t.Fatalf("a part of %d bytes", p.Bytes())
			}
			f := l.Begin()
			if err := d.Add(f, p); err != nil {
				t.Fatal(err)
			}
			if err := WriteAll(f); err != nil {
				t.Fatal(err)
			}
		}
		l.Close(false)
		l = openLog(t, platter.Crash(0))
		last := parts[cut].Entries[len(parts[cut].Entries)-1].GetIndex()
		r, err := New(Config{ID: 1, Storage: NewDisk(l, 1, state, 0), State: state})
		if err != nil || r.Last() != last || r.Term() != 3 {
			t.Fatalf("behind part %d: last %d, expected %d, term %d, %v", cut, r.Last(), last, r.Term(), err)
		}
		if s, _ := l.State(1); s.Commit > last || cut > 0 && s.Commit < min(9, last) {
			t.Fatalf("behind part %d: commit %d of %d", cut, s.Commit, last)
		}
		l.Close(false)
	}
}

// TestUnknownEntries: what this program does not know in the log is an error.
func TestUnknownEntries(t *testing.T) {
	l := openLog(t, logtest.New(logtest.Options{}))
	defer l.Close(false)
	state := consensus.State{Applied: 1, Term: 1, Config: one}
	if err := Create(l, 1, 1, state); err != nil {
		t.Fatal(err)
	}
	f := l.Begin()
	b, err := f.Add(&log.Record{Kind: log.Entry, Stream: 1, Index: 2, Term: 1}, 3)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, "\x09xy")
	if err := WriteAll(f); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDisk(l, 1, state, 0).Entries(2, 3, 99); err == nil {
		t.Fatal("an entry of kind 9 is taken")
	}
	if _, err := New(Config{ID: 1, Storage: NewDisk(l, 1, state, 0), State: state}); err == nil {
		t.Fatal("a replica starts on it")
	}
	if err := Reconcile(l, 2, 1, state); !errors.Is(err, consensus.ErrNoLog) {
		t.Fatalf("a stream that is not there: %v", err)
	}
	e := &pb.Entry{Index: proto.Uint64(2), Term: proto.Uint64(1), Type: pb.EntryConfChange.Enum()}
	f = l.Begin()
	defer f.Drop()
	if err := NewDisk(l, 1, state, 0).Add(f, &Append{Entries: []*pb.Entry{e}}); err == nil {
		t.Fatal("an entry of a kind that nobody proposes is written")
	}
}

// TestSmallEntries: however small entries are, a bounded number of them is handed out together,
// from memory and from the log.
func TestSmallEntries(t *testing.T) {
	for _, keep := range []int64{0, 1 << 30} {
		l := openLog(t, logtest.New(logtest.Options{}))
		state := consensus.State{Applied: 1, Term: 1, Config: one}
		if err := Create(l, 1, 1, state); err != nil {
			t.Fatal(err)
		}
		d := NewDisk(l, 1, state, keep)
		a := &Append{}
		for i := range uint64(2 * maxTogether) {
			a.Entries = append(a.Entries, &pb.Entry{Index: proto.Uint64(2 + i), Term: proto.Uint64(1)})
		}
		d.Taken(a)
		for _, p := range a.Parts(100 << 10) {
			f := l.Begin()
			if err := d.Add(f, p); err != nil {
				t.Fatal(err)
			}
			if err := WriteAll(f); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.Entries(2, 2+2*maxTogether, 1<<20); err != nil || len(got) != maxTogether {
			t.Errorf("%d bytes in memory: %d entries together, %v", keep, len(got), err)
		}
		l.Close(false)
	}
}

// TestCreateAgain: a log that was made and not used may be made again, after a start, too; one that has a promise or an entry in it,
// or is another replica's, or begins elsewhere, may not.
func TestCreateAgain(t *testing.T) {
	begin := consensus.State{Applied: 5, Term: 3, Config: one}
	for _, state := range []consensus.State{{}, begin} {
		platter := logtest.New(logtest.Options{})
		l := openLog(t, platter)
		for range 2 {
			for range 2 {
				if err := Create(l, 1, 7, state); err != nil {
					t.Fatalf("%+v: %v", state, err)
				}
			}
			if err := l.Close(false); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, platter)
		}
		other := state
		other.Applied, other.Term = state.Applied+1, state.Term+1
		if Create(l, 1, 8, state) == nil || Create(l, 1, 7, other) == nil {
			t.Error("another replica's log is taken for that of this one, or it begins elsewhere")
		}
		use := []func(f *log.Frame) error{
			func(f *log.Frame) error {
				return f.AddState(1, log.State{Term: max(state.Term, 1), Vote: 2, Commit: state.Applied})
			},
			func(f *log.Frame) error {
				return f.AddState(1, log.State{Term: max(state.Term, 1) + 1, Commit: state.Applied})
			},
		}
		for i, add := range use {
			f := l.Begin()
			if err := errors.Join(add(f), WriteAll(f)); err != nil {
				t.Fatal(err)
			}
			if Create(l, 1, 7, state) == nil {
				t.Errorf("a log that has promised something (%d) is made again", i)
			}
		}
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
	}
}
