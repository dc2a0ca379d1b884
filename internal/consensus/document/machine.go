package document

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// A machine is what the engine drives of a replica; see consensus.Machine.
type machine struct{ r *Replica }

var _ consensus.Machine = (*machine)(nil)

// State returns what the file has. When the engine asks, nothing newer is published.
func (m *machine) State() (consensus.State, error) { return *m.r.durable.Load(), nil }

// Durable has nothing to raise: see the package's text.
func (m *machine) Durable(uint64) {}

// Leads begins a reign: Do takes entries in it.
func (m *machine) Leads(term uint64) {
	m.r.waiting.leads(term)
	m.r.c.Led(true, term)
}

// Follows ends it.
func (m *machine) Follows(term uint64, _ consensus.ReplicaID) {
	m.r.waiting.follows()
	m.r.c.Led(false, term)
}

// Apply publishes entries one by one. Its errors fence the replica: an entry of a newer program, or one that is not the next.
func (m *machine) Apply(entries []consensus.Entry) error {
	for i := range entries {
		if err := m.r.apply(&entries[i]); err != nil {
			err = fmt.Errorf("document: entry %d: %w", entries[i].Index, err)
			m.r.waiting.lost(entries[i].Term, err)
			return err
		}
	}
	return nil
}

// apply publishes one entry, and answers whoever waits for it.
func (r *Replica) apply(e *consensus.Entry) error {
	old := r.now.Load() // nobody else replaces it meanwhile: Adopt is not called beside Apply
	if e.Index != old.state.Applied+1 || old.content == nil {
		return fmt.Errorf("it does not follow entry %d", old.state.Applied)
	}
	next := *old
	next.state.Applied, next.state.Term = e.Index, e.Term
	var n name
	var o outcome
	changed := false
	switch e.Kind {
	case consensus.Change:
		next.state.Config = *e.Config
	case consensus.Write:
		var data []byte
		var void bool
		var err error
		if n, data, void, err = parseEntry(e.Data, e.Term); err != nil {
			return err
		}
		if void {
			n = name{} // nobody is told that it was applied
			r.c.Logger.Error("an entry is void that no replica of ours proposes, nothing is changed: keep the log and report it", "index", e.Index, "bytes", len(e.Data))
			break
		}
		if o, err = next.apply(bytes.Clone(data)); err != nil {
			return err
		}
		changed = !bytes.Equal(old.bytes, next.bytes)
	}
	r.now.Store(&next)
	r.poke()
	if changed {
		r.c.Changed(next.content)
	}
	r.waiting.applied(e.Term, n, o)
	return nil
}

// apply has the content take an entry. ErrContent: it is one of a newer program.
func (v *version) apply(entry []byte) (outcome, error) {
	next, answer := v.content.Apply(entry)
	if next == nil {
		return outcome{}, fmt.Errorf("%w: %.200s", ErrContent, answer)
	}
	b := next.Encode()
	if len(b) > MaxContent {
		return outcome{err: fmt.Errorf("%w: %d bytes, at most %d", ErrFull, len(b), MaxContent)}, nil
	}
	v.content, v.bytes = next, b
	return outcome{answer: answer}, nil
}

// A snapshot is a version on its way to another replica.
type snapshot struct {
	*bytes.Reader
	state consensus.State
}

func (s *snapshot) State() consensus.State { return s.state }
func (s *snapshot) Close() error           { return nil }

// Snapshot is what is published (R8), as a file.
func (m *machine) Snapshot(context.Context) (consensus.Snapshot, error) {
	v := m.r.now.Load()
	if v.content == nil {
		return nil, errors.New("document: a snapshot of a replica that has nothing yet")
	}
	return &snapshot{bytes.NewReader(m.r.file(v)), v.state}, nil
}

// A received snapshot stands in NAME.received, durably, so that nothing but a rename is left to Adopt: a disk without room refuses
// the snapshot, and does not fence the replica.
type received struct {
	r       *Replica
	version *version
	mu      sync.Mutex
	over    bool // it is adopted, or dropped
}

func (s *received) State() consensus.State { return s.version.state }

// Close implements consensus.Received.
func (s *received) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	s.over = true
	err := s.r.c.FS.Remove(s.r.c.FS.PathJoin(s.r.c.Dir, s.r.c.File+receivedSuffix))
	s.r.receiving.Store(false)
	return err
}

// Receive checks every byte of what another replica has sent, and reads no more than a document can have.
//
// Errors: ErrDamaged, ErrNewer, ErrOther, ErrContent; consensus.ErrBusy: another snapshot is not over; those of ctx, of the reader, of the file system.
func (m *machine) Receive(ctx context.Context, head consensus.State, from io.Reader) (_ consensus.Received, err error) {
	r := m.r
	if !r.receiving.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("%w: a snapshot of the document is on its way", consensus.ErrBusy)
	}
	defer func() {
		if err != nil {
			r.receiving.Store(false)
		}
	}()
	b, err := io.ReadAll(io.LimitReader(&until{ctx, from}, maxFile+1))
	if err != nil {
		return nil, err
	}
	f, err := parseFile(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("a snapshot: %w", err)
	case f.group != r.c.Group:
		return nil, fmt.Errorf("%w: a snapshot of group %d for group %d", ErrOther, f.group, r.c.Group)
	case f.state.Applied == 0 || !same(&f.state, &head):
		return nil, fmt.Errorf("%w: a snapshot of entry %d of term %d, which was said to be of entry %d of term %d", ErrDamaged, f.state.Applied, f.state.Term, head.Applied, head.Term)
	}
	v, err := r.load(&f)
	if err != nil {
		return nil, fmt.Errorf("a snapshot: %w", err)
	}
	if err := wholefile.Write(r.c.FS, r.c.FS.PathJoin(r.c.Dir, r.c.File+receivedSuffix), r.file(v)); err != nil {
		return nil, fmt.Errorf("document: a snapshot cannot be made durable: %w", err)
	}
	return &received{r: r, version: v}, nil
}

// Adopt makes what was received the document, durably: a crash leaves the old file or the new one.
func (m *machine) Adopt(got consensus.Received) error {
	s, ok := got.(*received)
	if !ok || s.r != m.r {
		return fmt.Errorf("document: a snapshot that was received elsewhere: %T", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errors.New("document: a snapshot that was dropped or adopted before")
	}
	if err := m.r.adopt(s.version); err != nil {
		return err
	}
	s.over = true
	m.r.receiving.Store(false)
	m.r.c.Changed(s.version.content)
	m.r.waiting.lost(s.version.state.Term, errors.New("another replica's document took the place of what was here"))
	return nil
}

// adopt renames NAME.received. The lock of the disk is held until the version is published, or the file might be
// replaced by the one before.
func (r *Replica) adopt(v *version) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	if at := r.now.Load().state.Applied; v.state.Applied <= at {
		return fmt.Errorf("document: a snapshot up to entry %d, and entry %d is applied", v.state.Applied, at)
	}
	if err := wholefile.Install(r.c.FS, r.c.Dir, r.c.File+receivedSuffix, r.c.File); err != nil {
		return fmt.Errorf("document: a snapshot cannot be made durable: %w", err)
	}
	r.durable.Store(&v.state)
	r.now.Store(v)
	return nil
}

// An until reads until ctx is over.
type until struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u *until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(b)
}
