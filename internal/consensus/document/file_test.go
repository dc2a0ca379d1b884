package document

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wholefile"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// summed gives bytes the checksum that fits them.
func summed(b []byte) []byte {
	b = slices.Clone(b)
	end := len(b) - sumLen
	binary.LittleEndian.PutUint64(b[end:], xxhash.Sum64(b[:end]))
	return b
}

func with(b []byte, at int, v byte) []byte {
	b = slices.Clone(b)
	b[at] = v
	return summed(b)
}

func newerFile(b []byte) []byte { return with(b, 7, fileFormat+1) }

var sample = file{group: 3, replica: 9, content: []byte("content"), state: consensus.State{Applied: 300, Term: 5, Config: consensus.Config{
	Index: 200, Voters: []consensus.Member{{ID: 1, Node: "a"}, {ID: 9, Node: "bc"}}, Learners: []consensus.Member{{ID: 10, Node: "d"}},
}}}

// TestGolden: the bytes of a file are those that earlier versions have written.
func TestGolden(t *testing.T) {
	const want = "726b7620646f6301" + "03000000" + "00000000" + "0900000000000000" + "2c01000000000000" + "0500000000000000" + "c800000000000000" +
		"0200" + "0100" + "07000000" + "0100000000000000" + "0161" + "0900000000000000" + "026263" + "0a00000000000000" + "0164" + "636f6e74656e74"
	b := appendFile(nil, &sample)
	if got := hex.EncodeToString(b[:len(b)-sumLen]); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	f, err := parseFile(b)
	if err != nil || f.group != 3 || f.replica != 9 || !same(&f.state, &sample.state) || string(f.content) != "content" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestDamaged: a file that is not as it was written is refused, whichever byte of it, and one of another program or replica, with the error that says so.
func TestDamaged(t *testing.T) {
	state := one
	state.Applied, state.Config.Learners = 7, []consensus.Member{{ID: 2, Node: "n2"}}
	good := appendFile(nil, &file{group, 1, state, tally{Counts: map[string]int{"a": 1}}.Encode()})
	open := func(b []byte) (*Replica, error) {
		fsys := vfs.NewMem()
		if err := wholefile.Replace(fsys, "", "DOC", b); err != nil {
			t.Fatal(err)
		}
		return Open(configOf(&stub{}, fsys))
	}
	if r, err := open(good); err != nil || countOf(r.Content(), "a") != 1 {
		t.Fatal(err)
	}
	bare := appendFile(nil, &file{group: group, replica: 1})
	if r, err := open(bare); err != nil || r.Content() != nil {
		t.Fatal(err)
	}
	for i := range good {
		b := slices.Clone(good)
		b[i] ^= 0x20
		if _, err := open(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := open(good[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	lines := []struct {
		what string
		b    []byte
		want error
	}{
		{"a byte more", append(slices.Clone(good), 0), ErrDamaged},
		{"too large", make([]byte, maxFile+2), ErrDamaged},
		{"newer", newerFile(good), ErrNewer},
		{"older than the first", with(good, 7, 0), ErrDamaged},
		{"another group", with(good, offGroup, 1), ErrOther},
		{"another replica", with(good, offReplica, 2), ErrOther},
		{"no replica", with(good, offReplica, 0), ErrDamaged},
		{"something where zeros should be", with(good, offZero, 1), ErrDamaged},
		{"no term", with(good, offOfTerm, 0), ErrDamaged},
		{"a configuration of the future", with(good, offConfig, 8), ErrDamaged},
		{"at entry 0 with members", with(with(with(good, offApplied, 0), offOfTerm, 0), offConfig, 0), ErrDamaged},
		{"at entry 0 with a term", with(bare, offOfTerm, 1), ErrDamaged},
		{"no voters", with(with(good, offVoters, 0), offLearners, 2), ErrDamaged},
		{"more voters than members", with(good, offVoters, 3), ErrDamaged},
		{"too many voters", with(good, offVoters, consensus.MaxMembers+1), ErrDamaged},
		{"replica 0 is a voter", with(good, fileHead, 0), ErrDamaged},
		{"a name that is longer than the file", with(good, fileHead+memberHead-1, 255), ErrDamaged},
		{"a content that is longer", with(good, offSize, good[offSize]+1), ErrDamaged},
		{"a content of gigabytes", with(good, offSize+3, 0xff), ErrDamaged},
		{"a content that is none", with(good, len(good)-sumLen-1, '{'), ErrContent},
	}
	for _, tc := range lines {
		if _, err := open(tc.b); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "DOC") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
	}
}

// FuzzFile: any bytes with a checksum that fits are an error, or what appendFile would write; a machine that is sent them as a snapshot takes
// them or not, and shows what it had.
func FuzzFile(f *testing.F) {
	f.Add(appendFile(nil, &sample))
	f.Add(appendFile(nil, &file{group: group, replica: 1}))
	f.Add(appendFile(nil, &file{group, 2, consensus.State{Applied: 9, Term: 3, Config: one.Config}, tally{Counts: map[string]int{"a": 2}}.Encode()}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < sumLen {
			b = make([]byte, sumLen)
		}
		b = summed(b)
		got, err := parseFile(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
		} else if again := appendFile(nil, &got); !bytes.Equal(again, b) {
			t.Fatalf("%x is parsed, and written as %x", b, again)
		}
		r, err := Open(configOf(&stub{}, vfs.NewMem()))
		if err == nil {
			err = r.Create(one, tally{})
		}
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{r}
		s, err := m.Receive(t.Context(), got.state, bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) && !errors.Is(err, ErrOther) && !errors.Is(err, ErrContent) {
				t.Fatal(err)
			}
			return
		}
		if state := s.State(); r.State().Applied != 1 || !same(&state, &got.state) {
			t.Fatalf("it is at %+v, of %+v", state, got.state)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzEntry: any bytes are an entry, a void one or an error, and an entry is what was proposed.
func FuzzEntry(f *testing.F) {
	f.Add(appendEntry(nil, name{1, 2, 3}, 4, []byte("add a")), uint64(4))
	f.Add([]byte{entryFormat}, uint64(1))
	f.Add([]byte{2}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, term uint64) {
		n, data, void, err := parseEntry(b, term)
		switch {
		case err != nil:
			if !errors.Is(err, consensus.ErrEntry) {
				t.Fatal(err)
			}
		case !void && !bytes.Equal(appendEntry(nil, n, term, data), b):
			t.Fatalf("%x is parsed as %x of %x in term %d", b, data, n, term)
		}
	})
}

// TestPowerCut: whenever the power goes while a replica is made, writes its file, adopts a snapshot, and is forgotten, the file is there in its old form or
// in its new one, and Create makes a log for none that had one.
func TestPowerCut(t *testing.T) {
	disk := crashfs.New()
	if err := errors.Join(disk.MkdirAll("data", 0o700), syncRoot(disk)); err != nil {
		t.Fatal(err)
	}
	var clones []*crashfs.Disk
	rng := rand.New(rand.NewPCG(1, 2))
	hooked := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
		for _, percent := range []int{0, 50, 100} {
			clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		}
		return nil
	}))
	s := &stub{}
	c := configOf(s, hooked)
	c.Dir = "data"
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{r}
	step := func(what string, do func() error, forms ...uint64) { // the file's Applied, before and after; absent: it is not there
		t.Helper()
		clones = nil
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{RNG: rng})) // behind it
		for i, clone := range clones {
			c.FS, s = clone, &stub{}
			c.Engine = s
			again, err := Open(c)
			if err != nil {
				t.Errorf("%s, cut %d: %v", what, i, err)
				continue
			}
			at := absent
			if again.life.created {
				at = again.durable.Load().Applied
			}
			if !slices.Contains(forms, at) || i == len(clones)-1 && at != forms[len(forms)-1] {
				t.Errorf("%s, cut %d of %d: the file is at %d, want one of %d", what, i, len(clones)-1, at, forms)
			}
			if err := again.Create(one, tally{}); err != nil || (len(s.calls) > 0) != (at == absent) || again.durable.Load().Applied < 1 {
				t.Errorf("%s, cut %d: created again: %v, with %q, at %d", what, i, err, s.calls, again.durable.Load().Applied)
			}
		}
		if len(clones) < 10 {
			t.Errorf("%s: the power was cut %d times", what, len(clones))
		}
	}
	step("create", func() error { return r.Create(one, tally{}) }, absent, 1)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("save", func() error {
		return errors.Join(m.Apply([]consensus.Entry{{Index: 2, Term: 2, Kind: consensus.Empty}}), r.save())
	}, 1, 2)
	step("adopt", func() error { return adoptAt(m, 9) }, 2, 9)
	step("forget", func() error { return r.Stop(true) }, 9, absent)
}

const absent = ^uint64(0)

// TestOrder: Create makes the log before the file, and Stop drops it before the file; what fails is done by the next call.
func TestOrder(t *testing.T) {
	fsys := vfs.NewMem()
	s := &stub{create: errAny}
	there := func() bool {
		_, err := fsys.Stat("DOC")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	r, err := Open(configOf(s, fsys))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(one, tally{}); !errors.Is(err, errAny) || there() {
		t.Errorf("no log can be made: %v, and the file is there: %v", err, there())
	}
	if err := r.Start(t.Context()); !errors.Is(err, ErrNoFile) {
		t.Errorf("no file: %v", err)
	}
	s.create = nil
	if err := errors.Join(r.Create(one, tally{}), r.Start(t.Context())); err != nil || !there() {
		t.Fatal(err)
	}
	s.stop = errAny
	if err := r.Stop(true); !errors.Is(err, errAny) || !there() {
		t.Errorf("the log cannot be dropped: %v, and the file is there: %v", err, there())
	}
	// The next process: its engine has no log, or it has.
	for _, noLog := range []bool{false, true} {
		s = &stub{}
		if noLog {
			s.start = consensus.ErrNoLog
		}
		if r, err = Open(configOf(s, fsys)); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(true); err == nil || !there() || len(s.calls) > 0 {
			t.Errorf("forgotten before it was known that there is no log: %v, %q", err, s.calls)
		}
		if r, err = Open(configOf(s, fsys)); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); !errors.Is(err, s.start) || noLog && !strings.Contains(err.Error(), "forget") {
			t.Errorf("start: %v", err)
		}
		if !noLog {
			if err := errors.Join(r.Stop(false), r.Stop(false)); err != nil || !there() {
				t.Errorf("stop: %v", err)
			}
			continue
		}
		if err := errors.Join(r.Stop(true), r.Stop(true)); err != nil || there() || slices.Contains(s.calls, "forget") {
			t.Errorf("forget: %v, %q, and the file is there: %v", err, s.calls, there())
		}
	}
}

// TestSave: entries that come together share a write, the log is trimmed up to what the file has, and a disk that fails is tried again.
func TestSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		var writes atomic.Int64
		var broken atomic.Bool
		hooked := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate {
				writes.Add(1)
				if broken.Load() {
					return fs.ErrPermission
				}
			}
			return nil
		}))
		r, s := started(t, hooked)
		began := writes.Load()
		index := uint64(1)
		apply := func() {
			t.Helper()
			index++
			if err := s.m.Apply(write(index, 2, appendEntry(nil, newName(), 2, []byte("add a")))); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			apply()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := writes.Load() - began; n < 5 || n > 11 || s.trim() != index || r.durable.Load().Applied != index {
			t.Errorf("100 entries within a second: %d writes, trimmed up to %d, the file has %d of %d", n, s.trim(), r.durable.Load().Applied, index)
		}
		broken.Store(true)
		apply()
		time.Sleep(time.Minute)
		synctest.Wait()
		n := writes.Load()
		if st, err := r.Status(); err != nil || !errors.Is(st.Failed, fs.ErrPermission) || st.Saved != index-1 || s.trim() != index-1 || r.State().Applied != index {
			t.Errorf("a disk that fails: %+v, %v; trimmed up to %d of %d", st, err, s.trim(), index)
		}
		if n > began+11+20 {
			t.Errorf("it was tried %d times in a minute", n-began)
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st, err := r.Status(); err != nil || st.Failed != nil || st.Saved != index || s.trim() != index {
			t.Errorf("a disk that has recovered: %+v, %v; trimmed up to %d of %d", st, err, s.trim(), index)
		}
		apply()
		if err := r.Stop(false); err != nil {
			t.Fatal(err)
		}
		if again, err := Open(configOf(s, disk)); err != nil || again.State().Applied != index || countOf(again.Content(), "a") != int(index-1) {
			t.Errorf("after a stop the file has %+v, %v", again.State(), err)
		}
	})
}
