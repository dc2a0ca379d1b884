package document

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A stub is an engine that does what a test says.
type stub struct {
	mu       sync.Mutex
	calls    []string
	proposed [][]byte
	trimmed  uint64
	propose  error
	start    error
	stop     error
	create   error
	m        consensus.Machine
}

func (s *stub) note(call string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	return err
}

func (s *stub) Create(consensus.GroupID, consensus.ReplicaID, consensus.State) error {
	return s.note("create", s.create)
}

func (s *stub) Start(_ context.Context, _ consensus.GroupID, _ consensus.ReplicaID, m consensus.Machine) error {
	s.m = m
	return s.note("start", s.start)
}

func (s *stub) Propose(_ consensus.GroupID, _ uint64, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.propose == nil {
		s.proposed = append(s.proposed, data)
	}
	return s.propose
}

func (s *stub) Barrier(context.Context, consensus.GroupID) error { return nil }

func (s *stub) Trim(_ consensus.GroupID, upTo uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimmed = upTo
	return nil
}

func (s *stub) trim() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trimmed
}

func (s *stub) Status(consensus.GroupID) (consensus.Status, error) { return consensus.Status{}, nil }

func (s *stub) Stop(_ consensus.GroupID, forget bool) error {
	if forget {
		return s.note("forget", s.stop)
	}
	return s.note("stop", s.stop)
}

// one is what a group of one replica starts from.
var one = consensus.State{Applied: 1, Term: 1, Config: consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n1"}}}}

func configOf(e Engine, fsys vfs.FS) Config {
	return Config{Group: group, Replica: 1, Engine: e, FS: fsys, File: "DOC", Load: load}
}

// started returns a replica that runs on a stub.
func started(t testing.TB, fsys vfs.FS) (*Replica, *stub) {
	t.Helper()
	s := &stub{}
	r, err := Open(configOf(s, fsys))
	if err == nil {
		err = r.Create(one, tally{})
	}
	if err == nil {
		err = r.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func write(index, term uint64, data []byte) []consensus.Entry {
	return []consensus.Entry{{Index: index, Term: term, Kind: consensus.Write, Data: data}}
}

// TestApply: which entries change the document, and which end the replica.
func TestApply(t *testing.T) {
	named := func(term uint64, text string) []byte { return appendEntry(nil, newName(), term, []byte(text)) }
	flags := named(2, "add a")
	flags[5] = 1
	newer := named(2, "add a")
	newer[0] = 2
	bigger := one.Config
	bigger.Index, bigger.Learners = 2, []consensus.Member{{ID: 2, Node: "n2"}}
	for _, tc := range []struct {
		what    string
		entry   consensus.Entry
		count   int // of a
		changed int
		err     error
	}{
		{"an addition", write(2, 2, named(2, "add a"))[0], 1, 1, nil},
		{"what the content refuses", write(2, 2, named(2, "nonsense"))[0], 0, 0, nil},
		{"nothing", write(2, 2, named(2, ""))[0], 0, 0, nil},
		{"more than there may be", write(2, 2, named(2, "grow 1048577"))[0], 0, 0, nil},
		{"an entry of another term", write(2, 2, named(1, "add a"))[0], 0, 0, nil},
		{"an entry without a head", write(2, 2, []byte{1, 0, 0})[0], 0, 0, nil},
		{"an empty entry", consensus.Entry{Index: 2, Term: 2, Kind: consensus.Empty}, 0, 0, nil},
		{"a change", consensus.Entry{Index: 2, Term: 2, Kind: consensus.Change, Config: &bigger}, 0, 0, nil},
		{"an entry that only a newer content knows", write(2, 2, named(2, "later"))[0], 0, 0, ErrContent},
		{"an entry of a newer format", write(2, 2, newer)[0], 0, 0, consensus.ErrEntry},
		{"an entry with flags", write(2, 2, flags)[0], 0, 0, consensus.ErrEntry},
		{"an entry behind a gap", write(3, 2, named(2, "add a"))[0], 0, 0, errAny},
		{"an entry that is there", write(1, 2, named(2, "add a"))[0], 0, 0, errAny},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s := &stub{}
			changed := 0
			c := configOf(s, vfs.NewMem())
			c.Changed = func(Content) { changed++ }
			r, err := Open(c)
			if err == nil {
				err = r.Create(one, tally{})
			}
			if err != nil {
				t.Fatal(err)
			}
			err = (&machine{r}).Apply([]consensus.Entry{tc.entry})
			if tc.err == errAny && err != nil {
				err = errAny
			}
			if !errors.Is(err, tc.err) || countOf(r.Content(), "a") != tc.count || changed != tc.changed {
				t.Errorf("%v, want %v; it has %s, and was changed %d times", err, tc.err, r.Content().Encode(), changed)
			}
			if state := r.State(); (state.Applied == 2) != (tc.err == nil) || tc.entry.Config != nil && !same(&state, &consensus.State{Applied: 2, Term: 2, Config: *tc.entry.Config}) {
				t.Errorf("it is at %+v", state)
			}
		})
	}
}

var errAny = errors.New("some error")

// TestDo: what a call is told of an entry that was proposed in term 2 as entry 2.
func TestDo(t *testing.T) {
	other := appendEntry(nil, name{1}, 2, []byte("add b"))
	empty := func(index, term uint64) []consensus.Entry {
		return []consensus.Entry{{Index: index, Term: term, Kind: consensus.Empty}}
	}
	for _, tc := range []struct {
		what    string
		entry   string
		happens func(r *Replica, m consensus.Machine, own []byte, cancel func()) error
		answer  string
		errs    []error
		lasts   time.Duration
	}{
		{"applied", "add a", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error { return m.Apply(write(2, 2, own)) }, "1", nil, 0},
		{"applied behind others", "add a", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error {
			return errors.Join(m.Apply(write(2, 2, other)), m.Apply(write(3, 2, own)))
		}, "1", nil, 0},
		{"refused by the content", "nonsense", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error { return m.Apply(write(2, 2, own)) }, "what is that", nil, 0},
		{"too much", "grow 2000000", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error { return m.Apply(write(2, 2, own)) }, "", []error{ErrFull}, 0},
		{"applied after it fell", "add a", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error {
			m.Follows(3, 2)
			time.Sleep(settles / 2)
			return m.Apply(write(2, 2, own))
		}, "1", nil, settles / 2},
		{"another leader's entry", "add a", func(_ *Replica, m consensus.Machine, _ []byte, _ func()) error {
			m.Follows(3, 2)
			return m.Apply(empty(2, 3))
		}, "", []error{consensus.ErrNotLeader}, 0},
		{"its own next reign", "add a", func(_ *Replica, m consensus.Machine, _ []byte, _ func()) error {
			m.Follows(3, 0)
			m.Leads(4)
			return m.Apply(empty(2, 4))
		}, "", []error{consensus.ErrNotLeader}, 0},
		{"fell, and no news", "add a", func(_ *Replica, m consensus.Machine, _ []byte, _ func()) error {
			m.Follows(3, 2)
			return nil
		}, "", []error{consensus.ErrUnknown}, settles},
		{"another's document", "add a", func(r *Replica, m consensus.Machine, _ []byte, _ func()) error {
			m.Follows(3, 2)
			return adoptAt(m, 9)
		}, "", []error{consensus.ErrUnknown}, 0},
		{"given up", "add a", func(_ *Replica, _ consensus.Machine, _ []byte, cancel func()) error {
			cancel()
			return nil
		}, "", []error{consensus.ErrUnknown, context.Canceled}, 0},
		{"stopped", "add a", func(r *Replica, _ consensus.Machine, _ []byte, _ func()) error { return r.Stop(false) }, "", []error{consensus.ErrUnknown}, 0},
		{"fenced", "later", func(_ *Replica, m consensus.Machine, own []byte, _ func()) error {
			if err := m.Apply(write(2, 2, own)); !errors.Is(err, ErrContent) {
				return errors.Join(errAny, err)
			}
			return nil
		}, "", []error{consensus.ErrUnknown, ErrContent}, 0},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := started(t, vfs.NewMem())
				defer r.Stop(false)
				s.m.Leads(2)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				type result struct {
					answer []byte
					err    error
				}
				done := make(chan result, 1)
				go func() {
					answer, err := r.Do(ctx, []byte(tc.entry))
					done <- result{answer, err}
				}()
				synctest.Wait()
				if len(s.proposed) != 1 {
					t.Fatalf("%d entries were proposed", len(s.proposed))
				}
				if err := tc.happens(r, s.m, s.proposed[0], cancel); err != nil {
					t.Fatal(err)
				}
				got := <-done
				if string(got.answer) != tc.answer || (got.err == nil) != (tc.errs == nil) {
					t.Errorf("%q, %v", got.answer, got.err)
				}
				for _, want := range tc.errs {
					if !errors.Is(got.err, want) {
						t.Errorf("%v, want %v", got.err, want)
					}
				}
				if took := time.Since(began); took != tc.lasts {
					t.Errorf("it took %v, want %v", took, tc.lasts)
				}
				if n := r.waiting.len(); n != 0 {
					t.Errorf("%d wait still", n)
				}
			})
		})
	}
}

// adoptAt has a machine get another's document, of entry index.
func adoptAt(m consensus.Machine, index uint64) error {
	state := consensus.State{Applied: index, Term: 3, Config: one.Config}
	b := appendFile(nil, &file{group, 2, state, tally{Counts: map[string]int{"theirs": 1}}.Encode()})
	got, err := m.Receive(context.Background(), state, bytes.NewReader(b))
	if err != nil {
		return err
	}
	return m.Adopt(got)
}

// TestNotProposed: what is refused before anything is queued.
func TestNotProposed(t *testing.T) {
	r, s := started(t, vfs.NewMem())
	defer r.Stop(false)
	ask := func(what string, ctx context.Context, size int, want error) {
		t.Helper()
		if _, err := r.Do(ctx, make([]byte, size)); !errors.Is(err, want) || errors.Is(err, consensus.ErrUnknown) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if len(s.proposed) != 0 || r.waiting.len() > mostWaiting {
			t.Errorf("%s: %d proposed, %d wait", what, len(s.proposed), r.waiting.len())
		}
	}
	ask("it does not lead", t.Context(), 1, consensus.ErrNotLeader)
	s.m.Leads(2)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ask("given up before", over, 1, context.Canceled)
	ask("too large", t.Context(), MaxEntry+1, consensus.ErrTooLarge)
	for _, err := range []error{consensus.ErrNotLeader, consensus.ErrBusy, consensus.ErrTooLarge, consensus.ErrFenced} {
		s.propose = err
		ask("the engine refuses", t.Context(), 1, err)
	}
	s.propose = nil
	var calls []*waiter
	for range mostWaiting {
		w, err := r.waiting.enter()
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, w)
	}
	ask("too many wait", t.Context(), 1, consensus.ErrBusy)
	for _, w := range calls {
		r.waiting.leave(w)
	}
	if err := s.m.Apply([]consensus.Entry{{Index: 2, Term: 3, Kind: consensus.Empty}}); err != nil {
		t.Fatal(err)
	}
	ask("another has led since", t.Context(), 1, consensus.ErrNotLeader)
	s.m.Leads(4)
	s.m.Follows(5, 0)
	ask("it leads no more", t.Context(), 1, consensus.ErrNotLeader)
}

// TestReceive: what is no snapshot of this group is refused, the next one is received, and nothing is changed by either until it is adopted.
func TestReceive(t *testing.T) {
	r, s := started(t, vfs.NewMem())
	defer r.Stop(false)
	state := consensus.State{Applied: 9, Term: 3, Config: one.Config}
	content := tally{Counts: map[string]int{"theirs": 1}}.Encode()
	good := appendFile(nil, &file{group, 2, state, content})
	later := state
	later.Applied++
	member := state
	member.Config.Voters = []consensus.Member{{ID: 1, Node: "elsewhere"}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		what string
		ctx  context.Context
		head consensus.State
		from io.Reader
		want error
	}{
		{"cut off", t.Context(), state, bytes.NewReader(good[:len(good)-1]), ErrDamaged},
		{"nothing", t.Context(), state, strings.NewReader(""), ErrDamaged},
		{"without end", t.Context(), state, io.MultiReader(bytes.NewReader(good), zeros{}), ErrDamaged},
		{"a reader that fails", t.Context(), state, io.MultiReader(bytes.NewReader(good), failing{}), errAny},
		{"of another entry", t.Context(), later, bytes.NewReader(good), ErrDamaged},
		{"of another configuration", t.Context(), member, bytes.NewReader(good), ErrDamaged},
		{"of another group", t.Context(), state, bytes.NewReader(appendFile(nil, &file{group + 1, 2, state, content})), ErrOther},
		{"with nothing", t.Context(), consensus.State{}, bytes.NewReader(appendFile(nil, &file{group: group, replica: 2})), ErrDamaged},
		{"a content that is none", t.Context(), state, bytes.NewReader(appendFile(nil, &file{group, 2, state, []byte("{")})), ErrContent},
		{"of a newer format", t.Context(), state, bytes.NewReader(newerFile(good)), ErrNewer},
		{"given up", over, state, bytes.NewReader(good), context.Canceled},
	} {
		if got, err := s.m.Receive(tc.ctx, tc.head, tc.from); !errors.Is(err, tc.want) || got != nil {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
	}
	got, err := s.m.Receive(t.Context(), state, bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.m.Receive(t.Context(), state, bytes.NewReader(good)); !errors.Is(err, consensus.ErrBusy) {
		t.Errorf("two at a time: %v", err)
	}
	if r.State().Applied != 1 || countOf(r.Content(), "theirs") != 0 {
		t.Error("it is in force before it is adopted")
	}
	if err := got.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.m.Adopt(got); err == nil {
		t.Error("one that was dropped is adopted")
	}
	if err := adoptAt(s.m, 9); err != nil {
		t.Fatal(err)
	}
	if st := r.State(); !same(&st, &state) || countOf(r.Content(), "theirs") != 1 {
		t.Errorf("adopted: %+v, %s", st, r.Content().Encode())
	}
	if err := adoptAt(s.m, 9); err == nil {
		t.Error("one that is not newer is adopted")
	}
	snap, err := s.m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(snap)
	if st := snap.State(); err != nil || !same(&st, &state) || !slices.Equal(b, appendFile(nil, &file{group, 1, state, content})) {
		t.Errorf("its own snapshot: %+v, %d bytes, %v", st, len(b), err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errAny }
