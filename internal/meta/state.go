package meta

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// Format is the newest form of the state, as it stands in entries and files, that this program reads. feature.Of says which one it writes.
const Format = 2

const (
	// MaxState bounds an encoded state, in bytes.
	MaxState = 1 << 20
	// MaxTasks bounds the tasks that are kept, of which those that have ended go first.
	MaxTasks = 64
	// MaxMoves bounds the moves of a task.
	MaxMoves = (1 + cluster.MaxGroups) * cluster.MaxReplicas
	// maxTasks bounds the bytes of the tasks, so that a state has room for the largest map at any time. The largest task fits.
	maxTasks = MaxState - (cluster.MaxMap+2)/3*4 - 256
)

// A State is what the cluster has agreed on. It is immutable: who changes it works on a Clone.
type State struct {
	Version uint64 // rises by one with each change
	Map     *cluster.Map
	Paused  bool   // no move begins
	Tasks   []Task // by ID, rising
	// Level is what the nodes may write for each other. It never falls.
	Level feature.Level
}

// A Kind is what a task does.
type Kind string

const (
	Add       Kind = "add"       // Nodes come into the map, and get their share of the replicas
	Remove    Kind = "remove"    // Nodes give theirs to others, and leave the map
	Replace   Kind = "replace"   // the second of two Nodes takes what the first one has
	Rebalance Kind = "rebalance" // each node gets its share
	Replicas  Kind = "replicas"  // each group has so many
)

// A TaskState says how far a task is.
type TaskState string

const (
	Runs      TaskState = "runs"
	Canceling TaskState = "canceling" // moves that have begun are undone, or finished if it is too late for that
	Done      TaskState = "done"
	Canceled  TaskState = "canceled"
)

// A Task is a change of the cluster that an operator has asked for.
type Task struct {
	ID       uint64    `json:"id"` // from 1, never used twice
	Kind     Kind      `json:"kind"`
	Nodes    []string  `json:"nodes,omitempty"`
	Replicas int       `json:"replicas,omitempty"` // of Replicas: how many
	State    TaskState `json:"state"`
	Began    int64     `json:"began"` // milliseconds since 1970, by the seat's clock
	Ended    int64     `json:"ended,omitempty"`
	Moves    []Move    `json:"moves"`
}

// Over says whether nothing of the task is left to do.
func (t *Task) Over() bool { return t.State == Done || t.State == Canceled }

// A MoveState says how far a move is.
type MoveState string

const (
	Waits   MoveState = "waits"   // it has not begun
	Moves   MoveState = "moves"   // the map says what is wanted, and the group's leader brings it about
	Undoes  MoveState = "undoes"  // the map says again what it said before
	Arrived MoveState = "done"    // the group is as wanted
	Undone  MoveState = "undone"  // it is as it was
	Dropped MoveState = "dropped" // it never began
)

// A Move is a replica that goes from a node to another one, comes, or goes.
type Move struct {
	Group  uint32    `json:"group"`
	From   string    `json:"from,omitempty"` // node; "": a replica more
	To     string    `json:"to,omitempty"`   // node; "": a replica less
	FromID uint64    `json:"from_id,omitempty"`
	ToID   uint64    `json:"to_id,omitempty"` // 0 until it has begun
	State  MoveState `json:"state"`
	Began  int64     `json:"began,omitempty"`
	Ended  int64     `json:"ended,omitempty"`
}

// Running says whether the map has the move under way.
func (m *Move) Running() bool { return m.State == Moves || m.State == Undoes }

// Over says whether nothing of the move is left to do.
func (m *Move) Over() bool { return !m.Running() && m.State != Waits }

// Begin is the state that a meta group begins with.
func Begin(m *cluster.Map) *State { return &State{Version: 1, Map: m} }

// Clone returns a state of the next version, which the caller may change. The map stays shared: maps are immutable.
func (s *State) Clone() *State {
	n := *s
	n.Version++
	n.Tasks = slices.Clone(s.Tasks)
	for i := range n.Tasks {
		n.Tasks[i].Moves = slices.Clone(n.Tasks[i].Moves)
	}
	return &n
}

// Task returns the task of an id; nil: there is none, or it ended long ago.
func (s *State) Task(id uint64) *Task {
	for i := range s.Tasks {
		if s.Tasks[i].ID == id {
			return &s.Tasks[i]
		}
	}
	return nil
}

// NextTask is the id of the next task.
func (s *State) NextTask() uint64 {
	if len(s.Tasks) == 0 {
		return 1
	}
	return s.Tasks[len(s.Tasks)-1].ID + 1
}

// AddTask appends a task. If there are too many, or what they take is too much, the oldest ones that have ended go. false: those that have not are too many.
func (s *State) AddTask(t Task) bool {
	sum := t.most()
	for i := range s.Tasks {
		sum += s.Tasks[i].most()
	}
	full := func() bool { return len(s.Tasks) >= MaxTasks || sum > maxTasks }
	for i := 0; full() && i < len(s.Tasks); {
		if s.Tasks[i].Over() {
			sum -= s.Tasks[i].most()
			s.Tasks = slices.Delete(s.Tasks, i, i+1)
			continue
		}
		i++
	}
	if full() {
		return false
	}
	s.Tasks = append(s.Tasks, t)
	return true
}

// most bounds the bytes that the task takes in an encoded state until it is over: its moves get ids and times.
func (t *Task) most() int {
	n := 192
	for _, node := range t.Nodes {
		n += len(node) + 3
	}
	for i := range t.Moves {
		n += 176 + len(t.Moves[i].From) + len(t.Moves[i].To)
	}
	return n
}

// ErrMalformed: bytes that are no state, or one that breaks a rule.
var ErrMalformed = errors.New("meta: malformed state")

// ErrNewer: a state of a format that this program does not know.
var ErrNewer = errors.New("meta: a state of a newer program: use that one")

// A text is a state as it is encoded:
//
//	┌format┐ JSON of this, to the end
//	└1     ┘
//
//	format 1  of level 0, which it does not name: as programs write it that know no levels
//	format 2  of a level above 0 (feature.Of); its JSON ends with "level"
//
// So the entry that raises the level for the first time is the first one of format 2, and a replica of a program that knows no levels stops there.
type text struct {
	Version uint64        `json:"version"`
	Map     []byte        `json:"map"` // cluster.AppendMap
	Paused  bool          `json:"paused,omitempty"`
	Tasks   []Task        `json:"tasks,omitempty"`
	Level   feature.Level `json:"level,omitempty"`
}

// Encode returns the bytes of the state. The same state has the same bytes.
func (s *State) Encode() []byte {
	b, err := json.Marshal(text{s.Version, cluster.AppendMap(nil, s.Map), s.Paused, s.Tasks, s.Level})
	if err != nil {
		panic(fmt.Sprintf("meta: a state that cannot be encoded: %v", err)) // it has no type that json refuses
	}
	return append([]byte{feature.Of(s.Level).State}, b...)
}

// Parse reads what Encode wrote. ErrMalformed, ErrNewer.
func Parse(b []byte) (*State, error) {
	switch {
	case len(b) == 0 || b[0] == 0:
		return nil, fmt.Errorf("%w: %d bytes without a format", ErrMalformed, len(b))
	case b[0] > Format: // before any bound, because a newer program may have others
		return nil, fmt.Errorf("%w: it has format %d, this program knows %d", ErrNewer, b[0], Format)
	case len(b) > MaxState:
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(b), MaxState)
	}
	d := json.NewDecoder(bytes.NewReader(b[1:]))
	d.DisallowUnknownFields()
	var t text
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m, err := cluster.ParseMap(t.Map)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	s := &State{t.Version, m, t.Paused, t.Tasks, t.Level}
	if err := s.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(s.Encode(), b) {
		return nil, fmt.Errorf("%w: it has another form than this program writes", ErrMalformed)
	}
	return s, nil
}

// Readable returns nil if a program that reads some levels may go on with the state, else ErrNewer, or ErrMalformed for a level that the program does not read any more.
func (s *State) Readable(by feature.Range) error {
	err := by.Check(s.Level)
	switch {
	case err == nil:
		return nil
	case s.Level > by.Newest:
		return fmt.Errorf("%w: %w", ErrNewer, err)
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// An entry of group 0 is the version of the state that the next one was worked out from, 64 bits, little endian, and the next state.
const entryHead = 8

// AppendEntry appends the entry that makes next of the state that it was cloned from.
func AppendEntry(dst []byte, next *State) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, next.Version-1), next.Encode()...)
}

// taken is the answer of Apply to an entry that it took.
const taken = "taken"

// Apply makes the next state of an entry. The answer says what came of it (Outcome); a nil state: a newer program has written the entry, and a replica that went on
// without it would have another state than the others, so it must stop, and the answer says why.
func (s *State) Apply(entry []byte) (next *State, answer []byte) {
	if len(entry) < entryHead {
		return s, []byte("an entry without a version")
	}
	if at := binary.LittleEndian.Uint64(entry); at != s.Version {
		return s, fmt.Appendf(nil, "the state is at version %d, and was changed meanwhile: it was thought to be at %d", s.Version, at)
	}
	n, err := Parse(entry[entryHead:])
	if errors.Is(err, ErrNewer) {
		return nil, []byte(err.Error())
	}
	if err == nil {
		err = s.follows(n)
	}
	if err != nil {
		return s, []byte(err.Error())
	}
	return n, []byte(taken)
}

// ErrRefused: the meta group has not taken a change; its text says why.
var ErrRefused = errors.New("meta: the change was not taken")

// Outcome says what an answer of Apply means: nil, or ErrRefused.
func Outcome(answer []byte) error {
	if string(answer) == taken {
		return nil
	}
	return fmt.Errorf("%w: %.200s", ErrRefused, answer)
}
