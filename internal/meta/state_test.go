package meta

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// firstMap is the map of a cluster of so many nodes, a1, a2, …, with three replicas of three groups.
func firstMap(t testing.TB, nodes int) *cluster.Map {
	t.Helper()
	var list []cluster.MapNode
	want := cluster.Want{Replicas: 3, Groups: 3}
	for i := range nodes {
		list = append(list, cluster.MapNode{ID: fmt.Sprint("a", i+1)})
		want.Stores, want.Zones = append(want.Stores, [16]byte{byte(i + 1)}), append(want.Zones, fmt.Sprint("z", i%3))
	}
	m, err := cluster.ProposeReplicas([16]byte{1, 2, 3}, "demo", 6, list, want)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// redraw is what a change of the draft makes of a map.
func redraw(t testing.TB, m *cluster.Map, f func(d *cluster.Draft)) *cluster.Map {
	t.Helper()
	d := m.Draft()
	f(d)
	next, err := d.Map(m)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// sample is a state in which a replica of group 1 moves from a1 to a4, a task is over, and moves are paused.
func sample(t testing.TB) *State {
	s := Begin(firstMap(t, 4))
	n := s.Clone()
	n.Map = redraw(t, s.Map, func(d *cluster.Draft) {
		g := d.Group(1)
		for i := range g.Replicas {
			if g.Replicas[i].Node == from(s) {
				g.Replicas[i].Leaves = true
			}
		}
		g.Add(to(s))
	})
	n.Paused = true
	n.Tasks = []Task{
		{ID: 3, Kind: Add, Nodes: []string{"a4"}, State: Canceled, Began: 1000, Ended: 2000, Moves: []Move{{Group: 2, From: "a1", To: "a4", State: Dropped, Ended: 1500}}},
		{ID: 4, Kind: Rebalance, State: Runs, Began: 3000, Moves: []Move{
			{Group: 1, From: from(s), To: to(s), FromID: s.Map.Draft().Group(1).At(from(s)).ID, ToID: 4, State: Moves, Began: 3001},
			{Group: 2, From: "a1", To: "a4", State: Waits},
		}},
	}
	return n
}

// from is the node of the first replica of group 1, and to one that has none of it.
func from(s *State) string { return s.Map.Draft().Group(1).Replicas[0].Node }

func to(s *State) string {
	for _, n := range s.Map.Nodes {
		if s.Map.Draft().Group(1).At(n.ID) == nil {
			return n.ID
		}
	}
	return ""
}

// The bytes of states and entries as golden dumps: they are in the logs of nodes of other builds. A change of this file is a change of the format, and needs a new number.
// Rewrite it with
//
//	go test ./internal/meta -run TestFormat -args -rewrite
func TestFormat(t *testing.T) {
	datadriven.RunTest(t, "testdata/format", func(t *testing.T, d *datadriven.TestData) string {
		states := map[string]*State{"begin": Begin(firstMap(t, 3)), "moving": sample(t)}
		s := states[d.CmdArgs[0].Key]
		if s == nil {
			t.Fatalf("%s: no such sample", d.Pos)
		}
		switch d.Cmd {
		case "encode":
			b := s.Encode()
			return fmt.Sprintf("format %d\n%s\n", b[0], b[1:])
		case "entry":
			return hex.Dump(AppendEntry([]byte("before"), s)[:48])
		}
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
		return ""
	})
}

// TestParseIsExact: a state comes back as it was, and nothing near to its bytes is taken for one: a part of them, a byte more, another form of the same JSON.
func TestParseIsExact(t *testing.T) {
	s := sample(t)
	b := s.Encode()
	if back, err := Parse(b); err != nil || !reflect.DeepEqual(back, s) {
		t.Fatalf("%v\n%+v\n%+v", err, back, s)
	}
	for n := range b {
		if _, err := Parse(b[:n:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("its first %d bytes: %v", n, err)
		}
	}
	for i := range b {
		for _, x := range []byte{1, 0x20, 0x80} {
			other := bytes.Clone(b)
			other[i] ^= x
			if again, err := Parse(other); err == nil && !bytes.Equal(again.Encode(), other) {
				t.Fatalf("byte %d changed is another form of a state", i)
			}
		}
	}
	swap := func(old, new string) []byte {
		if !bytes.Contains(b, []byte(old)) {
			t.Fatalf("no %q in the sample", old)
		}
		return bytes.Replace(b, []byte(old), []byte(new), 1)
	}
	for name, other := range map[string][]byte{
		"a space":                swap(`"version":`, `"version": `),
		"a space at the end":     append(bytes.Clone(b), ' '),
		"another value behind":   append(bytes.Clone(b), "{}"...),
		"an unknown field":       swap(`"paused":true`, `"paused":true,"more":1`),
		"a field twice":          swap(`"paused":true`, `"paused":true,"paused":true`),
		"a name in capitals":     swap(`"paused"`, `"PAUSED"`),
		"a field that is empty":  swap(`"paused":true`, `"paused":false`),
		"a node as null":         swap(`"a4"`, `null`),
		"no moves":               swap(`"moves":[`, `"moves":null,"x":[`),
		"a number with a dot":    swap(`"id":3`, `"id":3.0`),
		"a negative id":          swap(`"id":3`, `"id":-3`),
		"too large a number":     swap(`"id":3`, `"id":18446744073709551616`),
		"a map of other letters": swap(`"map":"`, `"map":"!`),
		"no map":                 {Format, '{', '}'},
		"format 0":               append([]byte{0}, b[1:]...),
		"too large":              append(bytes.Clone(b), bytes.Repeat([]byte{' '}, MaxState)...),
	} {
		if _, err := Parse(other); !errors.Is(err, ErrMalformed) || errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, newer := range [][]byte{{Format + 1}, append([]byte{Format + 1}, b[1:]...), append([]byte{255}, make([]byte, MaxState+1)...)} {
		if _, err := Parse(newer); !errors.Is(err, ErrNewer) {
			t.Errorf("format %d, %d bytes: %v", newer[0], len(newer), err)
		}
	}
}

// TestApply: an entry is taken at the version that it was worked out from, and at no other; the state stays what it is if not, and is given up only for a newer program's.
func TestApply(t *testing.T) {
	s := Begin(firstMap(t, 4))
	next := s.Clone()
	next.Paused = true
	entry := AppendEntry(nil, next)
	n, answer := s.Apply(entry)
	if err := Outcome(answer); err != nil || !reflect.DeepEqual(n, next) {
		t.Fatalf("%v: %+v", err, n)
	}
	skipped := next.Clone()
	skipped.Version++
	newer := bytes.Clone(AppendEntry(nil, next.Clone()))
	newer[entryHead] = Format + 1
	for name, c := range map[string]struct {
		entry []byte
		want  string
	}{
		"the same again":        {entry, "the state is at version 2, and was changed meanwhile: it was thought to be at 1"},
		"from a later one":      {AppendEntry(nil, skipped), "it was thought to be at 3"},
		"a version left out":    {append(AppendEntry(nil, next.Clone())[:entryHead:entryHead], skipped.Encode()...), "version 4 behind 2"},
		"nothing":               {nil, "without a version"},
		"a short one":           {entry[:entryHead-1], "without a version"},
		"a version alone":       {AppendEntry(nil, next.Clone())[:entryHead], "without a format"},
		"garbage":               {append(AppendEntry(nil, next.Clone())[:entryHead:entryHead], "\x01{"...), "malformed"},
		"newer, of another one": {append(entry[:entryHead:entryHead], Format+1), "changed meanwhile"},
	} {
		after, answer := n.Apply(c.entry)
		if err := Outcome(answer); after != n || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
	if after, answer := n.Apply(newer); after != nil || !strings.Contains(string(answer), "newer program") {
		t.Errorf("a newer program's entry: %+v, %s", after, answer)
	}
	if err := Outcome(bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, ErrRefused) || len(err.Error()) > 300 {
		t.Errorf("an answer without end makes an error of %d bytes", len(err.Error()))
	}
}

// TestClone: what is done to a clone does not show in the state.
func TestClone(t *testing.T) {
	s := sample(t)
	before := s.Encode()
	n := s.Clone()
	if n.Version != s.Version+1 {
		t.Fatalf("version %d", n.Version)
	}
	n.Paused, n.Map = false, firstMap(t, 3)
	n.Tasks[0].State = Done
	n.Tasks[1].Moves[1].State = Dropped
	n.Tasks[1].Moves = append(n.Tasks[1].Moves, Move{})
	for len(n.Tasks) < MaxTasks {
		n.AddTask(Task{ID: n.NextTask(), State: Done})
	}
	n.AddTask(Task{ID: n.NextTask()})
	if !bytes.Equal(s.Encode(), before) {
		t.Errorf("the state is another one now: %s", s.Encode())
	}
	if t1 := s.Task(4); t1 == nil || t1 != &s.Tasks[1] || s.Task(5) != nil {
		t.Errorf("task 4 is %+v", t1)
	}
}

// TestAddTask: the oldest tasks that have ended make room, and no others do.
func TestAddTask(t *testing.T) {
	s := Begin(firstMap(t, 3))
	if s.NextTask() != 1 {
		t.Errorf("the first task is %d", s.NextTask())
	}
	for i := range MaxTasks {
		state := Done
		if i%2 == 0 {
			state = Runs
		}
		if !s.AddTask(Task{ID: s.NextTask(), Kind: Rebalance, State: state}) {
			t.Fatalf("task %d is not taken", i+1)
		}
	}
	for i := range MaxTasks / 2 {
		want := uint64(2 * (i + 1)) // which goes
		if s.Task(want) == nil || !s.AddTask(Task{ID: s.NextTask(), Kind: Rebalance, State: Runs}) || s.Task(want) != nil || len(s.Tasks) != MaxTasks {
			t.Fatalf("task %d has not made room", want)
		}
	}
	if s.AddTask(Task{ID: s.NextTask(), Kind: Rebalance, State: Runs}) || len(s.Tasks) != MaxTasks {
		t.Error("more tasks than fit")
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// TestStateHasRoom: the largest tasks, one behind the other, make no state that cannot be read again, whatever becomes of their moves.
func TestStateHasRoom(t *testing.T) {
	long := func(n int) string { return strings.Repeat("n", cluster.MaxName-4) + fmt.Sprintf("%04d", n) }
	s := Begin(firstMap(t, 3))
	for range 5 {
		task := Task{ID: s.NextTask(), Kind: Rebalance, State: Runs, Began: 1 << 62}
		for i := range cluster.MaxNodes {
			task.Nodes = append(task.Nodes, long(i))
		}
		for i := range MaxMoves {
			task.Moves = append(task.Moves, Move{Group: 1 << 31, From: long(i), To: long(i + 1), State: Waits})
		}
		if s.AddTask(task); s.Task(task.ID) == nil {
			t.Fatalf("the largest task does not fit behind %d others", len(s.Tasks))
		}
		if s.AddTask(Task{ID: task.ID + 1, Moves: task.Moves, State: Runs}) {
			t.Error("another one beside it fits")
		}
		last := s.Task(task.ID)
		last.State, last.Ended = Canceled, 1<<62
		for i := range last.Moves {
			m := &last.Moves[i]
			m.FromID, m.ToID, m.State, m.Began, m.Ended = 1<<63, 1<<63, Dropped, 1<<62, 1<<62
		}
		b := s.Encode()
		if room := cluster.MaxMap*4/3 - len(cluster.AppendMap(nil, s.Map))*4/3; len(b)+room > MaxState {
			t.Fatalf("%d bytes, and no room for the largest map", len(b))
		}
		if _, err := Parse(b); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzParse: what parses has these very bytes; an entry of any bytes leaves the state as it is, makes the next one, or is of a newer program.
func FuzzParse(f *testing.F) {
	s := sample(f)
	next := s.Clone()
	next.Tasks[1].State = Canceling
	for _, one := range []*State{Begin(firstMap(f, 3)), s, next} {
		f.Add(one.Encode())
		f.Add(AppendEntry(nil, one))
	}
	before := s.Encode()
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := Parse(b); err == nil && !bytes.Equal(got.Encode(), b) {
			t.Fatalf("another form: %s", b)
		} else if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) {
			t.Fatal(err)
		}
		at := AppendEntry(nil, s.Clone())[:entryHead:entryHead]
		for _, entry := range [][]byte{b, append(at, b...)} {
			after, answer := s.Apply(entry)
			switch err := Outcome(answer); {
			case after == nil:
				if _, err := Parse(entry[entryHead:]); !errors.Is(err, ErrNewer) {
					t.Fatalf("the state is given up: %s", answer)
				}
			case err != nil && after != s, err == nil && after.Version != s.Version+1:
				t.Fatalf("%s: %+v", answer, after)
			}
		}
		if !bytes.Equal(s.Encode(), before) {
			t.Fatal("the state has changed")
		}
	})
}
