package linear

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// An OpKind is what an operation does.
type OpKind uint8

// The operations.
const (
	OpGet  OpKind = iota + 1 // value, and the version if the call tells it
	OpPeek                   // is it there, and which version: no value
	OpPut
	OpDelete
	OpIncrement
	OpTouch
	OpBatch
)

var opNames = [...]string{OpGet: "get", OpPeek: "peek", OpPut: "put", OpDelete: "delete", OpIncrement: "increment", OpTouch: "touch", OpBatch: "batch"}

// String names the operation.
func (k OpKind) String() string {
	if int(k) < len(opNames) && opNames[k] != "" {
		return opNames[k]
	}
	return fmt.Sprintf("OpKind(%d)", uint8(k))
}

// Writes reports whether the operation can change anything.
func (k OpKind) Writes() bool { return k >= OpPut }

// A Cond is the condition of a write.
type Cond uint8

// The conditions.
const (
	CondNone    Cond = iota
	CondAbsent       // the key is not there
	CondVersion      // the key is there with that version
)

// A Value is what stands under a key: one of our records, by its number, which
// is used once, or a decimal number that increments count with.
type Value struct {
	Num bool  `json:"num,omitempty"` // a number to count with
	N   int64 `json:"n"`
}

// String shows a record as r7 and a number as 7.
func (v Value) String() string {
	if v.Num {
		return fmt.Sprint(v.N)
	}
	return fmt.Sprintf("r%d", v.N)
}

// A Part is one write of a batch.
type Part struct {
	Key       int    `json:"key"` // in the object
	Delete    bool   `json:"delete,omitempty"`
	Val       Value  `json:"val,omitzero"`
	If        Cond   `json:"if,omitempty"`
	IfVersion uint64 `json:"if_version,omitempty"`
}

// An Input is the question of an operation.
type Input struct {
	Op        OpKind `json:"op"`
	Key       int    `json:"key"` // in the object; of a batch none
	Val       Value  `json:"val,omitzero"`
	If        Cond   `json:"if,omitempty"`
	IfVersion uint64 `json:"if_version,omitempty"`
	Delta     int64  `json:"delta,omitempty"`
	Parts     []Part `json:"parts,omitempty"`
	// TTL is how long what is written lives; 0 is for ever.
	TTL time.Duration `json:"ttl,omitempty"`
	// How is the way in which a get asks, for the reader of the history.
	How string `json:"how,omitempty"`
}

// An Output is the answer.
type Output struct {
	Unknown   bool   `json:"unknown,omitempty"`    // it is not known whether it took effect
	Refused   bool   `json:"refused,omitempty"`    // the condition did not hold
	NotNumber bool   `json:"not_number,omitempty"` // an increment of what is no number
	Present   bool   `json:"present,omitempty"`    // reads: it is there; deletes, touches: it was there
	Val       Value  `json:"val,omitzero"`         // gets; increments: the new number
	Version   uint64 `json:"version,omitempty"`    // 0 if the call does not tell. Refused: the one it had
	// Absent: a refusal says that the key was not there (Version 0 alone says
	// that the call does not tell).
	Absent bool `json:"absent,omitempty"`
	// Part is the part of a batch whose condition did not hold.
	Part int `json:"part,omitempty"`
	// Ahead is by how much, in nanoseconds, the server's clock may have been ahead of
	// the wall clock when a write was judged: what it gives to live lasts up to that
	// much longer, because the clock then goes slower until it is ahead no more.
	Ahead int64 `json:"ahead,omitempty"`
	// Why is what the call said whose outcome is not known, for the reader of the history.
	Why string `json:"why,omitempty"`
}

// Infinity is when an operation returns whose outcome is not known.
const Infinity = math.MaxInt64

// An Op is one operation of a history.
type Op struct {
	Client int    `json:"client"`
	Call   int64  `json:"call"`   // stamp
	Return int64  `json:"return"` // stamp
	Begin  int64  `json:"begin"`  // nanoseconds since the clock was made, at the call
	End    int64  `json:"end"`    // at the return
	In     Input  `json:"in"`
	Out    Output `json:"out"`

	given time.Duration // from its begin to the deadline of its call
}

// String is the operation as the picture shows it.
func (o *Op) String() string {
	var b strings.Builder
	in, out := &o.In, &o.Out
	fmt.Fprintf(&b, "%v", in.Op)
	if in.How != "" {
		fmt.Fprintf(&b, "/%s", in.How)
	}
	switch in.Op {
	case OpBatch:
		for _, p := range in.Parts {
			if p.Delete {
				fmt.Fprintf(&b, " %c:gone", 'a'+p.Key)
			} else {
				fmt.Fprintf(&b, " %c:=%v", 'a'+p.Key, p.Val)
			}
			b.WriteString(condText(p.If, p.IfVersion))
		}
	default:
		fmt.Fprintf(&b, " %c", 'a'+in.Key)
	}
	switch in.Op {
	case OpPut:
		fmt.Fprintf(&b, " := %v", in.Val)
	case OpIncrement:
		fmt.Fprintf(&b, " by %d", in.Delta)
	}
	b.WriteString(condText(in.If, in.IfVersion))
	if in.TTL > 0 {
		fmt.Fprintf(&b, " for %v", in.TTL)
	}
	b.WriteString(" -> ")
	switch {
	case out.Unknown:
		b.WriteString("unknown")
	case out.NotNumber:
		b.WriteString("not a number")
	case out.Refused && out.Absent:
		b.WriteString("refused: absent")
	case out.Refused:
		fmt.Fprintf(&b, "refused: version %d", out.Version)
	case in.Op == OpGet && out.Present, in.Op == OpIncrement:
		fmt.Fprintf(&b, "%v", out.Val)
	case !in.Op.Writes() || in.Op == OpDelete || in.Op == OpTouch:
		b.WriteString(map[bool]string{true: "present", false: "absent"}[out.Present])
	default:
		b.WriteString("done")
	}
	if out.Version != 0 && !out.Refused {
		fmt.Fprintf(&b, " v%d", out.Version)
	}
	return b.String()
}

func condText(c Cond, version uint64) string {
	switch c {
	case CondAbsent:
		return " if absent"
	case CondVersion:
		return fmt.Sprintf(" if v%d", version)
	}
	return ""
}

// A Clock gives stamps: a caller that got one before another asked has the lower
// one. Virtual time stands still while programs run, and the real one is not
// fine enough; stamps order both. It is safe for concurrent use.
type Clock struct {
	begin time.Time
	last  atomic.Int64
}

// NewClock returns a clock that begins now.
func NewClock() *Clock { return &Clock{begin: time.Now()} }

// Now returns the next stamp, and the nanoseconds since the clock began.
func (c *Clock) Now() (stamp, nanos int64) {
	nanos = int64(time.Since(c.begin))
	return c.last.Add(1), nanos
}
